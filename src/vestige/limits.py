"""Limits, each with its reason.

Sizes are in bytes unless the name has another unit. A limit protects the agent (memory,
disk), the collector (memory), or the reader (a screen, a context window).
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# --- one record -----------------------------------------------------------------------

BODY_MAX = 32 * MIB
"""Bytes of a body that are stored, with a marker for the rest. Providers refuse larger requests."""

BODY_INLINE_MAX = 256 * KIB
"""A longer body is written to its own file, so that a line is cheap to write and to skip."""

BODY_NODES_MAX = 1_000_000
"""Values of one object that is passed as a body. Shared references can make a small object
endless."""

PARTIAL_MAX = 4 * MIB
"""Bytes of an unfinished response that are saved, in case its process is killed."""

PARTIAL_INTERVAL_S = 0.02
"""Shortest time between two saves of an unfinished response. Saving takes about 1 % of the time."""

PARTIAL_PAUSE_S = 1.0
"""Longest time between two saves. A long response, which takes over 50 ms, is saved less often."""

BODY_CHUNK = 128 * KIB
"""Chunk size in which a long body is encoded, redacted and written. It bounds the memory."""

LINE_MAX = 4 * MIB
"""Longest line of a journal. An inline body may grow sixfold when it is escaped."""

ATTRIBUTE_VALUE_MAX = 32 * KIB
"""Characters of an attribute value. Attributes are for queries; longer values belong in a body."""

ATTRIBUTES_MAX = 256
"""Attributes of one record. A larger dictionary belongs in a body."""

NAME_MAX = 512
"""Characters of a name, type, component or attribute key."""

MESSAGE_MAX = 64 * KIB
"""Characters of a log message."""

PRINT_MAX = 64 * KIB
"""Characters of one print that are recorded. Redacting more would slow down the program."""

PRINTS_AT_ONCE = 1_000
"""Prints of a stream that are recorded at any rate. After that, `PRINTS_PER_S` applies."""

PRINTS_PER_S = 100
"""Prints per second. Printing takes a few microseconds and recording ten times as long, so a
program that prints as fast as it can must not be slowed down."""

NESTING_MAX = 32
"""Depth to which a nested value is rendered. A marker replaces deeper values."""

STACK_MAX = 48 * KIB
"""Characters of a stack trace. The first and last frames are stored; the middle of a deep recursion
is not."""

OPEN_SPANS_TRACKED_MAX = 10_000
"""Open spans that are remembered for the crash record. A program that never ends spans must not
leak."""

CONVERSATIONS_TRACKED_MAX = 1_000
"""Runs whose conversation is remembered, for links between conversations."""

OPEN_SPANS_NAMED_MAX = 20
"""Open spans that a crash record names. The collector knows all of them."""

SILENCE_S = 30.0
"""Seconds without a record after which a process dumps its stacks. The interval doubles each time,
so that a process that waits for days dumps them about twenty times."""

SNAPSHOT_STACKS_MAX = 100
SNAPSHOT_FRAMES_MAX = 100
"""Distinct stacks of threads and tasks in a snapshot, and the innermost frames of each."""

SNAPSHOT_RUNS_MAX = 8
"""Open runs of a process that get its stack snapshot."""

REQUESTED_RUNS_MAX = 64
"""Runs whose requested tool calls are remembered, to link each tool to the model call that
requested it."""

COUNTED_SPANS_MAX = 4096
"""Spans whose model calls are counted, to record each call of a framework once."""

FRAMEWORK_SPANS_MAX = 10_000
"""Open spans of one framework. Of a framework that never reports ends, the oldest are dropped."""

REQUESTED_CALLS_MAX = 256
"""Requested tool calls of one run that are remembered: those of its last turns."""

REQUESTED_ARGUMENTS_MAX = 64 * KIB
"""Longer arguments are not compared, so that starting a tool stays cheap. Its id still identifies
the call."""

SECRET_LENGTH_MAX = 16 * KIB
"""The longest secret (a PEM block) that is recognized across the chunks of a long body."""

HEADER_SECRETS_MAX = 256
"""Secrets of headers that a recorder registers automatically: tokens are renewed, cookies change.
Further secrets are masked in their header only, and counted."""

# --- the journal ------------------------------------------------------------------------

JOURNAL_ROTATE_BYTES = 64 * MIB
"""Size at which a journal file is closed: small enough to be deleted soon, large enough to be
rare."""

JOURNAL_TOTAL_MAX = 2 * GIB
"""Size of all journals of a home. Above it (no collector for weeks) the oldest finished ones are
deleted."""

JOURNAL_RESERVE_BYTES = 16 * KIB
"""Disk space that each process reserves for its last records, in case the disk is full."""

BACKLOG_MAX = MIB
"""Records that wait in memory until the disk is writable again. Further records are dropped and
counted."""

BACKLOG_LAST_MAX = 8 * KIB
"""The newest of these records, which are written into the reserve at the end."""

BACKLOG_RUNS_MAX = 256
"""Runs whose dropped records are counted separately. Those of further runs are counted together."""

FSYNC_INTERVAL_S = 1.0
"""Interval of fsync: the most that a power failure can lose. A killed process loses nothing."""

FORK_WAIT_S = 0.05
"""Seconds that a fork waits for the journal's thread to end, so that the process has one thread
less."""

# --- the collector ----------------------------------------------------------------------

BATCH_BYTES = 8 * MIB
"""Journal bytes in one transaction. The collector's memory is a small multiple of it."""

