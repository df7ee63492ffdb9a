"""Programs of vendors that are recorded by their own settings."""
