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

PARTIAL_MAX = 4 * MIB
"""An answer that is still arriving is kept up to this size, in case that its process is killed."""

PARTIAL_INTERVAL_S = 0.25
"""How often it is kept at most. It takes a hundredth of the time at most, too."""

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

PRINT_MAX = 64 * KIB
"""Characters of one print that are kept: masking more would be noticed by who prints."""

PRINTS_AT_ONCE = 1_000
"""Prints of a stream that are recorded however fast they come, and then:"""

PRINTS_PER_S = 100
"""A print is written in some microseconds, and recorded in some dozens: a program that prints as fast
as it can must not notice."""

NESTING_MAX = 32
"""Depth to which a nested attribute value is rendered before it is cut with a marker."""

STACK_MAX = 48 * KIB
"""Characters of a stack trace: the first and last frames say it; deep recursion repeats itself."""

OPEN_SPANS_TRACKED_MAX = 10_000
"""Spans remembered as open for last words. A program that never ends spans must not leak."""

OPEN_SPANS_NAMED_MAX = 20
"""Open spans that a last word names; the collector knows them all."""

SILENCE_S = 30.0
"""A process that has recorded nothing for so long writes down where it stands; then again when it has lasted
twice as long, so that one that waits for days says so twenty times."""

STANDING_STACKS_MAX = 100
STANDING_FRAMES_MAX = 100
"""Different stacks of threads and tasks that are written down, and the innermost frames of each."""

STANDING_RUNS_MAX = 8
"""Open runs of a process that are told where it stands."""

ASKED_RUNS_MAX = 64
"""Runs whose models' tool calls are remembered, for the tools to say who asked for them."""

ASKED_CALLS_MAX = 256
"""Such calls of one run: those of its last turns. A tool runs soon after it was asked for."""

ASKED_ARGUMENTS_MAX = 64 * KIB
"""Longer arguments are not compared, so that a tool's start stays cheap; its id still tells."""

SECRET_LENGTH_MAX = 16 * KIB
"""The longest secret (a PEM block) that is recognised across the steps of a long body."""

SECRETS_MET_MAX = 256
"""Secrets of headers that a recorder learns by itself: tokens are renewed, cookies change. Further ones are masked
in their header only, and counted."""

# --- the journal ------------------------------------------------------------------------

JOURNAL_ROTATE_BYTES = 64 * MIB
"""A generation of this size is closed: small enough to delete soon, large enough to be rare."""

JOURNAL_TOTAL_MAX = 2 * GIB
"""All journals of a home. Above it (no collector for weeks) the oldest finished ones go."""

FSYNC_INTERVAL_S = 1.0
"""Periodic fsync: what a power cut may cost. A killed process costs nothing."""

FORK_WAIT_S = 0.05
"""How long a fork waits for the journal's thread to end, so that the process has one thread less."""

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

REMOTE_SILENT_S = 24 * 3600.0
"""After which a writer of another machine is taken for interrupted. Long, as a living one that waits
for somebody's answer overnight sends nothing either; what it says later corrects it."""

IMPORT_BATCH = 20_000
"""Records of an import in one transaction; fewer where their bodies are large."""

LOG_PAGES = 4_000
"""Of SQLite's write-ahead log, before it is brought into the store: 16 MB. Pages of an index change with every batch, and
are written only once then."""

# --- from machine to machine ----------------------------------------------------------------

PARCEL_PACKED_MAX = 40 * MIB
"""What one request may carry, compressed: the longest body there is still fits when nothing compresses."""

PARCEL_MAX = 64 * MIB
"""The same, unpacked: a body of `BODY_MAX` as base64, and some lines around it. More is a bomb."""

PARCEL_FRAMES_MAX = 100
"""Packed pieces that a request may be joined from: each costs a copy of all that follow it."""

PARCEL_BYTES = 4 * MIB
"""What `ship` puts into one request unless a single body is longer: soon sent, and sent again soon."""

PARCEL_PART_BYTES = 512 * KIB
"""A long body travels in lines of this size: each is parsed on its own, and none is a long line."""

