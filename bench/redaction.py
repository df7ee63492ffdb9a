"""Redaction: secrets that stay in clear, and clean source code that is masked.

    python -m bench redaction

Recall runs over the made-up texts and files of tests/support/secret_corpus.py; precision over the
standard library and the installed packages. The peer is detect-secrets with its default plugins,
if it is installed. Gitleaks has no package on PyPI or npm, so it is not measured.
"""

from __future__ import annotations

import random
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from bench.figures import Figure, Goal
from support.credential_files import FILES
from support.secret_corpus import SHAPES, TEXTS, Maker, fill, make

SEEDS = 3
SOURCE_MB = 20
_SUFFIXES = (".py", ".js", ".ts", ".mjs", ".css")


def measure() -> Sequence[Figure]:
    cases = list(_cases())
    left, missed = _in_clear(cases), _missed_by_peer(cases)
    hits, megabytes = _hits_in_source()
    what = f"of {len(cases)} secret texts and files, in clear; peer detect-secrets"
    return [
        Figure(what, "cases", left, peer=missed, goal=Goal("below", 1)),
        Figure("masked in source code", "hits/MB", hits / megabytes, goal=Goal("below", 1)),
    ]


def _cases() -> Iterator[tuple[str, list[str]]]:
    for seed in range(SEEDS):
        maker = Maker(seed)
        for template, _ in SHAPES.values():
            secret = make(template, maker)
            yield f"got {secret} here", [secret]
        for template in (*TEXTS.values(), *FILES.values()):
            yield fill(template, maker)


def _in_clear(cases: Sequence[tuple[str, list[str]]]) -> int:
    from vestige.record.redaction.redactor import Redactor

    redactor = Redactor()
    redactor.suspicious(b"")
    return sum(any(each in redactor.text(text) for each in secrets) for text, secrets in cases)


def _missed_by_peer(cases: Sequence[tuple[str, list[str]]]) -> int | None:
    try:
        from detect_secrets import SecretsCollection
        from detect_secrets.settings import default_settings
    except ImportError:
        return None
    missed = 0
    with tempfile.TemporaryDirectory() as folder, default_settings():
        for number, (text, _) in enumerate(cases):
            path = Path(folder) / f"{number}.txt"
            path.write_text(text)
            found = SecretsCollection()
            found.scan_file(str(path))
            missed += not found.data
    return missed


def _hits_in_source() -> tuple[int, float]:
    from vestige.record.redaction.redactor import Redactor

    redactor = Redactor()
    redactor.suspicious(b"")
    roots = [Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib")]
    paths = [path for root in roots for path in root.rglob("*") if path.suffix in _SUFFIXES]
    random.Random(1).shuffle(paths)
    hits = read = 0
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeError):
            continue
        counts: dict[str, int] = {}
        redactor.text(text, counts)
        hits += sum(counts.values())
        read += len(text)
        if read > SOURCE_MB * 1e6:
            break
    return hits, read / 1e6
