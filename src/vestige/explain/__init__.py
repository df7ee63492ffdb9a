"""The investigator: a model that explains a run with read-only queries and proven quotes."""
