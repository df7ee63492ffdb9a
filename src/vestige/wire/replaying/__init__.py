"""Replay and fork: recorded answers instead of the network."""
