"""Read runs, search results, reports and change feeds from the tables."""
