"""The ladder: from the textbook loop to Redline, one thing switched on at a time."""
