"""Statistics, costs and trends over all runs."""
