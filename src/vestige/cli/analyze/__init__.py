"""Commands that aggregate over runs."""