INGEST_WAITING_MAX = 128 * MIB
"""Parcels that are in memory at once, packed, of all keys: beyond it a sender is told to come again."""

INGEST_REQUESTS_S = 50.0
"""Requests in a second that one key may make in the long run: a ship sends a few, each with thousands of lines."""

INGEST_BURST = 100
"""Requests that one key may make at once after a pause, e.g. many ships that find their server back."""

INGEST_KEY_WAITING_MAX = 64 * MIB
"""The same of one key: others have room then, too."""

INGEST_KEY_REQUESTS_MAX = 100
"""Requests of one key that are not answered yet."""

PARCEL_RECORDS_MAX = 150_000
"""Records of one request. It is stored in one step, for which others wait; `ship` sends less, and less again when told so."""

PARCEL_RUNS_MAX = 5_000
"""Runs, and writers, of one request: each has rows of its own, which cost far more than a record."""

REMOTE_SEEN_MAX = MIB
"""Characters of the set of numbers that came from one writer elsewhere: some fifty thousand holes. A journal has next
to none; and the set is read and written with every parcel."""

SHIP_TICK_S = 0.5
"""Between two looks at the journals when all was sent: near real time, and next to no work when idle."""

SHIP_PAUSE_S = 0.5
"""The first pause after a failure; doubles each time, and is spread so that a fleet does not come back at once."""

SHIP_PAUSE_MAX_S = 30.0
"""The longest such pause: a server that is back is found within half a minute."""

SHIP_TIMEOUT_S = 60.0
"""For one answer of the server: it writes to disk first, and may have others to serve."""

SHIP_TRIES = 6
"""Of `ship --once` before it gives up: with the pauses, about a quarter of a minute."""

SHIP_REFUSED_MAX = 1_000
"""Runs of another tenant that a ship remembers not to send."""

COPY_MAX = GIB
"""Of a store in a home that cannot be written: up to here it is copied, so that what its journals hold is
there too. A larger one is asked as it is."""

OUTBOX_MAX = GIB
"""Finished journals and long bodies that are kept for a ship after the collector is done with them. Beyond it (no
ship for weeks) the oldest go, and that is counted."""

# --- runs of other tools ------------------------------------------------------------------

EVENT_LINE_MAX = 16 * MIB
"""A line of another tool's file: longer ones are passed over, so that memory stays near it."""

FOREIGN_FILE_MAX = 256 * MIB
"""A file that can only be read whole (an export in one JSON document)."""

FOREIGN_RUNS_MAX = 100_000
"""Runs of one folder; more is no folder of runs."""

GLANCE_EVENTS = 500
"""Events of a long foreign run that its first page is made from: of 8,000 tokens, the most that a page
may have, a line takes about twenty. The other pages read all."""

GLANCE_MIN = 4 * MIB
"""A shorter file is read whole: that is quick, and an answer from all of it is better."""

PROBLEMS_MAX = 1_000
"""Problems that are kept of one run: a damaged file may have as many as it has lines."""

FOREIGN_SILENCE_S = 600.0
"""A foreign run that is `running`, locked by nobody and silent for so long is taken for dead:
a single slow model call has no event until it ends."""

# --- debug bundles ------------------------------------------------------------------------

BUNDLE_MANIFEST_MAX = 8 * MIB
"""A manifest is small; one with thousands of skipped files still fits."""

BUNDLE_NESTING_MAX = 200
"""Depth of JSON from a bundle: deeper is an attack on a recursive reader, not a state."""

BUNDLE_MEMBERS_MAX = 100_000
"""Members of a zip: each costs memory before anything is read."""

BUNDLE_DIRECTORY_MAX = 32 * MIB
"""Of a zip's own list of its members."""

BUNDLE_PIECES_MAX = 5_000_000
"""Bodies of a bundle and the stretches that they are made of: each costs memory before any is read."""

BUNDLE_NAME_MAX = 1_024
"""Bytes of a member's name: no file system takes a longer path from a bundle in any case."""

BUNDLE_TOTAL_MAX = 16 * GIB
"""Of a bundle, unpacked. It is never unpacked at once, but somebody has to read it."""

