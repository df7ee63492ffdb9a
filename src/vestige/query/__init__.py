"""Questions. Pure functions over a Run, and the store's narrow reads."""
