"""Commands that import, export, keep and delete runs."""
