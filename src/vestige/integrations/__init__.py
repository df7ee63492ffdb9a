"""Integrations with provider SDKs."""
