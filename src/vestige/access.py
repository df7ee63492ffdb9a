"""Who may ask for what: keys, scopes, tenants. Kept in the home, not in the store."""
