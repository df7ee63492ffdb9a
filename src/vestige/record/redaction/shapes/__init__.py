"""Tables of secrets that have a shape of their own."""
