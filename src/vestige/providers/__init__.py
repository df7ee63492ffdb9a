"""Requests and responses of model providers. Pure."""
