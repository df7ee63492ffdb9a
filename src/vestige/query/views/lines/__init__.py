"""Parts of the lines that `show` and `span` print."""
