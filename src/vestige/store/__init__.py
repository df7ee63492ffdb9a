"""The store of records: its interface, and its engine in sqlite/."""
