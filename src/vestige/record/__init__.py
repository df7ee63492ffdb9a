"""Types of recorded events. Pure: no I/O, no clock. Every other folder uses these types."""
