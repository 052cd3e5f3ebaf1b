"""Run directories and checkpoints: atomic, verified, private to one process at a time."""
