"""The HTTP server: the verbs as a JSON API, live updates, ingest, OpenWOP, the viewer."""