TICK_S = 0.25
"""Seconds between two checks of the journals: near real time, and almost no work when idle."""

GUARD_TICK_S = 0.01
"""The same while a limit of cost is enforced: a program must stop before its next model call."""

TICK_PAUSE_MAX_S = 30.0
"""The longest pause of a collector whose store is not writable, before it tries again."""

CATCH_UP_WAIT_S = 2.0
"""Seconds that a reading command waits for a running collector to reach the present."""

RESTARTS_MAX = 5
"""Restarts of a supervised collector before it gives up. The journals lose nothing."""

RESTART_BACKOFF_S = 0.5
"""The first pause before such a restart. It doubles each time."""

DRAIN_S = 5.0
"""Seconds that an exiting program waits for its collector to store the last records."""

PRUNE_INTERVAL_S = 300.0
"""Between two retention passes of a collector."""

PRUNE_READ_INTERVAL_S = 3600.0
"""Reading commands apply the retention too, if no process did so for this long."""

PRUNE_RUNS_MAX = 500
"""Runs that one retention pass deletes, the oldest first. The next tick continues."""

REMOTE_SILENT_S = 24 * 3600.0
"""Seconds after which a writer on another machine counts as interrupted. It is long because a live
writer that waits for a person overnight sends nothing either. Later records correct it."""

IMPORT_BATCH = 20_000
"""Records of an import in one transaction; fewer if their bodies are large."""

LOG_PAGES = 4_000
"""Pages of SQLite's write-ahead log before a checkpoint: 16 MB. Pages of an index change with every
batch, and are written only once that way."""

# --- shipping ----------------------------------------------------------------------------------

PARCEL_PACKED_MAX = 40 * MIB
"""Compressed size of one request. The longest body fits even if it does not compress."""

PARCEL_MAX = 64 * MIB
"""Uncompressed size of one request: a body of `BODY_MAX` as base64, and some lines. More is a zip
bomb."""

PARCEL_FRAMES_MAX = 100
"""Compressed frames in one request. Each costs a copy of everything after it."""

PARCEL_BYTES = 4 * MIB
"""Bytes that `ship` puts into one request, unless a single body is longer: fast to send, and to
send again."""

PARCEL_PART_BYTES = 512 * KIB
"""Line size in which a long body is sent, so that no line is long and each is parsed by itself."""

INGEST_WAITING_MAX = 128 * MIB
"""Compressed requests in memory, of all keys. Beyond it the server answers 503 and asks to
retry."""

INGEST_REQUESTS_S = 50.0
"""Average requests per second of one key. `ship` sends a few, each with thousands of lines."""

INGEST_BURST = 100
"""Requests that one key may send at once after a pause, e.g. when a server is back."""