BUNDLE_RATIO_MAX = 200
"""Unpacked to packed, of a bundle above `BUNDLE_RATIO_FREE`: more than that is a bomb."""

BUNDLE_RATIO_FREE = GIB
"""Up to this size a high ratio is fine: states that hardly change pack well."""

BUNDLE_ENTRY_MAX = 64 * MIB
"""One snapshot, log entry or file that is taken into memory at once; a longer one is passed over."""

BUNDLE_KEPT_MAX = 16 * MIB
"""Of what is unpacked to verify a bundle, so much stays in memory until it is taken in."""

BUNDLE_EVENTS_MAX = 100_000
"""Model and tool calls that are read out of a bundle's events: each is remembered, to be read once."""

BUNDLE_PROBLEMS_MAX = 1_000
"""Problems of one bundle that are told; a damaged file may have one on each line."""

# --- capturing a bundle --------------------------------------------------------------------

CAPTURE_ITEMS_KNOWN_MAX = 500_000
"""Items of a session that a capture remembers as written (100 bytes each); beyond, some are written twice."""

CAPTURE_SESSIONS_MAX = 1_000
"""Sessions in one snapshot: a session that is among its own children must not be endless."""

CAPTURE_SKIPPED_MAX = 10_000
"""Files left out that a manifest names one by one; the rest are counted."""

CAPTURE_CACHE_BYTES = 8 * MIB
"""Items held in memory while snapshots are written out: most are in the next one again."""

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

# --- OpenWOP ----------------------------------------------------------------------------

OPENWOP_BUNDLE_MAX = 8_000_000
"""A whole bundle, uncompressed: below 8 MB however one counts a megabyte."""

OPENWOP_BUNDLE_MIN = 500_000
"""Of a cap that is set lower: an error with its stack, notes and a first event have to fit."""

OPENWOP_POLL_S = 30.0
"""The longest that an event poll waits; whoever wants to wait longer asks again."""

OPENWOP_LIST_MAX = 200
"""Runs in one answer of `GET /v1/runs`; the rest follows with `after`."""

OPENWOP_REQUEST_MAX = 256 * KIB
"""The body of a request: an annotation, or a demo workflow's inputs."""

OPENWOP_PART_MAX = 1_000_000
"""What goes in, what comes out, the variables and all notes of a run, each: the events need the room."""

OPENWOP_FILE_MAX = 64 * MIB
"""A bundle is read whole; hosts may raise their cap, but one of this size is no report of one run."""

# --- OpenTelemetry ----------------------------------------------------------------------

OTLP_LINE_MAX = 96 * MIB
"""A line of a file, or a file that is one document: decoded whole. Two bodies of `BODY_MAX` still fit as base64."""

OTLP_BRACKETS_MAX = 4_000_000
"""Objects and arrays of one line: `[[],[],…` costs thirty times its size when it is decoded."""

OTLP_PARTS_MAX = 2_000_000
"""Messages inside a binary request: an empty one is two bytes of it, and hundreds in memory."""

OTLP_SPANS_MAX = 100_000
"""Spans, or log records, of one request: exporters send some hundred, and whoever sends more at once makes all others wait."""

OTLP_TRACES_MAX = 20_000
"""Traces of one request: each becomes a run. Collectors send batches of some thousand spans."""

OTLP_LINE_BYTES = 4 * MIB
"""What is written as one line, unless a single span is longer."""

OTLP_LINE_SPANS = 512
"""Spans of a line that is written: as many as the SDKs send at once."""

OTLP_ATTRIBUTES_MAX = 20_000
"""Attributes of one span that are read: messages are told key by key, and become one body."""

OTLP_LINES_ASIDE_MAX = 10_000
"""Log records of a trace that tell messages of its spans: held until those are read."""

# --- the store --------------------------------------------------------------------------

PIECE_MIN = 64
"""A body piece shorter than this is merged into its neighbour: its row would outweigh it."""

PIECES_MAX = 20_000
"""Pieces of one body; one that would have more is kept whole."""

