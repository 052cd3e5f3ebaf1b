"""Probes that watch processes and the machine; usable without the rest of Redline."""
