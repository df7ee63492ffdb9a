"""Hooks into the program: logging, stdout, threads."""
