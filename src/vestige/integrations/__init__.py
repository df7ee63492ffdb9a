"""Recording of what a program hands to an SDK."""
