"""Checks of progress: loops, pace, deliveries between conversations."""
