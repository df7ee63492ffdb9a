"""The command line. Each command is a short file that parses, calls one thing, and prints."""
