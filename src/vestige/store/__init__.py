"""Where records rest."""
