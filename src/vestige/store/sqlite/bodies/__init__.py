"""Bodies: each message stored once, each body rebuilt byte for byte."""
