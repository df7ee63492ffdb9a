"""Checks of the process and its recording: crashes, errors, test cases."""
