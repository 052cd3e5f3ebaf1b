"""Hyperparameter search: trials are ordinary runs, and only a check of the winner on unused seeds counts."""
