"""OpenWOP support: request parsing, OpenAPI schemas, demo workflows."""
