"""Commands that serve runs to others."""
