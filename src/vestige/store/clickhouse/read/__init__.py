"""Read runs, search results, sums and change feeds from ClickHouse."""
