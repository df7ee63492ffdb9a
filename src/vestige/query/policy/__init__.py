"""Policies: rules on tools, arguments, models, hosts and limits that a run must keep."""
