"""Watch a run while it is going on."""
