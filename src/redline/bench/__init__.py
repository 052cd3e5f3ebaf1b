"""Measurements that a user can repeat: Redline's parts, and its peers' at the same work on the same data."""
