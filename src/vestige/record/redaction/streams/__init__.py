"""The texts that the events of a stream spell, and how they are redacted."""
