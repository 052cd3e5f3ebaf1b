"""Redline trains deep-RL agents on Atari at the limit of the machine; importing it loads nothing heavy."""

__version__ = "0.1.0"
