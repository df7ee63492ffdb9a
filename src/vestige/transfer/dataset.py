"""Write a dataset: runs or steps that match a filter, with labels from notes and findings.

    DIR/train.jsonl  DIR/test.jsonl     one example per line: messages, labels, id
    DIR/dataset.json                    how it was made, and the counts

The split depends on the task alone: runs of the same task are on the same side, and a dataset
that is made again from more runs never moves one to the other side.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Literal

from vestige._version import __version__
from vestige.errors import NotFoundError, UsageError
from vestige.formats.messages.from_records import Shape, thread_to_example
from vestige.formats.protocol import RunToWrite
from vestige.formats.record_builder import encode_json
from vestige.formats.run_to_threads import MessageThread, Turn, read_threads
from vestige.query.debugger import Debugger
from vestige.record.finding import Finding
from vestige.record.note import Note
from vestige.record.redaction.output_redaction import redact_text
from vestige.transfer.export import load_run_to_write

Object = dict[str, Any]
Unit = Literal["runs", "steps"]
UNITS: Final[tuple[Unit, ...]] = ("runs", "steps")
_SCORE: Final = "score."


@dataclass(frozen=True, slots=True)
class DatasetOptions:
    """The contents of a dataset."""

    unit: Unit = "runs"
    shape: Shape = "openai"
    test_share: float = 0.2
    seed: str = ""


@dataclass(slots=True)
class DatasetCounts:
    """The number of examples that were written."""

    train: int = 0
    test: int = 0
    skipped: int = 0
    """Runs without a model call that has an answer."""


def write_dataset(
    debugger: Debugger, run_ids: Sequence[str], folder: Path, options: DatasetOptions
) -> DatasetCounts:
    """Write a new folder, completely or not at all."""
    if os.path.lexists(folder):
        raise UsageError(f"{folder}: already exists. Choose another name.")
    if not 0 <= options.test_share <= 1:
        raise UsageError(f"test share: {options.test_share} is out of range (expected 0 to 1).")
    if not run_ids:
        raise NotFoundError("no run matches. Widen the filter: `vestige list` shows the runs.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700)
    try:
        counts = _write_files(debugger, run_ids, partial, options)
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return counts


def _write_files(
    debugger: Debugger, run_ids: Sequence[str], folder: Path, options: DatasetOptions
) -> DatasetCounts:
    counts = DatasetCounts()
    with _create(folder / "train.jsonl") as train, _create(folder / "test.jsonl") as test:
        for run_id in run_ids:
            source = load_run_to_write(debugger.store, run_id, with_logs=False)
            threads = [thread for thread in read_threads(source) if _has_answer(thread)]
            if not threads:
                counts.skipped += 1
                continue
            findings = debugger.check(run_id).report.findings
            is_test = _is_test(_find_task(source, threads), options)
            for example in _iter_examples(source, threads, findings, options):
                (test if is_test else train).write(encode_json(example).encode() + b"\n")
                counts.test += is_test
                counts.train += not is_test
    facts = {
        "made_by": f"vestige {__version__}",
        "unit": options.unit,
        "shape": options.shape,
        "test_share": options.test_share,
        "seed": options.seed,
        "runs": len(run_ids) - counts.skipped,
        "train": counts.train,
        "test": counts.test,
    }
    with _create(folder / "dataset.json") as file:
        file.write(encode_json(facts).encode() + b"\n")
    return counts


def _create(path: Path) -> IO[bytes]:
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


# --- the split ------------------------------------------------------------------------------------


def _find_task(source: RunToWrite, threads: list[MessageThread]) -> str:
    for turn in threads[0].turns:
        if turn.role == "user" and turn.text.strip():
            return " ".join(turn.text.split())
    return source.run.info.conversation_id or source.run.info.id


def _is_test(task: str, options: DatasetOptions) -> bool:
    digest = hashlib.sha256(f"{options.seed}\0{task}".encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 < options.test_share


# --- examples -------------------------------------------------------------------------------------


def _has_answer(thread: MessageThread) -> bool:
    return any(turn.role == "assistant" and turn.span is not None for turn in thread.turns)


def _iter_examples(
    source: RunToWrite,
    threads: list[MessageThread],
    findings: Sequence[Finding],
    options: DatasetOptions,
) -> Iterator[Object]:
    info = source.run.info
    for number, thread in enumerate(threads, 1):
        facts: Object = {"run": info.id, "name": info.name, "agent": thread.agent}
        if thread.model is not None:
            facts["model"] = thread.model
        if options.unit == "runs":
            example_id = f"{info.id}#{number}" if len(threads) > 1 else info.id
            labels = _run_labels(source, findings)
            example = thread_to_example(thread, thread.turns, options.shape)
            yield {"id": example_id} | example | {"labels": labels, "metadata": facts}
            continue
        for index, turn in enumerate(thread.turns):
            if turn.role != "assistant" or turn.span is None:
                continue
            before = thread_to_example(thread, thread.turns[:index], options.shape)
            answer = thread_to_example(thread, [turn], options.shape)["messages"][-1]
            labels = _step_labels(source, turn, findings)
            example_id = f"{info.id}/{turn.span.id}"
            more = {"completion": answer, "labels": labels, "metadata": facts}
            yield {"id": example_id} | before | more


def _run_labels(source: RunToWrite, findings: Sequence[Finding]) -> Object:
    root = next((span for span in source.run.spans if span.parent_id is None), None)
    scores = {
        key.removeprefix(_SCORE): value
        for key, value in (root.attributes if root is not None else {}).items()
        if key.startswith(_SCORE) and isinstance(value, (str, int, float))
    }
    labels: Object = {"outcome": source.run.info.outcome}
    if scores:
        labels["scores"] = scores
    return labels | _judgements(source.notes, findings)


def _step_labels(source: RunToWrite, turn: Turn, findings: Sequence[Finding]) -> Object:
    assert turn.span is not None
    spans = {turn.span.id, *(span.id for span in turn.tool_spans.values())}
    labels: Object = {"status": turn.span.status or "open"}
    failed = [span.name for span in turn.tool_spans.values() if span.status not in ("ok", None)]
    if failed:
        labels["failed_tools"] = failed
    return labels | _judgements(
        [note for note in source.notes if note.span_id in spans],
        [finding for finding in findings if finding.cause in spans],
    )


def _judgements(notes: Sequence[Note], findings: Sequence[Finding]) -> Object:
    found: Object = {}
    if notes:
        found["notes"] = [
            {"text": redact_text(note.text), "author": note.author, "span": note.span_id}
            for note in notes
        ]
    if findings:
        found["findings"] = [
            {
                "kind": finding.kind,
                "severity": finding.severity,
                "confidence": finding.confidence,
                "message": redact_text(finding.message),
                "span": finding.cause,
            }
            for finding in findings
        ]
    return found
