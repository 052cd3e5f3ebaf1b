"""Plans: what a run will need, computed or measured before it starts."""
