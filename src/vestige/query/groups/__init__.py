"""Group failed runs by their cause."""
