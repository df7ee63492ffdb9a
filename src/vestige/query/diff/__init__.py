"""Differences between runs, spans, bodies and groups of runs."""
