"""Questions over many runs: list, filters, grep, SQL."""
