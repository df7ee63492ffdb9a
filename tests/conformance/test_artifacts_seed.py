"""The artifact bundle specification, rule by rule: for each, a bundle that breaks it and nothing
else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.artifact_bundle import DATA, BrokenBundle
from vestige.formats.artifacts.json_files.json_schemas import published
from vestige.formats.artifacts.json_files.schema_check import find_faults
from vestige.formats.artifacts.read import DirectoryTree
from vestige.formats.artifacts.validate import check_bundle
from vestige.formats.artifacts.validation_rules import RULES, Profile

Break = Callable[[BrokenBundle], Any]
CASES: list[tuple[str, str, Break, set[str]]] = []
"""(rule, the bundle that is broken, how, what else is then true by necessity). The clause of each
rule is in validation_rules.py."""

SEED = "seed_logs_screens"
DUAL = "dual_failures"


def case(rule: str, how: Break, bundle: str = SEED, also: set[str] | None = None) -> None:
    CASES.append((rule, bundle, how, also or set()))


def _remove(name: str) -> Break:
    def how(bundle: BrokenBundle) -> None:
        bundle.path(name).unlink()
        bundle.unlist(name)

    return how


def _set(name: str, *path: str, to: Any) -> Break:
    return lambda bundle: bundle.edit(name, lambda value: _put(value, path, to))


def _bundle(*path: str, to: Any) -> Break:
    return lambda bundle: bundle.bundle(lambda value: _put(value, path, to))


def _event(index: int, *path: str, to: Any) -> Break:
    return lambda bundle: bundle.lines(lambda events: _put(events[index], path, to))


def _put(value: Any, path: tuple[str, ...], to: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    if to is None:
        del value[path[-1]]
    else:
        value[path[-1]] = to


def _index(name: str, index: int, **values: Any) -> Break:
    return lambda bundle: bundle.edit(name, lambda value: value["files"][index].update(values))


# "Required files (v1)"
REQUIRED = [
    "summary.json",
    "meta.json",
    "metrics.json",
    "diagnostics/env_redacted.txt",
    "diagnostics/tree.txt",
    "trace/events.jsonl",
    "transcript/summary.txt",
    "repro.txt",
    "repro.env",
    "repro.json",
    "fixtures.json",
    "logs/index.json",
    "screenshots/index.json",
]
case("bundle-missing", lambda bundle: bundle.path("bundle.json").unlink())
for name in REQUIRED:
    case("file-missing", _remove(name))

# "Every bundle must expose these sections in bundle.json.artifacts"
SECTIONS = [
    "metadata",
    "metrics",
    "summary",
    "diagnostics",
    "trace",
    "transcript",
    "logs",
    "screenshots",
    "fixtures",
    "replay",
]
for name in SECTIONS:
    case("ref-missing", _bundle("artifacts", name, to=None))
case("ref-missing", _bundle("artifacts", "replay", "environment", to=None))
case("ref-path", _bundle("artifacts", "metadata", "path", to="metrics.json"))
case("ref-path", _bundle("artifacts", "trace", "events", "path", to="trace/other.jsonl"))
case("ref-schema", _bundle("artifacts", "summary", "schema", to="summary.v2"))
case("key-missing", _bundle("artifacts", "logs", "index", "schema", to=None))
case("type-wrong", _bundle("artifacts", "logs", to="logs/index.json"))

# "schema.name is fixed", "schema.major is breaking"
case("schema-name", _bundle("schema", "name", to="other-artifacts"))
case("schema-major", _bundle("schema", "major", to=2))
case("schema-major", _bundle("schema", "major", to=0))
case("type-wrong", _bundle("schema", "major", to="1"))
case("number-negative", _bundle("schema", "minor", to=-1))

# "Top-level shape (required keys)"
TOP = [
    "suite",
    "timestamp",
    "generated_at",
    "started_at",
    "ended_at",
    "counts",
    "git",
    "schema",
    "artifacts",
]
for name in TOP:
    case("key-missing", _bundle(name, to=None))
case("key-missing", _bundle("files", to=None))
case("key-missing", _bundle("counts", "skip", to=None))
case("key-missing", _bundle("git", "branch", to=None))
case("type-wrong", _bundle("git", "dirty", to="no"))
case("type-wrong", _bundle("counts", "pass", to=True))
case("type-wrong", _bundle("counts", "pass", to=1.0))
case("type-wrong", _bundle("generated_at", to=17))

# "File inventory entry schema"
for name in ("/etc/passwd", "../up.txt", "a/../../b", "C:/x", "\\x", "", "a/\0b"):
    case(
        "path-unsafe",
        lambda bundle, name=name: bundle.bundle(
            lambda value: value["files"].append(
                {"path": name, "sha256": "0" * 64, "bytes": 0, "kind": "opaque", "schema": None}
            )
        ),
    )
for value in ("A" * 64, "0" * 63, "0" * 64 + "\n"):
    case(
        "sha256-shape",
        lambda bundle, value=value: bundle.entry("repro.txt", sha256=value),
        also={"sha256-differs"},
    )
case("type-wrong", lambda bundle: bundle.entry("repro.txt", bytes="239"))
case("type-wrong", lambda bundle: bundle.entry("repro.txt", bytes=239.0))
case("type-wrong", lambda bundle: bundle.entry("steps/step_001.json", schema=1))
case("kind-unknown", lambda bundle: bundle.entry("repro.txt", kind="video"))
case("entry-schema", lambda bundle: bundle.entry("meta.json", schema=None))
case("entry-schema", lambda bundle: bundle.entry("repro.json", schema="repro.v2"))
case(
    "path-duplicate",
    lambda bundle: bundle.bundle(lambda value: value["files"].append(value["files"][0])),
)
for key in ("sha256", "bytes", "kind", "schema"):
    case("key-missing", lambda bundle, key=key: bundle.bundle(lambda value: _entry(value).pop(key)))
case(
    "key-missing",
    lambda bundle: bundle.bundle(lambda value: _entry(value).pop("path")),
    also={"file-unlisted"},
)

# "inventory entries point to real files and bytes match on disk"; hashes say what they are for
case("entry-without-file", lambda bundle: bundle.path("steps/step_001.json").unlink())
case("sha256-differs", lambda bundle: bundle.path("steps/step_001.json").write_text('{"step":2}\n'))
case("sha256-differs", lambda bundle: bundle.entry("repro.txt", sha256="0" * 64))
case("bytes-differ", lambda bundle: bundle.entry("repro.txt", bytes=1))
case("file-unlisted", lambda bundle: bundle.path("planted.txt").write_text("x"))
case("file-unlisted", lambda bundle: bundle.path("trace/.hidden").write_text("x"))

# "Required Typed Artifact Schemas"
TYPED: dict[str, dict[str, Any]] = {
    "summary.json": {
        "schema_version": "1",
        "started_at": 1,
        "ended_at": 1,
        "total": "1",
        "pass": True,
        "fail": 0.0,
        "skip": None,
    },
    "meta.json": {
        "schema_version": 1.0,
        "started_at": 1,
        "ended_at": 1,
        "git": [],
        "runner": [],
        "paths": "x",
    },
    "metrics.json": {"schema_version": True, "timing": [], "counts": []},
    "fixtures.json": {"schema_version": "1", "fixture_ids": "x"},
    "repro.json": {
        "schema_version": "1",
        "clock_mode": 1,
        "seed": "1",
        "run_started_at": 1,
        "run_start_epoch_s": 1.5,
        "command": 1,
    },
    "logs/index.json": {"schema_version": "1"},
    "screenshots/index.json": {"schema_version": "1"},
}
for name, wrong in TYPED.items():
    for key, value in wrong.items():
        case("key-missing", _set(name, key, to=None))
        if value is not None:
            case("type-wrong", _set(name, key, to=value))
    case("key-missing", _set(name, "suite", to=None))
    case("key-missing", _set(name, "timestamp", to=None))
    case("suite-differs", _set(name, "suite", to="another"))
    case("timestamp-differs", _set(name, "timestamp", to="20260210_170001"))
    case("json-empty", lambda bundle, name=name: bundle.write(name, b" \n"))
    case("type-wrong", lambda bundle, name=name: bundle.write(name, b"[]"))
case("key-missing", _set("meta.json", "git", "commit", to=None))
case("type-wrong", _set("meta.json", "git", "dirty", to="false"))
for key in ("start_epoch_s", "end_epoch_s", "duration_s"):
    case("key-missing", _set("metrics.json", "timing", key, to=None))
    case("type-wrong", _set("metrics.json", "timing", key, to=1.5))
for key in ("total", "pass", "fail", "skip"):
    case("key-missing", _set("metrics.json", "counts", key, to=None))
    case("counts-differ", _set("metrics.json", "counts", key, to=77))
    case("number-negative", _set("summary.json", key, to=-1))
case("type-wrong", _set("fixtures.json", "fixture_ids", to=["a", 1]))
case("fixture-duplicate", _set("fixtures.json", "fixture_ids", to=["a", "b", "a"]))

# "trace/events.jsonl: each non-empty line is a JSON object"
EVENT: dict[str, Any] = {
    "schema_version": "1",
    "suite": 1,
    "run_timestamp": 1,
    "ts": 1,
    "case": None,
    "message": 1,
}
for key, value in EVENT.items():
    case("key-missing", _event(1, key, to=None))
    if value is not None:
        case("type-wrong", _event(1, key, to=value))
for key in ("total", "pass", "fail", "skip"):
    case("key-missing", _event(1, "counters", key, to=None))
    case("type-wrong", _event(1, "counters", key, to="0"))
case("key-missing", _event(1, "kind", to=None))
case("trace-schema-version", _event(1, "schema_version", to=2))
case("timestamp-differs", _event(2, "run_timestamp", to="20260210_170001"))
case("suite-differs", _event(2, "suite", to="another"))
case("trace-kind-missing", _event(0, "kind", to="note"))
case("trace-kind-missing", _event(-1, "kind", to="note"))
case("type-wrong", lambda bundle: bundle.lines(lambda events: events.insert(1, [1])))
case(
    "jsonl-invalid",
    lambda bundle: bundle.write(
        "trace/events.jsonl", bundle.path("trace/events.jsonl").read_bytes() + b"{\n"
    ),
)

# "Any non-empty *.json artifacts are valid JSON", "*.jsonl / *.ndjson ... line-delimited JSON"
case("json-invalid", lambda bundle: bundle.write("steps/step_001.json", b"{"))
case("json-nan", lambda bundle: bundle.write("steps/step_001.json", b'{"a": NaN}'))
case(
    "json-nan",
    lambda bundle: bundle.write(
        "meta.json", bundle.path("meta.json").read_bytes().replace(b"true", b"NaN", 1)
    ),
)
case("json-bom", lambda bundle: bundle.write("steps/step_001.json", b"\xef\xbb\xbf{}"))
case(
    "json-bom",
    lambda bundle: bundle.write(
        "meta.json", b"\xef\xbb\xbf" + bundle.path("meta.json").read_bytes()
    ),
)
case("json-utf8", lambda bundle: bundle.write("steps/step_001.json", b'{"a": "\xff"}'))
case("json-invalid", lambda bundle: bundle.write("steps/step_001.json", b"[" * 100_000))
case("jsonl-invalid", lambda bundle: bundle.write("requests/stream.jsonl", b'{"a":1}\nnope\n'))
case("jsonl-invalid", lambda bundle: bundle.write("requests/stream.ndjson", b"{}\n{}{}\n"))
for data, rule in (
    (b"", "json-empty"),
    (b"{", "json-invalid"),
    (b"[]", "type-wrong"),
    (b"\xff", "json-utf8"),
):
    case(rule, lambda bundle, data=data: bundle.path("bundle.json").write_bytes(data))

# any size: a file or a line that is too large to be parsed is looked through
case(
    "json-invalid",
    lambda bundle: bundle.write("steps/step_001.json", b'{"a": "' + b"x" * (17 << 20) + b'"} oops'),
)
case(
    "json-invalid",
    lambda bundle: bundle.write("steps/step_001.json", b'["' + b"x" * (17 << 20) + b'\xff"]'),
)
case(
    "jsonl-invalid",
    lambda bundle: bundle.write(
        "requests/stream.jsonl", b'{}\n{"a": "' + b"x" * (5 << 20) + b'"\n{}\n'
    ),
)
# its own entry
case(
    "bytes-differ",
    lambda bundle: bundle.edit(
        "bundle.json",
        lambda value: value["files"].append(
            {
                "path": "bundle.json",
                "bytes": 1,
                "sha256": "0" * 64,
                "kind": "metadata",
                "schema": None,
            }
        ),
    ),
    also={"sha256-differs"},
)
case("path-unsafe", lambda bundle: bundle.entry("summary.json", path="summary.json/"))
case("summary-version", _set("summary.json", "schema_version", to=2))

# "logs/index.json and screenshots/index.json entries must match bundle.json"
for name in ("logs/index.json", "screenshots/index.json"):
    case("index-entry-differs", _index(name, 0, bytes=1))
    case("index-entry-differs", _index(name, 0, sha256="0" * 64))
    case(
        "index-incomplete",
        lambda bundle, name=name: bundle.edit(name, lambda value: value["files"].pop()),
    )
    gone = "gone.log" if name.startswith("logs") else "gone.png"
    case(
        "index-entry-unlisted", lambda bundle, name=name, gone=gone: bundle.edit(name, _extra(gone))
    )
    case("path-unsafe", lambda bundle, name=name: bundle.edit(name, _extra("../x.log")))
    case(
        "number-negative",
        lambda bundle, name=name: bundle.edit(name, _extra("gone", -1)),
        also={"index-entry-unlisted", "index-alien"},
    )
    case(
        "sha256-shape",
        lambda bundle, name=name: bundle.edit(name, _extra("gone", 1, "x")),
        also={"index-entry-unlisted", "index-alien"},
    )
    case(
        "key-missing",
        lambda bundle, name=name: bundle.edit(name, lambda value: value["files"][0].pop("bytes")),
    )
case("index-incomplete", lambda bundle: bundle.write("case_logs/new.log.2026", b"x"))
case("index-incomplete", lambda bundle: bundle.write("case_logs/new.WEBP", b"x"))

# not a file at all
case("file-special", lambda bundle: os.mkfifo(bundle.path("pipe")))
case("symlink-escapes", lambda bundle: bundle.path("out").symlink_to("/etc/hostname"))
case("symlink-escapes", lambda bundle: bundle.path("loop").symlink_to("loop"))
case("symlink-escapes", lambda bundle: bundle.path("up").symlink_to(".."))

# later eras
for name in ("manifest.json", "scenarios/index.json", "scenarios/scenarios.jsonl"):
    case("later-file-missing", _remove(name), DUAL)
case("later-ref-missing", _bundle("artifacts", "manifest", to=None), DUAL)
case("later-ref-missing", _bundle("artifacts", "scenarios", to=None), DUAL)
for keys in (
    ("environment", "rust_version"),
    ("environment", "binary_version"),
    ("environment", "os"),
    ("server_config", "port"),
    ("server_config", "auth"),
    ("server_config", "storage_root"),
):
    case("later-key-missing", _set("manifest.json", *keys, to=None), DUAL)
case("later-key-missing", _set("manifest.json", "environment", "arch", to=7), DUAL)
case(
    "later-case",
    lambda bundle: bundle.edit(
        "manifest.json", lambda value: value["cases"][0].update(status="green")
    ),
    DUAL,
)
case(
    "later-case",
    lambda bundle: bundle.edit(
        "manifest.json", lambda value: value["cases"].append(value["cases"][0])
    ),
    DUAL,
)
case(
    "later-scenario",
    lambda bundle: bundle.write(
        "scenarios/scenarios.jsonl",
        bundle.path("scenarios/scenarios.jsonl")
        .read_bytes()
        .replace(b'"artifact_dir"', b'"folder"'),
    ),
    DUAL,
)
case("scenario-count-differs", _set("scenarios/index.json", "scenario_count", to=9), DUAL)

# what the text is silent on
case("symlink", lambda bundle: bundle.path("again").symlink_to("case_logs"))
case("path-alias", lambda bundle: bundle.entry("repro.txt", path="./repro.txt"))
case("path-alias", lambda bundle: bundle.entry("steps/step_001.json", path="steps//step_001.json"))
case("path-case", lambda bundle: bundle.write("Repro.txt", b"x"))
case("json-duplicate-key", lambda bundle: bundle.write("steps/step_001.json", b'{"a":1,"a":2}'))
case(
    "json-duplicate-key",
    lambda bundle: bundle.write(
        "meta.json", b'{"suite":"x",' + bundle.path("meta.json").read_bytes()[1:]
    ),
)
case("schema-version", _set("meta.json", "schema_version", to=2))
case(
    "trace-order",
    lambda bundle: bundle.lines(lambda events: events.insert(0, {**events[0], "kind": "note"})),
)
case(
    "trace-order",
    lambda bundle: bundle.lines(lambda events: events.append({**events[-1], "kind": "note"})),
)
case("counters-fall", _event(-1, "counters", "pass", to=0))
case("summary-differs", _set("summary.json", "pass", to=9))
case("summary-differs", _set("summary.json", "ended_at", to="2023-11-14T22:14:03Z"))
case(
    "index-alien",
    lambda bundle: bundle.edit(
        "logs/index.json", lambda value: value["files"].append(_listed(bundle, "repro.txt"))
    ),
)
case("time-shape", _bundle("generated_at", to="yesterday"))
case("time-shape", _event(1, "ts", to="17:00"))


def _entry(head: Any) -> Any:
    return next(entry for entry in head["files"] if entry["path"] == "steps/step_001.json")


def _extra(path: str, size: int = 1, sha256: str = "0" * 64) -> Any:
    return lambda value: value["files"].append({"path": path, "bytes": size, "sha256": sha256})


def _listed(bundle: BrokenBundle, path: str) -> Any:
    entry = next(each for each in bundle.read("bundle.json")["files"] if each["path"] == path)
    return {key: entry[key] for key in ("path", "bytes", "sha256")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "name", "how", "also"),
    CASES,
    ids=[f"{number}-{each[0]}" for number, each in enumerate(CASES)],
)
def test_a_bundle_that_breaks_one_rule_breaks_just_that(
    rule: str, name: str, how: Break, also: set[str], tmp_path: Path
) -> None:
    """Each MUST: nothing else is reported, and lighter profiles do not report it."""
    bundle = BrokenBundle(tmp_path, name)
    how(bundle)
    profile: Profile = RULES[rule].profile

    found = bundle.rules(profile)

    assert found == {rule} | also, bundle.problems(profile)
    if profile != "seed":
        assert rule not in bundle.rules("seed")


def test_every_rule_is_broken_by_a_case() -> None:
    """A rule without a bundle that breaks it might never be looked at."""
    elsewhere = {
        # tests/formats/test_artifacts_validator.py
        "suite-without-bundle",
        "file-unreadable",
        "json-too-large",
        "json-unchecked",
        "zip-name",
        "zip-damaged",
        "too-many",
    }

    assert {each[0] for each in CASES} | elsewhere == set(RULES)


@pytest.mark.parametrize("name", ["seed_pass", "seed_failures", "seed_logs_screens"])
def test_the_real_bundles_of_the_seed_era_are_valid(name: str) -> None:
    """Under `seed`, the profile of the text; and nothing that the text is silent on is wrong
    either.
    """
    for profile in ("seed", "strict"):
        assert check_bundle(DirectoryTree(DATA / name), profile)[1] == []


@pytest.mark.parametrize("name", ["dual_pass", "dual_failures"])
def test_the_real_bundles_that_every_era_accepts_are_valid(name: str) -> None:
    """Under every profile."""
    for profile in ("seed", "latest", "strict"):
        assert check_bundle(DirectoryTree(DATA / name), profile)[1] == []


def test_a_bundle_of_the_seed_is_not_one_of_the_latest_era() -> None:
    assert {
        problem.rule for problem in check_bundle(DirectoryTree(DATA / "seed_pass"), "latest")[1]
    } == {
        "later-file-missing",
        "later-ref-missing",
    }


def test_a_bumped_minor_may_add_keys_kinds_and_references(tmp_path: Path) -> None:
    """Validators MUST accept any schema.minor >= 0 for the current schema.major."""
    bundle = BrokenBundle(tmp_path)
    bundle.entry("repro.txt", kind="video", codec="av1")
    bundle.edit("meta.json", lambda meta: meta.update(cloud={"zone": "b"}))
    bundle.lines(lambda events: events[1].update(worker="gw0"))

    def change(value: Any) -> None:
        value["schema"]["minor"] = 7
        value["artifacts"]["videos"] = {"path": "videos/index.json", "schema": "videos.v1"}
        value["flaky"] = True

    bundle.bundle(change)

    assert bundle.problems() == []


def test_a_new_major_is_refused_with_a_message_that_says_so(tmp_path: Path) -> None:
    """schema.major is breaking: nothing can be said about the rest."""
    bundle = BrokenBundle(tmp_path)
    bundle.bundle(lambda value: value["schema"].update(major=2))
    bundle.path("meta.json").unlink()

    (problem,) = bundle.problems()

    assert problem.rule == "schema-major"
    assert "major version 2 is newer than this validator knows (1)" in problem.message
    assert problem.place == "/schema/major"


def test_the_latest_era_allows_trace_version_2(tmp_path: Path) -> None:
    bundle = BrokenBundle(tmp_path, DUAL)
    bundle.lines(lambda events: [event.update(schema_version=2) for event in events])

    assert bundle.problems("latest") == []
    assert bundle.rules("seed") == {"trace-schema-version"}


def test_empty_json_bodies_are_permitted(tmp_path: Path) -> None:
    """Empty/whitespace-only *.json payloads are permitted as "no body" transcripts."""
    bundle = BrokenBundle(tmp_path)
    bundle.write("requests/003.json", b"")
    bundle.write("requests/004.json", b" \n\t")

    assert bundle.problems() == []


def test_counts_need_not_add_up(tmp_path: Path) -> None:
    """counts.total counts cases, the others assertions: real bundles have total=2, pass=3."""
    bundle = BrokenBundle(tmp_path, "seed_pass")

    assert bundle.read("bundle.json")["counts"] == {"total": 2, "pass": 3, "fail": 0, "skip": 0}
    assert bundle.problems("strict") == []


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    """With the file, the place in it, and what to do."""
    bundle = BrokenBundle(tmp_path)
    bundle.edit("meta.json", lambda meta: meta.update(runner=[], suite="another"))
    bundle.lines(lambda events: events[2].update(schema_version=9))
    bundle.path("planted.txt").write_text("x")
    bundle.path("repro.txt").write_text("changed")

    found = {(Path(p.file).name, p.place, p.rule) for p in bundle.problems()}

    assert found == {
        ("meta.json", "/runner", "type-wrong"),
        ("meta.json", "/suite", "suite-differs"),
        ("events.jsonl", "line 3 /schema_version", "trace-schema-version"),
        ("planted.txt", "", "file-unlisted"),
        ("repro.txt", "", "bytes-differ"),
        ("repro.txt", "", "sha256-differs"),
    }
    assert all(problem.hint for problem in bundle.problems() if problem.rule == "file-unlisted")


@pytest.mark.slow
def test_published_schemas_and_the_validator_agree_on_the_real_bundles() -> None:
    """schemas/artifacts/ is for other tools: what is valid for one is valid for the other."""
    jsonschema = pytest.importorskip("jsonschema")
    from vestige.formats.artifacts import constants

    folder = Path(__file__).parents[2] / "schemas" / "artifacts"
    for bundle in sorted(DATA.glob("*_*")):
        for name in (
            "bundle.json",
            *(part.path for part in constants.PART_OF.values() if part.type),
        ):
            place = bundle / name
            if not place.exists():
                continue
            kind = (
                "bundle"
                if name == "bundle.json"
                else str(constants.PART_OF[name].schema).partition(".")[0]
            )
            schema = json.loads((folder / f"{kind}.schema.json").read_text(encoding="utf-8"))
            jsonschema.Draft202012Validator.check_schema(schema)
            texts = (
                place.read_text().splitlines() if name.endswith("jsonl") else [place.read_text()]
            )
            for text in texts:
                jsonschema.validate(json.loads(text), schema)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["summary", "meta", "metrics", "fixtures", "repro", "logs-index", "trace-events", "bundle"],
)
def test_published_schemas_and_the_validator_agree_on_what_is_wrong(name: str) -> None:
    """Each value taken away, or put in place of another: both refuse, or neither does."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = published()[f"{name}.schema.json"]
    validator = jsonschema.Draft202012Validator(schema)
    file = {"logs-index": "logs/index", "trace-events": "trace/events"}.get(name, name)
    place = next((DATA / "seed_logs_screens").glob(f"{file}.json*"))
    right = json.loads(
        place.read_text().splitlines()[1] if name == "trace-events" else place.read_text()
    )

    for wrong in _variations(right):
        refused = any(find_faults(wrong, schema))

        assert refused == (not validator.is_valid(wrong)), wrong


def _variations(value: Any) -> Iterator[Any]:
    """A value with one part of it gone or changed, down to the first item of each list."""
    yield from (None, True, -1, 2, "x", "../x", [], ["a", "a"], {})
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {k: v for k, v in value.items() if k != key}
            yield from ({**value, key: each} for each in _variations(inner))
    elif isinstance(value, list) and value:
        yield from ([each, *value[1:]] for each in _variations(value[0]))
