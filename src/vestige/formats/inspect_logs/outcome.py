"""Scores and errors of a sample: attributes of the run, and a note for each score."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from vestige.formats.inspect_logs.messages import as_object
from vestige.formats.protocol import derived_uuid
from vestige.formats.record_builder import RecordBuilder, encode_json
from vestige.formats.times_and_outcomes import parse_time_ns
from vestige.record.note import Note

Object = dict[str, Any]

_SCORES_MAX: Final = 50
_AUTHOR: Final = "inspect"


def score_attributes(sample: Object) -> Object:
    """Return `score.NAME` and the answer of each scorer."""
    found: Object = {}
    for name, score in _iter_scores(sample):
        value = score.get("value")
        found[f"score.{name}"] = value if _is_scalar(value) else encode_json(value)
        if isinstance(score.get("answer"), str):
            found[f"score.{name}.answer"] = score["answer"]
    return found


def error_attributes(sample: Object) -> Object:
    """Return the error that ended a sample, if one did."""
    error = as_object(sample.get("error"))
    if not error:
        return {}
    message = error.get("message")
    return {
        "error.message": message if isinstance(message, str) else "the sample failed",
        "error.stack": error.get("traceback"),
    }


def limit_attributes(sample: Object) -> Object:
    """Return the limit that ended a sample, if one did."""
    limit = as_object(sample.get("limit"))
    return {f"limit.{key}": value for key, value in limit.items() if _is_scalar(value)}


def iter_notes(sample: Object, builder: RecordBuilder) -> Iterator[Note]:
    """Yield a note for each score."""
    time_ns = parse_time_ns(sample.get("completed_at")) or builder.time_ns
    for name, score in _iter_scores(sample):
        value = score.get("value")
        text = f"score {name}: {value if _is_scalar(value) else encode_json(value)}"
        explanation = score.get("explanation")
        if isinstance(explanation, str) and explanation.strip():
            text += f"\n{explanation}"
        yield Note(
            id=derived_uuid("inspect_logs", builder.run_id, "score", name),
            run_id=builder.run_id,
            text=text,
            created_ns=time_ns,
            author=_AUTHOR,
        )


def _iter_scores(sample: Object) -> Iterator[tuple[str, Object]]:
    scores = sample.get("scores")
    if scores is None and sample.get("score") is not None:
        scores = {"score": sample["score"]}  # the form before several scorers
    for name, score in list(as_object(scores).items())[:_SCORES_MAX]:
        if isinstance(score, dict):
            yield name, score


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (str, int, float, bool))