INGEST_KEY_WAITING_MAX = 64 * MIB
"""Compressed requests in memory of one key, so that other keys have room."""

INGEST_KEY_REQUESTS_MAX = 100
"""Requests of one key that are not answered yet."""

SEGMENTS_WAITING_MAX = 100_000
"""Segments that wait for the loader. Beyond it the server answers 503 and asks to retry."""

SEGMENTS_WAITING_BYTES_MAX = 64 * 1024 * MIB
"""Their compressed size."""

PARCEL_RECORDS_MAX = 150_000
"""Records of one request. It is stored in one transaction, for which others wait. `ship` sends
fewer, and fewer still after a refusal."""

PARCEL_RUNS_MAX = 5_000
"""Runs, and writers, of one request. Each has its own rows, which cost far more than a record."""

REMOTE_SEEN_MAX = MIB
"""Characters of the set of seqs that a remote writer has sent: about fifty thousand gaps. A journal
has almost none, and the set is read and written with every request."""

SHIP_TICK_S = 0.5
"""Seconds between two checks of the journals when everything is sent: near real time, and almost no
work."""

SHIP_PAUSE_S = 0.5
"""The first pause after a failure. It doubles each time, with jitter, so that a fleet does not
return at once."""

SHIP_PAUSE_MAX_S = 30.0
"""The longest such pause: a server that is back is found within half a minute."""

SHIP_TIMEOUT_S = 60.0
"""Seconds for one response of the server, which writes to disk first and may be busy."""

SHIP_TRIES = 6
"""Attempts of `ship --once` before it gives up: about 15 seconds, with the pauses."""

SHIP_REFUSED_MAX = 1_000
"""Runs of another tenant that `ship` remembers not to send."""

COPY_MAX = GIB
"""Size up to which a store in a read-only home is copied, to include its journals. A larger store
is read as it is."""

OUTBOX_MAX = GIB
"""Finished journals and long bodies that are stored for `ship` after the collector is done with
them. Beyond it (no ship for weeks) the oldest are deleted and counted."""

# --- runs of other tools ------------------------------------------------------------------

EVENT_LINE_MAX = 16 * MIB
"""A line of another tool's file. Longer lines are skipped, which bounds the memory."""

FOREIGN_FILE_MAX = 256 * MIB
"""A file that must be read completely (an export in one JSON document)."""

FOREIGN_VALUES_MAX = 16_000_000
"""Commas in such a file. `[1,1,1,...` takes fifty times its size when it is decoded."""

DOCUMENT_MESSAGES_MAX = 1_000_000
"""Messages in one JSON document. Each takes some 400 bytes to find, however short it is."""

DECOMPRESSED_FILE_MAX = 4 * GIB
"""Bytes of a `.gz` or `.zst` file when it is decompressed. More is taken for a bomb."""

FOREIGN_RUNS_MAX = 100_000
"""Runs of one folder. A folder with more is not a folder of runs."""

FIRST_PAGE_EVENTS = 500
"""Events of a long foreign run that its first page is built from. A page has at most 8,000 tokens,
and a line takes about twenty. Further pages read all events."""

OVERVIEW_ALL_MAX = 16 * MIB
"""A longer foreign file is summarized by its beginning: reading all of it takes many seconds."""

FIRST_PAGE_MIN = 4 * MIB
"""A shorter file is read completely: that is fast, and the result is better."""

PROBLEMS_MAX = 1_000
"""Problems of one run that are stored. A damaged file may have one on each line."""

FOREIGN_SILENCE_S = 600.0
"""Seconds of silence after which a foreign run that is `running` but not locked counts as dead. A
slow model call has no event until it ends."""

# --- debug bundles ------------------------------------------------------------------------

BUNDLE_MANIFEST_MAX = 8 * MIB
"""Size of a manifest. One with thousands of skipped files still fits."""

BUNDLE_NESTING_MAX = 200
"""Depth of JSON in a bundle. Deeper JSON is an attack on a recursive reader."""

BUNDLE_MEMBERS_MAX = 100_000
"""Members of a zip. Each costs memory before anything is read."""

