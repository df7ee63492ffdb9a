"""Artifact bundles: the evidence that a test suite leaves, as a directory that a machine can trust."""
