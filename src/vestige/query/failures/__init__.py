"""From a failed run to its cause: check, why, tracebacks, test cases."""
