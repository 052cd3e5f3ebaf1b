"""Hyperparameter search: trials are ordinary runs, and what counts is the winner on seeds that the search never used."""
