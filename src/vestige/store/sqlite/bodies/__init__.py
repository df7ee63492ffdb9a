"""Stored bodies: equal messages are stored once, and bodies are rebuilt byte for byte."""
