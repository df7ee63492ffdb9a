"""The doors: parse, call one query or format, print."""