RETENTION_AGE_S = 7 * 24 * 3600
"""A week of runs: long enough to compare with last week's good one, short enough to forget."""

RETENTION_BODY_BYTES = 256_000_000
"""Bodies, as stored: some tens of GB of requests as they were sent."""

# --- access and notes -------------------------------------------------------------------

KEYS_MAX = 1_000
"""Keys of one home, dead ones included: a person can still look through them."""

KEYS_FILE_MAX = 4 * MIB
"""Of keys.json: many times what `KEYS_MAX` keys need."""

KEY_NAME_MAX = 100
"""Characters of a key's name."""

NOTE_MAX = 16 * KIB
"""Characters of a note: what somebody says about a run, not an attachment to it."""

NOTES_MAX = 10_000
"""Notes of one run: a program that writes them must not fill the store."""

# --- answers ----------------------------------------------------------------------------

PREVIEW_MAX = 200
"""Characters of a body that are shown before one asks for it."""

TERM_PASSED_S = 0.1
"""Before `vestige run` hands SIGTERM on: who got it by itself has written where it stood, and is gone."""

END_LINE_S = 0.3
"""What `vestige run` may take at its end to say how it went: a prompt that comes later feels slow."""

LIST_MAX = 20
"""Runs that `list` shows unless told otherwise."""

LIST_CHECKED_MAX = 20
"""Runs that `list` examines by itself: those of its first page."""

LIST_CHECKED_S = 0.3
"""For all of them: a list is looked at often, and whoever wants more asks `check`."""

LIST_CHECKED_ROWS = 200
"""Spans and log lines of such a run: what is begun is ended, and more could take longer than all may."""

LIST_CHECKED_BYTES = MIB
"""Its bodies, for the same reason: checks parse them."""

SHOW_LINES_MAX = 400
"""Lines of the easy view unless told otherwise; the rest is one command away."""

SHOW_ROWS_MAX = 5_000
"""Spans and log lines of a run in one answer over HTTP: a few MB. The next page is linked."""

LABEL_MAX = 120
"""Characters that say what a span did, in a tree or a waterfall: one line of a page."""

LABELLED_ARGUMENTS_MAX = 5_000
"""Tool calls of one outline whose arguments are read for their labels: some tens of milliseconds."""

OUTLINE_ROWS_MAX = 200_000
"""Spans, and as many log lines, of one answer of `outline`; a cursor goes on."""

OUTLINE_MESSAGE_MAX = 2_000
"""Characters of a log line in an outline: a page shows it on one line."""

TRANSCRIPT_ITEMS_MAX = 1_000
"""Items of one answer of `transcript`; a cursor goes on."""

TRANSCRIPT_ITEMS = 200
"""Unless told otherwise: some screens of a page."""

TRANSCRIPT_TEXT_MAX = 4_000
"""Characters of one message, argument or result in a transcript; the whole is one call away."""

EXPRESSION_S = 20.0
"""A search with a regular expression: the bounds of rows and bytes are reached in less, unless the
expression itself would take for ever."""

PRICES_MAX = 1_000
"""Models that config.toml gives a price: it is read whole, and by hand."""

PRICE_MAX = 1e6
"""Dollars for a million tokens, in config.toml: more is a slip of the unit."""

SUM_MAX = 2**62
"""Of what the store adds up: a database's numbers end at 2**63, and one that is beyond it would keep
the whole batch out, for ever."""

SECONDS_MAX = 1e9
"""Of an age or a moment that is asked for: thirty years, more than any store holds."""

FILTER_MAX = 2_000
"""Characters of a filter of runs: a person types it."""

FILTER_TERMS_MAX = 20
"""Terms of it: each may look into every run."""

# --- the server -------------------------------------------------------------------------

HTTP_THREADS = 8
"""Threads that answer: the interpreter runs one at a time, so more would only hold memory."""

RESTART_PAUSE_MAX_S = 4.0
"""The longest pause before a server looks again whether somebody collects: what readers may lag."""

HTTP_WAITING_MAX = 1_000
"""Questions that wait for a thread; further ones are told to come again (503)."""

