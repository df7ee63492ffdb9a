"""The pytest plugin: a test session as an artifact bundle and a run."""
