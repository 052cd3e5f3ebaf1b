"""The command line: one small module per command, and the only room that prints."""
