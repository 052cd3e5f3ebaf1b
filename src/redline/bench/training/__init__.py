"""Whole trainings side by side: Redline's and its peers', each in a process of its own, with the same settings."""
