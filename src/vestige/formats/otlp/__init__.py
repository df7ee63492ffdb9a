"""OpenTelemetry: traces and logs as OTLP, from files (OTLP/JSON) and, for the server, from requests.

values.py    JSON to plain values: ids, times, attributes     spans.py     a span, parsed; shape.py: which one is the run
files.py     the traces of a file, found again one by one     kinds.py     what a span is by the conventions, and its attributes
mapping.py   a span as records     lines.py  a log record     messages.py  what went in and came out, as chat messages
own.py       spans that we wrote   writing.py  writes them    checking.py  all that is wrong with a file
requests.py  a request of OTLP/HTTP as records                protobuf.py  binary requests, if their package is installed
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from vestige.formats.base import Problem, RunToWrite, Source

_SNIFFED = 64 * 1024
_SIGNS = (b'"resourceSpans"', b'"resourceLogs"', b'"resource_spans"', b'"resource_logs"')
_FILES_MAX = 200
"""Files of a folder that are looked at to tell what it is: a collector keeps a hundred of its own."""


def sniff(path: Path) -> bool:
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


def find(path: Path) -> Iterator[Path]:
    """A place for each trace: the file itself, or `FILE#trace id` where it has several."""
    from vestige.formats.otlp.files import places

    if path.is_dir():
        for each in _files(path.iterdir()):
            if _sniff_file(each):
                yield from places(each)
    else:
        yield from places(path)


def read(path: Path) -> Source:
    from vestige.formats.otlp.reading import read_trace

    return read_trace(path)


def check(path: Path) -> Sequence[Problem]:
    from vestige.formats.otlp.checking import check_path

    return check_path(path)


def write(run: RunToWrite, target: Path) -> Path:
    """To the target, a file that is not there yet, or into it, a folder."""
    from vestige.formats.otlp.writing import write_trace

    return write_trace(run, target)
