"""Making records. Logger and Span are explicit values, passed down; ambient is the short cut."""
