"""Commands that find causes."""
