"""Fleets: many runs from one frozen list, on one machine or on several, and what came of them."""
