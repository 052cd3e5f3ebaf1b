"""Environments as a vector of lanes: Atari on native threads, any Gymnasium env, and tiny probes for tests."""
