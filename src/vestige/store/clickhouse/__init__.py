"""The engine for teams: a store in a ClickHouse database."""
