"""Gate a change: compare runs of a command with a baseline, and with a policy."""
