"""Views of one run: show, overview, transcript, spans, bodies, files, state."""
