"""Resolve any id, prefix, path or pasted log line to a run or a span."""
