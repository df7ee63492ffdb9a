"""Commands that turn findings into gates, limits and datasets."""
