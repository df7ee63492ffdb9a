"""Send the journals of a home to a server."""
