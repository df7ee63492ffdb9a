"""Read one sample of a log as a run. Its id derives from the ids in the log."""

from __future__ import annotations

from pathlib import Path

from vestige.errors import UnreadableError
from vestige.formats.inspect_logs.detect import open_log, split_number
from vestige.formats.inspect_logs.outcome import iter_notes
from vestige.formats.inspect_logs.to_records import FORMAT, SampleRecords
from vestige.formats.protocol import Source
from vestige.formats.record_builder import RecordBuilder
from vestige.formats.times_and_outcomes import parse_time_ns


def read_sample(sample_path: Path) -> Source:
    path, number = split_number(sample_path)
    log = open_log(path)
    if not log.count:
        raise UnreadableError(f"{path}: has no samples (expected a log of Inspect).")
    sample, header = log.sample(number), log.header()
    evaluation = header.get("eval")
    evaluation = evaluation if isinstance(evaluation, dict) else {}
    source_id = sample.get("uuid") or "/".join(
        str(value)
        for value in (evaluation.get("eval_id"), sample.get("id"), sample.get("epoch"), number)
    )
    began_ns = parse_time_ns(sample.get("started_at")) or parse_time_ns(evaluation.get("created"))
    builder = RecordBuilder(FORMAT, str(source_id), began_ns or path.stat().st_mtime_ns)
    return Source(
        builder.run_id,
        builder.writer,
        SampleRecords(sample, evaluation, builder).records(),
        notes=list(iter_notes(sample, builder)),
        mergeable=True,
    )