BUNDLE_DIRECTORY_MAX = 32 * MIB
"""Size of a zip's central directory."""

BUNDLE_PIECES_MAX = 5_000_000
"""Bodies of a bundle and the parts they consist of. Each costs memory before any is read."""

BUNDLE_NAME_MAX = 1_024
"""Bytes of a member's name. File systems do not accept longer paths."""

BUNDLE_TOTAL_MAX = 16 * GIB
"""Uncompressed size of a bundle. It is never unpacked at once, but it must be read."""

BUNDLE_RATIO_MAX = 200
"""Compression ratio of a bundle above `BUNDLE_RATIO_FREE`. More is a zip bomb."""

BUNDLE_RATIO_FREE = GIB
"""Up to this size any ratio is accepted: states that hardly change compress well."""

BUNDLE_ENTRY_MAX = 64 * MIB
"""Maximum size of a snapshot, log entry or file in memory. A longer one is skipped."""

BUNDLE_MEMORY_MAX = 16 * MIB
"""Data from verifying a bundle that stays in memory until it is imported."""

BUNDLE_EVENTS_MAX = 100_000
"""Model and tool calls that are read from a bundle's events. Each is remembered, so that it is read
once."""

BUNDLE_PROBLEMS_MAX = 1_000
"""Problems of one bundle that are reported. A damaged file may have one on each line."""

# --- capturing a bundle --------------------------------------------------------------------

CAPTURE_ITEMS_KNOWN_MAX = 500_000
"""Items of a session that a capture remembers as written (100 bytes each). Beyond it some are
written twice."""

CAPTURE_SESSIONS_MAX = 1_000
"""Sessions in one snapshot. A session that is among its own children must not be endless."""

CAPTURE_SKIPPED_MAX = 10_000
"""Skipped files that a manifest names. Further files are counted."""

CAPTURE_CACHE_BYTES = 8 * MIB
"""Items in memory while snapshots are written: most are in the next snapshot again."""

# --- artifact bundles -------------------------------------------------------------------

ARTIFACT_FILES_MAX = 1_000_000
"""Files of one bundle that are read. Known suites write about ten thousand."""

ARTIFACT_JSON_MAX = 16 * MIB
"""A JSON file is parsed up to this size, and only hashed above it. Parsing takes ten times its
size."""

ARTIFACT_BUNDLE_MAX = 256 * MIB
"""Size of `bundle.json`. It has a line per file, and is read completely."""

ARTIFACT_LINE_MAX = 4 * MIB
"""Maximum size of a line of a trace or another `*.jsonl`, which is read into memory."""

ARTIFACT_ZIP_BYTES_MAX = 16 * GIB
"""Uncompressed size of an archive that is hashed. Nothing is stored, but it takes time."""

ARTIFACT_FINDINGS_MAX = 100
"""Findings of one rule in one file. Further findings are counted."""

ARTIFACT_BODY_MAX = 4 * MIB
"""A larger file of a bundle is imported without its content, and stays in the bundle."""

ARTIFACT_CASES_LISTED_MAX = 5_000
"""Larger suites have one trace event for a passing case, and list passing cases by file: 60,000
passing tests then take about 20 MB instead of 95."""

JUNIT_MAX = 64 * MIB
"""Size of an XML report, which is read into memory."""

# --- OpenWOP ----------------------------------------------------------------------------

OPENWOP_BUNDLE_MAX = 8_000_000
"""Uncompressed size of a bundle: below 8 MB and 8 MiB."""

OPENWOP_BUNDLE_MIN = 500_000
"""The lowest limit that can be set: an error with its stack, notes and a first event must fit."""

OPENWOP_POLL_S = 30.0
"""The longest time that an event poll waits. Clients can poll again."""

OPENWOP_LIST_MAX = 200
"""Runs in one response of `GET /v1/runs`. `after` returns the rest."""

OPENWOP_REQUEST_MAX = 256 * KIB
"""The body of a request: an annotation, or a demo workflow's inputs."""

OPENWOP_PART_MAX = 1_000_000
"""Size of the inputs, the outputs, the variables and all notes of a run, each: the events need the
room."""

