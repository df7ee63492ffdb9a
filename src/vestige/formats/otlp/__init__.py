"""OpenTelemetry: traces and logs as OTLP, from files (OTLP/JSON) and, for the server, from requests.

formats/otlp/any_value.py    JSON to plain values: ids, times, attributes     formats/otlp/parse_span.py     a span, parsed; formats/otlp/root_span.py: which one is the run
formats/otlp/detect.py     the traces of a file, found again one by one     formats/otlp/span_types.py     what a span is by the conventions, and its attributes
formats/otlp/to_records.py   a span as records     formats/otlp/log_records.py  a log record     formats/otlp/span_content.py  what went in and came out, as chat messages
formats/otlp/own_spans.py       spans that we wrote   formats/otlp/write.py  writes them    formats/otlp/validate.py  all that is wrong with a file
formats/otlp/export_request.py  a request of OTLP/HTTP as records                protobuf.py  binary requests, if their package is installed
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from vestige.formats.protocol import Problem, RunToWrite, Source

_SNIFFED = 64 * 1024
_SIGNS = (b'"resourceSpans"', b'"resourceLogs"', b'"resource_spans"', b'"resource_logs"')
_FILES_MAX = 200
"""Files of a folder that are looked at to tell what it is: a collector keeps a hundred of its own."""


def is_readable(path: Path) -> bool:
    """JSON that names what OTLP begins with; or a folder with such files."""
    try:
        if path.is_dir():
            return any(_sniff_file(each) for each in _files(islice(path.iterdir(), _FILES_MAX)))
        return _sniff_file(path)
    except OSError:
        return False


def _sniff_file(path: Path) -> bool:
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        start = file.read(_SNIFFED)
    begins = start.lstrip(b"\xef\xbb\xbf \r\n\t").startswith((b"{", b"["))
    return begins and any(sign in start for sign in _SIGNS)


def _files(found: Iterable[Path]) -> list[Path]:
    """By name: a collector's older files carry a time."""
    return sorted(each for each in found if each.suffix in (".json", ".jsonl"))


def find_runs(path: Path) -> Iterator[Path]:
    """A place for each trace: the file itself, or `FILE#trace id` where it has several."""
    from vestige.formats.otlp.detect import places

    if path.is_dir():
        for each in _files(path.iterdir()):
            if _sniff_file(each):
                yield from places(each)
    else:
        yield from places(path)


def read_run(path: Path) -> Source:
    from vestige.formats.otlp.read import read_trace

    return read_trace(path)


def validate_run(path: Path) -> Sequence[Problem]:
    from vestige.formats.otlp.validate import check_path

    return check_path(path)


def write_run(run: RunToWrite, target: Path) -> Path:
    """To the target, a file that is not there yet, or into it, a folder."""
    from vestige.formats.otlp.write import write_trace

    return write_trace(run, target)
