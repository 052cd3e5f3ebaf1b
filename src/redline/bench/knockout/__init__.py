"""Knock-out attribution: what a part of a training costs is what is saved by leaving it out."""
