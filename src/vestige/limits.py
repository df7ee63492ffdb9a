"""Every number that bounds something, each with its reason.

Sizes are bytes unless the name says otherwise. A bound protects somebody: the
agent (memory, disk), the collector (memory), or the reader (a screen, a context).
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# --- one record -----------------------------------------------------------------------

BODY_MAX = 32 * MIB
"""A body keeps this much and a marker for the rest: providers refuse larger requests anyway."""

BODY_INLINE_MAX = 256 * KIB
"""A longer body goes to a file of its own, so that a line is cheap to write at once and to skip."""

BODY_NODES_MAX = 1_000_000
"""Values of one object that is given as a body: shared references can make a few thousand endless."""

BODY_CHUNK = 128 * KIB
"""A long body is encoded, redacted and written in steps of this size: memory stays near it."""

LINE_MAX = 4 * MIB
"""A journal line longer than this is not ours: an inline body may grow sixfold when escaped."""

ATTRIBUTE_VALUE_MAX = 32 * KIB
"""Characters. Attributes are for asking questions; what is longer belongs into a body."""

ATTRIBUTES_MAX = 256
"""Attributes of one record; more than this is a dictionary, and belongs into a body."""

NAME_MAX = 512
"""Characters of a name, type, component or attribute key."""

MESSAGE_MAX = 64 * KIB
"""Characters of a log message."""

NESTING_MAX = 32
"""Depth to which a nested attribute value is rendered before it is cut with a marker."""

STACK_MAX = 48 * KIB
"""Characters of a stack trace: the first and last frames say it; deep recursion repeats itself."""

OPEN_SPANS_TRACKED_MAX = 10_000
"""Spans remembered as open for last words. A program that never ends spans must not leak."""

OPEN_SPANS_NAMED_MAX = 20
"""Open spans that a last word names; the collector knows them all."""

SECRET_LENGTH_MAX = 16 * KIB
"""The longest secret (a PEM block) that is recognised across the steps of a long body."""

# --- the journal ------------------------------------------------------------------------

JOURNAL_ROTATE_BYTES = 64 * MIB
"""A generation of this size is closed: small enough to delete soon, large enough to be rare."""

JOURNAL_TOTAL_MAX = 2 * GIB
"""All journals of a home. Above it (no collector for weeks) the oldest finished ones go."""

FSYNC_INTERVAL_S = 1.0
"""Periodic fsync: what a power cut may cost. A killed process costs nothing."""

# --- the collector ----------------------------------------------------------------------

BATCH_BYTES = 8 * MIB
"""Journal bytes in one transaction: the collector's memory is a small multiple of it."""

TICK_S = 0.25
"""Between two looks at the journals: near real time, and next to no work when idle."""

TICK_PAUSE_MAX_S = 30.0
"""The longest pause of a collector whose store cannot be written: it tries again by itself."""

CATCH_UP_WAIT_S = 2.0
"""How long a reading command waits for a running collector to reach the present."""

RESTARTS_MAX = 5
"""Restarts of a supervised collector before giving up: the journal keeps everything anyway."""

RESTART_BACKOFF_S = 0.5
"""First pause before such a restart; doubles each time."""

DRAIN_S = 5.0
"""How long an exiting program waits for its collector to take in the last records."""

PRUNE_INTERVAL_S = 300.0
"""Between two retention passes of a collector."""

IMPORT_BATCH = 20_000
"""Records of an import in one transaction; fewer where their bodies are large."""

# --- artifact bundles -------------------------------------------------------------------

ARTIFACT_FILES_MAX = 1_000_000
"""Files of one bundle that are looked at; the suites that we know write some ten thousand."""

ARTIFACT_JSON_MAX = 16 * MIB
"""A JSON file is parsed up to this size, and only hashed above it: parsed, it may take ten times that."""

ARTIFACT_BUNDLE_MAX = 256 * MIB
"""`bundle.json` has a line per file, and must be read whole."""

ARTIFACT_LINE_MAX = 4 * MIB
"""One line of a trace or another `*.jsonl`: it is held whole."""

ARTIFACT_ZIP_BYTES_MAX = 16 * GIB
"""What an archive may unfold to while it is hashed: nothing is kept, but it takes time."""

ARTIFACT_FINDINGS_MAX = 100
"""Findings of one rule in one file; a count stands for the rest."""

ARTIFACT_BODY_MAX = 4 * MIB
"""A larger file of a bundle is imported without its bytes: it stays where it is."""

JUNIT_MAX = 64 * MIB
"""An XML report is held whole while it is read."""

# --- the store --------------------------------------------------------------------------

PIECE_MIN = 64
"""A body piece shorter than this is merged into its neighbour: its row would outweigh it."""

PIECES_MAX = 20_000
"""Pieces of one body; one that would have more is kept whole."""

RETENTION_AGE_S = 7 * 24 * 3600
"""A week of runs: long enough to compare with last week's good one, short enough to forget."""

RETENTION_BODY_BYTES = 256_000_000
"""Bodies, as stored: some tens of GB of requests as they were sent."""

# --- answers ----------------------------------------------------------------------------

PREVIEW_MAX = 200
"""Characters of a body that are shown before one asks for it."""

LIST_MAX = 20
"""Runs that `list` shows unless told otherwise."""

SHOW_LINES_MAX = 400
"""Lines of the easy view unless told otherwise; the rest is one command away."""
