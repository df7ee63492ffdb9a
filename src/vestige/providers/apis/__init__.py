"""Parsers of the JSON of each provider API, one module per API."""
