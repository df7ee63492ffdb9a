"""What happened. Pure: no I/O, no clock. Every other folder speaks these types."""
