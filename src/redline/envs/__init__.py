"""Environments as a vector of lanes: Atari on native threads, any Gymnasium env, and two small ones of our own."""