OPENWOP_FILE_MAX = 64 * MIB
"""A bundle is read completely. Hosts may raise their limit, but a larger file is not a report of
one run."""

# --- OpenTelemetry ----------------------------------------------------------------------

OTLP_LINE_MAX = 96 * MIB
"""A line of a file, or a file with one document, which is decoded completely. Two bodies of
`BODY_MAX` fit as base64."""

OTLP_BRACKETS_MAX = 4_000_000
"""Objects and arrays of one line. Decoding `[[],[],…` takes thirty times its size."""

OTLP_PARTS_MAX = 2_000_000
"""Messages inside a binary request. An empty one takes two bytes, and hundreds in memory."""

OTLP_SPANS_MAX = 100_000
"""Spans, or log records, of one request. Exporters send a few hundred; more at once makes all
others wait."""

OTLP_TRACES_MAX = 20_000
"""Traces of one request. Each becomes a run. Collectors send batches of a few thousand spans."""

OTLP_LINE_BYTES = 4 * MIB
"""Bytes that are written as one line, unless a single span is longer."""

OTLP_LINE_SPANS = 512
"""Spans that are written as one line: as many as the SDKs send at once."""

OTLP_ATTRIBUTES_MAX = 20_000
"""Attributes of one span that are read. Messages in flattened attributes become one body."""

OTLP_PENDING_LOGS_MAX = 10_000
"""Log records of a trace with messages of its spans, which wait until those spans are read."""

CALL_BODIES_MAX = 2_000
"""Model calls, and log records with their bodies, inside one span, that are matched with each
other. More of them stay log records, because they are matched again after each request."""

OTLP_PENDING_LOG_BYTES_MAX = 64 * MIB
"""Characters of the bodies of these log records."""

# --- the store --------------------------------------------------------------------------

PIECE_MIN = 64
"""A shorter part of a body is merged into the next one: its row would be larger than the part."""

PIECES_MAX = 20_000
"""Parts of one body. A body that would have more is stored as one."""

RETENTION_AGE_S = 7 * 24 * 3600
"""A week of runs: long enough to compare with a good run of last week."""

RETENTION_BODY_BYTES = 256_000_000
"""Stored size of bodies: tens of GB of requests as they were sent."""

# --- access and notes -------------------------------------------------------------------

KEYS_MAX = 1_000
"""Keys of one home, including revoked ones: a person can still read the list."""

KEYS_FILE_MAX = 4 * MIB
"""Size of keys.json: many times the size of `KEYS_MAX` keys."""

KEY_NAME_MAX = 100
"""Characters of a key's name."""

NOTE_MAX = 16 * KIB
"""Characters of a note. A note is a comment, not an attachment."""

NOTES_MAX = 10_000
"""Notes of one run: a program that writes them must not fill the store."""

# --- the investigator -------------------------------------------------------------------

EXPLAIN_TOKENS = 25_000
"""Tokens of all requests and answers of one investigation. A cause takes about half of them."""

EXPLAIN_TOKENS_MIN = 8_000
"""The lowest budget: two requests, one of them with the results of a query, must fit."""

EXPLAIN_COST_USD = 1.0
"""The highest cost of one investigation, where the model has a known price."""

EXPLAIN_TIMEOUT_S = 120.0
"""Seconds for one complete answer of the model."""

EXPLAIN_TRIES = 4
"""Attempts of a request while the provider is busy."""

EXPLAIN_RETRY_MAX_S = 30.0
"""The longest pause between two attempts, whatever the provider asks for."""

EXPLAIN_REPLY_MAX = 4 * MIB
"""Bytes of one answer. The longest that is asked for has some kilobytes."""

# --- output -----------------------------------------------------------------------------

PREVIEW_MAX = 200
"""Characters of a body that are shown before it is opened."""

SIGTERM_DELAY_S = 0.1
"""Seconds before `vestige run` forwards SIGTERM. A process that received the signal itself has
recorded its stacks and exited by then."""

END_LINE_S = 0.3
"""Seconds that `vestige run` may take at its end to print the outcome. A later prompt feels
slow."""

