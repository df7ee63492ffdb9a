"""Accepted shipments as immutable files, which a loader stores later in large batches."""
