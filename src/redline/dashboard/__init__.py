"""Runs and fleets in the browser, while they go on: a server that reads files and changes nothing."""