LIST_MAX = 20
"""Runs that `list` shows by default."""

LIST_CHECKED_MAX = 20
"""Runs that `list` checks automatically: those of its first page."""

LIST_CHECKED_S = 0.3
"""Seconds for all of these checks. A list is read often, and `check` does the rest."""

LIST_CHECKED_ROWS = 200
"""Spans and log records of a run that `list` checks. A check that has begun is not interrupted, and
a larger run could exceed the time."""

LIST_CHECKED_BYTES = MIB
"""Size of its bodies, for the same reason: checks parse them."""

SHOW_LINES_MAX = 400
"""Lines of the default view. Another command shows the rest."""

SHOW_ROWS_MAX = 5_000
"""Spans and log records of a run in one HTTP response: a few MB. It links to the next page."""

LABEL_MAX = 120
"""Characters of a span's label in a tree or a waterfall: one line of a page."""

LABELLED_ARGUMENTS_MAX = 5_000
"""Tool calls of one outline whose arguments are read for labels: tens of milliseconds."""

OUTLINE_ROWS_MAX = 200_000
"""Spans, and as many log records, of one response of `outline`. A cursor continues."""

OUTLINE_MESSAGE_MAX = 2_000
"""Characters of a log line in an outline: a page shows it on one line."""

TRANSCRIPT_ITEMS_MAX = 1_000
"""Items of one response of `transcript`. A cursor continues."""

TRAJECTORY_SPANS_MAX = 20_000
"""Spans of one part of a run's transcript. The steps of a longer run are built part by part: the
texts of 400,000 events at once take more than a gigabyte."""

OVERVIEW_SPANS_MAX = 16_000
"""Spans of a run whose steps `overview` builds. Of a longer run it builds those of both ends, half
of this number each, and names the others."""

TRANSCRIPT_ITEMS = 200
"""Items by default: a few screens."""

TRANSCRIPT_TEXT_MAX = 4_000
"""Characters of one message, argument or result in a transcript. Another call returns all of it."""

TRANSCRIPT_CODE_MAX = 32_000
"""Characters of one message in a transcript as data, so that generated code is complete."""

EXPRESSION_S = 20.0
"""Seconds for a search with a regular expression. The limits of rows and bytes are reached sooner,
unless the expression itself takes too long."""

PRICES_MAX = 1_000
"""Models with a price in config.toml, which is written by hand and read completely."""

PRICE_MAX = 1e6
"""Dollars per million tokens in config.toml. A higher price is a wrong unit."""

SUM_MAX = 2**62
"""Largest sum that the store computes. A database's integers end at 2**63, and a larger value would
make the batch fail each time."""

SECONDS_MAX = 1e9
"""Longest age in a query: thirty years, longer than any store."""

FILTER_MAX = 2_000
"""Characters of a filter of runs, which a person types."""

FILTER_TERMS_MAX = 20
"""Terms of a filter. Each may search every run."""

# --- the server -------------------------------------------------------------------------

HTTP_THREADS = 8
"""Threads that handle requests. The interpreter runs one at a time, so more would only take
memory."""

RESTART_PAUSE_MAX_S = 4.0
"""The longest pause before a server checks again whether a collector is running. Readers may lag by
it."""

HTTP_WAITING_MAX = 1_000
"""Requests that wait for a thread. Further requests get 503 and may retry."""

HTTP_KEY_WAITING_MAX = 250
"""Waiting requests of one key. Its further requests get 429, and other keys are not affected."""

HTTP_HEAVY_BUDGET_S = 60.0
"""Thread seconds that one key may spend at once on its own queries and searches."""

HTTP_HEAVY_REFILL = 0.5
"""Seconds of that budget that are restored each second."""

HTTP_KEYS_REMEMBERED = 256
"""Keys whose budget is remembered after their last request. Those with a full budget are
forgotten."""

HTTP_CONNECTIONS_MAX = 2_000
"""Open connections. Each takes a file descriptor and some memory."""

HTTP_REFUSED_MAX = 64
"""Connections beyond that limit that get an error response. Further ones are closed at once."""

