"""Find secrets in records and replace them before anything is written."""
