"""Turn batches of records into rows of ClickHouse, and commit them."""
