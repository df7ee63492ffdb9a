"""Find the cause of a failed run: check, why, tracebacks, test cases."""
