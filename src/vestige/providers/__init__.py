"""How providers speak. Pure."""
