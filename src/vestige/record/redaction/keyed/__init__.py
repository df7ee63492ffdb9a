"""Values beside a secret's key: their context, and quoted and unquoted forms."""
