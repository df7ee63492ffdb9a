"""The HTTP server: JSON API, live updates, ingest, OpenWOP, viewer."""
