"""Hyperparameter search: trials are ordinary runs, and only the winner on seeds that no trial used counts."""
