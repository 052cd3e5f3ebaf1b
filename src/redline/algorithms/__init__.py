"""Algorithms as values: a family says what is computed, an algorithm names the parts it is made of."""