HTTP_KEY_WAITING_MAX = 250
"""The same for one key: its further questions are refused (429), and other keys do not notice."""

HTTP_HEAVY_BUDGET_S = 60.0
"""Seconds of a thread that one key may spend at once on queries and searches of its own."""

HTTP_HEAVY_REFILL = 0.5
"""Seconds of that budget that come back each second."""

HTTP_KEYS_REMEMBERED = 256
"""Keys whose budget is remembered after they have no request under way; those with a full one are forgotten."""

HTTP_CONNECTIONS_MAX = 2_000
"""Open connections: each holds a file and some memory."""

HTTP_REFUSED_MAX = 64
"""Connections beyond that, which are told so when they ask; further ones are closed at once."""

HTTP_HEADER_BYTES_MAX = 32 * KIB
"""Of a request's line and headers together. Browsers send a few."""

HTTP_HEADER_S = 10.0
"""For a request's headers to arrive: who is slower holds a connection for nothing."""

HTTP_BODY_S = 30.0
"""For a request's body to arrive, and longer for what comes at `HTTP_BODY_RATE_MIN`."""

HTTP_BODY_RATE_MIN = 16 * KIB
"""Bytes a second: who sends more slowly holds a connection more than uses it."""

LOGIN_BODY_MAX = 4 * KIB
"""A form with one key in it."""

NOTE_BODY_MAX = 128 * KIB
"""A note as JSON: its text may grow sixfold when it is escaped."""

ARGUMENT_MAX = 16 * KIB
"""Characters of one argument in a URL: a long SQL query, or a pasted log line."""

HTTP_SHUTDOWN_S = 15
"""How long requests under way may take once the server is told to end."""

TENANTS_OPEN_MAX = 4
"""Tenants to whose runs a thread keeps a connection; the one it opened first goes for another."""

FINDINGS_WAITING_MAX = 1_000
"""Findings that wait to be kept while somebody else writes to the store."""

GZIP_MIN = KIB
"""A shorter answer fits a packet as it is."""

GZIP_LEVEL = 4
"""JSON shrinks to a tenth at any level; this one takes half the time of the usual."""

LIVE_CLIENTS_MAX = 100
"""Streams of `/api/v1/live` at once; each asks the store whenever it changes."""

LIVE_KEY_CLIENTS_MAX = 30
"""Of those, streams of one key: one tenant's pages must not lock out the others'."""

LIVE_MESSAGE_MAX = 2_000
"""Characters of a log line in a live event; the whole line is in the run."""

METRICS_KEPT_S = 5.0
"""Counting a large store takes some tens of milliseconds: not at each look of a hasty scraper."""

LIVE_BATCH = 500
"""Rows of each kind that a stream reads at a time: what it holds while its client is slow."""

LIVE_HEARTBEAT_S = 15.0
"""A sign of life in a silent stream: proxies close what is silent for a minute."""

LIVE_SEND_S = 30.0
"""A client that takes nothing for so long is let go; it can resume where it was."""

CLOSES_KEPT = 100_000
"""Ends of spans that a stream can be resumed from; an older cursor is told to begin anew."""

# --- one HTML file ------------------------------------------------------------------------

EXPORT_BODY_BYTES_MAX = MIB
"""A longer body is left out of an exported page: what one reads in it is far shorter."""

EXPORT_BYTES_MAX = 64 * MIB
"""Of answers in an exported page, before they are compressed: browsers open what comes of it."""

EXPORT_SPANS_MAX = 20_000
"""Spans whose details are in an exported page, failed ones first; the others are in its tree."""

EXPORT_CALLS_MAX = 500
"""Model calls of which an exported page also has the prompt's parts and what changed in it."""

EXPORT_WHY_SPANS_MAX = 1_000
"""In a longer run only spans that did not end well are asked why: each answer has all findings."""

EXPORT_PAGES_MAX = 1_000
"""Pages of an outline or a transcript that are taken into an exported page."""

TIME_MAX_NS = 2**62
"""The last moment that a record can have, in the year 2116. Files claim times far beyond."""