HTTP_HEADER_BYTES_MAX = 32 * KIB
"""Size of a request's line and headers. Browsers send a few kB."""

HTTP_HEADER_S = 10.0
"""Seconds for the headers of a request to arrive. A slower client only occupies a connection."""

HTTP_BODY_S = 30.0
"""Seconds for the body of a request to arrive; longer if it arrives at `HTTP_BODY_RATE_MIN`."""

HTTP_BODY_RATE_MIN = 16 * KIB
"""Bytes per second. A slower client mostly occupies a connection."""

LOGIN_BODY_MAX = 4 * KIB
"""Size of the login form, which has one key."""

NOTE_BODY_MAX = 128 * KIB
"""A note as JSON: its text may grow sixfold when it is escaped."""

ARGUMENT_MAX = 16 * KIB
"""Characters of one argument in a URL: a long SQL query, or a pasted log line."""

HTTP_SHUTDOWN_S = 15
"""Seconds for open requests after the server has been asked to stop."""

GRPC_CALLS_MAX = 200
"""OTLP/gRPC calls at a time. Further calls are refused, and exporters repeat them."""

GRPC_SHUTDOWN_S = 2.0
"""Seconds for open OTLP/gRPC calls after the server has been asked to stop."""

TENANTS_OPEN_MAX = 4
"""Tenants for whose runs a thread has an open connection. The oldest is closed for another."""

FINDINGS_WAITING_MAX = 1_000
"""Findings that wait to be stored while another process writes to the store."""

GZIP_MIN = KIB
"""A shorter response fits a packet uncompressed."""

GZIP_LEVEL = 4
"""JSON shrinks to a tenth at any level. This level takes half the time of the default."""

LIVE_CLIENTS_MAX = 100
"""Open streams of `/api/v1/live`. Each reads the store whenever it changes."""

LIVE_KEY_CLIENTS_MAX = 30
"""Open streams of one key: one tenant's pages must not block other tenants."""

LIVE_MESSAGE_MAX = 2_000
"""Characters of a log message in a live event. The run has the complete message."""

METRICS_CACHE_S = 5.0
"""Seconds that metrics are cached. Counting a large store takes tens of milliseconds."""

LIVE_BATCH = 500
"""Rows of each kind that a stream reads at a time, which it buffers while its client is slow."""

LIVE_HEARTBEAT_S = 15.0
"""Seconds between heartbeats of a silent stream. Proxies close a stream after a silent minute."""

LIVE_SEND_S = 30.0
"""Seconds after which a client that reads nothing is disconnected. It can resume."""

CLOSES_STORED_MAX = 100_000
"""Ends of spans that a stream can be resumed from. A client with an older cursor must start
again."""

# --- one HTML file ------------------------------------------------------------------------

EXPORT_BODY_BYTES_MAX = MIB
"""A longer body is left out of an exported page."""

EXPORT_BYTES_MAX = 64 * MIB
"""Uncompressed size of the data in an exported page. Browsers can open the result."""

EXPORT_SPANS_MAX = 20_000
"""Spans with details in an exported page, failed ones first. The others are only in its tree."""

EXPORT_CALLS_MAX = 500
"""Model calls of an exported page that include the prompt's parts and its changes."""

EXPORT_WHY_SPANS_MAX = 1_000
"""In a longer run, only failed spans include the explanation, because each contains all
findings."""

EXPORT_PAGES_MAX = 1_000
"""Pages of an outline or a transcript in an exported page."""

TIME_MAX_NS = 2**62
"""The last time that a record can have, in the year 2116. Files contain times far beyond it."""

PROXY_CONNECTIONS_MAX = 2000
"""Connections that the recording proxy serves at once. More wait to be accepted."""

PROXY_PENDING_MAX = 256 * MIB
"""Bytes that wait to be recorded by the proxy. Beyond, a connection is relayed unrecorded."""

INFERRED_TOOLS_MAX = 1000
"""Tool calls that are remembered to find their results in later requests."""

INFERRED_CONVERSATIONS_MAX = 1000
"""Conversations of one program that are kept apart."""
