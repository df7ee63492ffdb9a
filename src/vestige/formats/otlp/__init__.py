"""OpenTelemetry (OTLP): traces and logs, from OTLP/JSON files and OTLP/HTTP requests.

Reading a file:    detect.py (index of its traces), read.py (one trace as a run)
Reading a request: export_request.py, protobuf.py (binary requests)
Other tools:       exports/ (Phoenix, MLflow, Langfuse, Patronus), converted to requests
Parsing:           any_value.py (plain values), parse_span.py (spans and log records)
Mapping:           to_records.py, log_records.py, vestige_spans.py (spans that Vestige exported),
                   root_span.py (the span that is the run), span_types.py (types and names),
                   span_content.py and chat_messages.py (inputs and outputs), claude_spans.py
                   (Claude Code's names and log events)
Writing:           write.py, exported_genai_attributes.py
Validation:        validate.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from vestige.formats.protocol import Problem, RunToWrite, Source

_SNIFF_BYTES = 64 * 1024
_SIGNATURES = (b'"resourceSpans"', b'"resourceLogs"', b'"resource_spans"', b'"resource_logs"')
_FILES_MAX = 200
"""Files of a folder that are sniffed. A collector's file exporter keeps a hundred by default."""


def is_readable(path: Path) -> bool:
    """Return whether the file, or a file directly in the folder, looks like OTLP/JSON."""
    try:
        if path.is_dir():
            return any(map(_is_otlp_file, _json_files(islice(path.iterdir(), _FILES_MAX))))
        return _is_otlp_file(path)
    except OSError:
        return False


def _is_otlp_file(path: Path) -> bool:
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        start = file.read(_SNIFF_BYTES)
    is_json = start.lstrip(b"\xef\xbb\xbf \r\n\t").startswith((b"{", b"["))
    if is_json and any(signature in start for signature in _SIGNATURES):
        return True
    return is_json and _is_export(path, start)


def _is_export(path: Path, start: bytes) -> bool:
    """Return whether a file is an export of a tool that stores spans in its own shape."""
    from vestige.formats.otlp.exports import SIGNATURES

    if not any(signature in start for signature in SIGNATURES):
        return False
    from vestige.errors import UnreadableError
    from vestige.formats.otlp.trace_index import open_trace_file

    try:
        return bool(open_trace_file(path).traces)
    except UnreadableError:
        return False


def _json_files(paths: Iterable[Path]) -> list[Path]:
    """Return the JSON files, oldest first: a collector puts the time into rotated names."""
    return sorted(path for path in paths if path.suffix in (".json", ".jsonl"))


def find_runs(path: Path) -> Iterator[Path]:
    """Yield a path for each trace: the file itself, or `FILE#trace-id` where it has several."""
    from vestige.formats.otlp.trace_index import find_trace_paths

    if path.is_dir():
        for file in _json_files(path.iterdir()):
            if _is_otlp_file(file):
                yield from find_trace_paths(file)
    else:
        yield from find_trace_paths(path)


def read_run(path: Path) -> Source:
    from vestige.formats.otlp.read import read_trace

    return read_trace(path)


def validate_run(path: Path) -> Sequence[Problem]:
    from vestige.formats.otlp.validate import validate_path

    return validate_path(path)


def write_run(run: RunToWrite, target: Path) -> Path:
    """Write the run to the target, which is a new file or an existing folder."""
    from vestige.formats.otlp.write import write_trace

    return write_trace(run, target)
