"""Checks of tool calls: requests, arguments, results."""
