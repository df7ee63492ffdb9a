"""Routes of the HTTP server, one module per group."""
