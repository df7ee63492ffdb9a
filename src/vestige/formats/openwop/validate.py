"""Validate a bundle by the rules of validation_rules.py, and report every problem."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

from vestige.errors import UnreadableError
from vestige.formats.openwop import value_types
from vestige.formats.openwop.constants import ENDED, MODES, REDACTED, TERMINAL
from vestige.formats.openwop.host_redaction import HostDetails
from vestige.formats.openwop.read import Object, list_of, load, object_of
from vestige.formats.openwop.redaction_modes import decode, encode, mask_values
from vestige.formats.openwop.validation_rules import RULES
from vestige.formats.openwop.value_types import Holds, or_null
from vestige.formats.protocol import Problem
from vestige.limits import OPENWOP_BUNDLE_MAX, PROBLEMS_MAX
from vestige.record.redaction.masking import MARK

_Fields = dict[str, tuple[Holds, str, str]]
"""Key to a test of its value, the rule that a wrong value breaks, and the expectation."""

_NEEDED: Final = (
    "bundleVersion",
    "generatedAt",
    "host",
    "run",
    "events",
    "redactionApplied",
    "redactionMode",
)
_STATUSES: Final = ("pending", "running", "completed", "failed", "cancelled", "waiting-approval")
"""Keys of both schemas. Each schema also has keys that the other does not."""

_TIME = (value_types.is_time, "time", "an ISO 8601 time with a zone")
_OBJECT = (value_types.is_object, "bundle-type", "an object")
_HOST: Final[_Fields] = {
    "name": (value_types.is_name, "text-empty", "a text"),
    "version": (value_types.is_name, "text-empty", "a text"),
    "vendor": (value_types.is_text, "bundle-type", "a text"),
}
_RUN: Final[_Fields] = {
    "runId": (value_types.is_id, "text-empty", "1 to 128 characters"),
    "workflowId": (value_types.is_name, "text-empty", "a text"),
    "status": (lambda value: value in _STATUSES, "run-status", ", ".join(_STATUSES)),
    "startedAt": _TIME,
    "completedAt": _TIME,
    "endedAt": (or_null(value_types.is_time), "time", "a time, or null"),
    "error": (
        lambda value: (
            value_types.is_error(value)
            and value.keys() <= {"code", "message", "details"}
            and value_types.is_object(value.get("details", {}))
        ),
        "run-error",
        "{code, message, details}",
    ),
    "inputs": _OBJECT,
    "variables": _OBJECT,
    "nodeStates": _OBJECT,
    "channels": _OBJECT,
    "metadata": _OBJECT,
    "configurable": _OBJECT,
    "metrics": _OBJECT,
    "currentNodeId": (value_types.is_text, "bundle-type", "a text"),
    "engineVersion": (value_types.is_text, "bundle-type", "a text"),
    "eventLogSchemaVersion": (value_types.is_count, "bundle-type", "a whole number"),
    "tags": (
        lambda value: (
            isinstance(value, list)
            and len(value) <= 100
            and all(isinstance(each, str) and len(each) <= 256 for each in value)
        ),
        "bundle-type",
        "up to 100 texts",
    ),
}
_EVENT: Final[_Fields] = {
    "eventId": (value_types.is_id, "event-shape", "1 to 128 characters"),
    "runId": (value_types.is_id, "event-shape", "1 to 128 characters"),
    "type": (
        value_types.is_event_type,
        "event-type",
        "a type of the catalog, or a vendor's with its prefix",
    ),
    "timestamp": (value_types.is_time, "event-shape", "an ISO 8601 time with a zone"),
    "sequence": (value_types.is_count, "event-shape", "a whole number, 0 or more"),
    "payload": (lambda value: True, "event-shape", "any value"),
    "nodeId": (value_types.is_id, "event-shape", "1 to 128 characters, or nothing"),
    "causationId": (value_types.is_id, "event-shape", "1 to 128 characters"),
    "engineVersion": (value_types.is_text, "event-shape", "a text"),
    "schemaVersion": (value_types.is_count, "event-shape", "a whole number"),
    "seq": (or_null(value_types.is_count), "event-shape", "a whole number, or null"),
}
_EVENT_NEEDED: Final = ("eventId", "runId", "type", "payload", "timestamp", "sequence")
_SPAN: Final[_Fields] = {
    "name": (value_types.is_name, "span-shape", "a text"),
    "spanId": (value_types.is_text, "span-shape", "a text"),
    "parentSpanId": (or_null(value_types.is_text), "span-shape", "a text, or null"),
    "startedAt": (value_types.is_time, "span-shape", "an ISO 8601 time with a zone"),
    "endedAt": (or_null(value_types.is_time), "span-shape", "a time, or null"),
    "attributes": (value_types.is_object, "span-shape", "an object"),
}
_ANNOTATION: Final[_Fields] = {
    "annotationId": (value_types.is_name, "annotation-shape", "a text"),
    "target": (value_types.is_target, "annotation-shape", "{runId, eventId?, nodeId?}"),
    "signal": (value_types.is_signal, "annotation-shape", "{kind, and what that needs}"),
    "actor": (value_types.is_actor, "annotation-shape", "{principalRef}"),
    "note": (value_types.is_text, "annotation-shape", "a text"),
    "createdAt": (value_types.is_time, "annotation-shape", "an ISO 8601 time with a zone"),
}
_COST: Final[_Fields] = {
    "usd": (value_types.is_amount, "cost", "a number, 0 or more"),
    "tokens": (
        lambda value: (
            isinstance(value, dict)
            and value.keys() <= {"input", "output"}
            and all(map(value_types.is_count, value.values()))
        ),
        "cost",
        "{input, output}",
    ),
    "model": (value_types.is_text, "cost", "a text"),
    "provider": (value_types.is_text, "cost", "a text"),
    "duration_ms": (value_types.is_amount, "cost", "a number, 0 or more"),
}
_HEX: Final = frozenset("0123456789abcdef")


def check_path(path: Path) -> Sequence[Problem]:
    """Return all findings of the bundle at a path."""
    checker = _Checker(path.name)
    try:
        document = load(path)
    except UnreadableError as error:
        checker.add("", "json", str(error).removeprefix(f"{path}: "))
        return checker.problems
    checker.bundle(document)
    if not checker.problems and path.stat().st_size > OPENWOP_BUNDLE_MAX * 1.05:
        checker.add("", "size", f"{path.stat().st_size:,} bytes.")
    return checker.problems


class _Checker:
    def __init__(self, file: str) -> None:
        self._file = file
        self.problems: list[Problem] = []
        self._truncated = False

    def add(self, place: str, rule: str, message: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            known = RULES[rule]
            severity: Literal["warning", "error"] = "warning" if known.warning else "error"
            self.problems.append(Problem(self._file, place, rule, message, known.hint, severity))

    def bundle(self, document: Any) -> None:
        if not isinstance(document, dict):
            self.add("", "bundle-type", f"{_short(document)} (expected an object).")
            return
        self._truncated = document.get("truncated") is True
        for key in _NEEDED:
            if key not in document:
                self.add(f"/{key}", "key-missing", "missing.")
        self._version(document)
        if "generatedAt" in document:
            self._fields("", document, {"generatedAt": _TIME}, ())
        self._host(document)
        self._redaction(document)
        if "run" in document:
            self._run(document["run"])
        for name, look in (
            ("events", self._events),
            ("spans", self._spans),
            ("annotations", self._annotations),
        ):
            if name in document:
                if isinstance(document[name], list):
                    look(document[name], object_of(document.get("run")))
                else:
                    self.add(
                        f"/{name}", "bundle-type", f"{_short(document[name])} (expected an array)."
                    )
        self._metrics(document)
        self._cut(document)
        self._leaks(document)

    # --- the document ---------------------------------------------------------------------------

    def _version(self, document: Object) -> None:
        version = document.get("bundleVersion", "1.0")
        if version == "1":
            self.add("/bundleVersion", "bundle-version-short", "'1'.")
            return
        major, dot, minor = version.partition(".") if isinstance(version, str) else ("", "", "")
        if not (dot and major.isdecimal() and minor.isdecimal() and version.isascii()):
            self.add("/bundleVersion", "bundle-version", f'{_short(version)} (expected "1.0").')
        elif int(major[:18]) != 1:
            self.add(
                "/bundleVersion", "bundle-version-newer", f"{version[:20]!r} (this reader knows 1)."
            )

    def _host(self, document: Object) -> None:
        host = document.get("host", {})
        if "host" not in document:
            return
        if not isinstance(host, dict):
            self.add("/host", "bundle-type", f"{_short(host)} (expected an object).")
            return
        self._fields("/host", host, _HOST, ("name", "version"))
        for key in host.keys() - _HOST.keys():
            self.add(f"/host/{key[:100]}", "host-unknown-key", "not of the schema.")

    def _redaction(self, document: Object) -> None:
        mode, applied = document.get("redactionMode"), document.get("redactionApplied")
        if "redactionMode" in document and mode not in MODES:
            self.add(
                "/redactionMode",
                "redaction-mode",
                f"{_short(mode)} (expected one of {', '.join(MODES)}).",
            )
        if "redactionApplied" in document and not isinstance(applied, bool):
            self.add(
                "/redactionApplied", "bundle-type", f"{_short(applied)} (expected true or false)."
            )
        elif mode in MODES and applied is not None and applied == (mode == "passthrough"):
            self.add(
                "/redactionApplied", "redaction-malformed", f"{str(applied).lower()} with {mode}."
            )

    def _run(self, run: Any) -> None:
        if not isinstance(run, dict):
            self.add("/run", "bundle-type", f"{_short(run)} (expected an object).")
            return
        self._fields("/run", run, _RUN, ("runId", "workflowId", "status"))
        cost = object_of(run.get("metrics")).get("openwopCost")
        if "openwopCost" in object_of(run.get("metrics")):
            self._cost("/run/metrics/openwopCost", cost, strict=True)

    def _cost(self, place: str, cost: Any, *, strict: bool) -> None:
        if not isinstance(cost, dict):
            self.add(place, "cost", f"{_short(cost)} (expected an object).")
            return
        self._fields(place, cost, _COST, ())
        if strict:
            for key in cost.keys() - _COST.keys():
                self.add(f"{place}/{key[:100]}", "cost", "not of the schema.")
            if "duration_ms" in cost and not value_types.is_int(cost["duration_ms"]):
                self.add(f"{place}/duration_ms", "cost", "expected a whole number.")

    def _metrics(self, document: Object) -> None:
        metrics, events = document.get("metrics"), list_of(document.get("events"))
        if "metrics" not in document:
            return
        if not isinstance(metrics, dict):
            self.add("/metrics", "bundle-type", f"{_short(metrics)} (expected an object).")
            return
        if metrics.get("openwopCost") is not None:
            self._cost("/metrics/openwopCost", metrics["openwopCost"], strict=False)
        nodes = {
            event.get("nodeId")
            for event in events
            if isinstance(event, dict) and isinstance(event.get("nodeId"), str)
        }
        for key, rule, there in (
            ("eventCount", "event-count", len(events)),
            ("nodeCount", "node-count", len(nodes)),
        ):
            value = metrics.get(key, there)
            if not value_types.is_count(value):
                self.add(
                    f"/metrics/{key}", "bundle-type", f"{_short(value)} (expected a whole number)."
                )
            elif value < there or (value != there and not self._truncated):
                self.add(f"/metrics/{key}", rule, f"says {value}, and there are {there}.")

    def _cut(self, document: Object) -> None:
        if "truncated" in document and not isinstance(document["truncated"], bool):
            self.add("/truncated", "bundle-type", "expected true or false.")
        reason = document.get("truncatedReason")
        if "truncatedReason" in document and not isinstance(reason, str):
            self.add("/truncatedReason", "bundle-type", "expected a text.")
        elif self._truncated and not reason:
            self.add("/truncatedReason", "truncated-reason", "truncated, and no reason is given.")

    def _leaks(self, document: Object) -> None:
        try:
            text = encode(document).decode()
            # Our own masks replace secrets, and are not secrets.
            ours = decode(text.replace(REDACTED, MARK))
        except (RecursionError, ValueError):
            return
        counts: dict[str, int] = {}
        mask_values(ours, counts)
        for rule, count in sorted(counts.items()):
            self.add("", "secret-in-clear", f"{count} that look like a secret ({rule}).")
        if HostDetails().text(text) != text:
            self.add("", "machine-detail", "an internal address, host name or connection string.")

    # --- events, spans, annotations ---------------------------------------------------------------

    def _events(self, events: list[Any], run: Object) -> None:
        ids: set[str] = set()
        run_id, ended = run.get("runId"), None
        for number, event in enumerate(events):
            place = f"/events/{number}"
            if not isinstance(event, dict):
                self.add(place, "event-shape", f"{_short(event)} (expected an object).")
                continue
            self._fields(place, event, _EVENT, _EVENT_NEEDED, "event-shape")
            if isinstance(event.get("sequence"), int) and event["sequence"] != number:
                self.add(
                    f"{place}/sequence",
                    "event-sequence",
                    f"{event['sequence']} (expected {number}).",
                )
            if (
                isinstance(event.get("runId"), str)
                and isinstance(run_id, str)
                and event["runId"] != run_id
            ):
                self.add(f"{place}/runId", "run-differs", "not the run of this bundle.")
            if isinstance(own := event.get("eventId"), str):
                if own in ids:
                    self.add(f"{place}/eventId", "event-duplicate", "another event has it.")
                ids.add(own)
            if ended is not None:
                self.add(f"{place}/type", "terminal-last", f"after {ended}, which ends a run.")
            elif event.get("type") in TERMINAL:
                ended = event["type"]
            self._payload(place, event)
        if ended is None and not self._truncated and run.get("status") in ENDED:
            self.add(
                "/events", "terminal-missing", f"the run is {run['status']}, and no event says so."
            )

    def _payload(self, place: str, event: Object) -> None:
        kind, payload = event.get("type"), event.get("payload")
        expected = value_types.PAYLOADS.get(kind) if isinstance(kind, str) else None
        if expected is None or "payload" not in event:
            return
        if not isinstance(payload, dict):
            self.add(
                f"{place}/payload", "event-payload", f"{_short(payload)} (expected an object)."
            )
            return
        for key, holds in expected.items():
            if not holds(payload.get(key)):
                self.add(
                    f"{place}/payload/{key}",
                    "event-payload",
                    f"{_short(payload.get(key))}: not what {kind} needs.",
                )

    def _spans(self, spans: list[Any], run: Object) -> None:
        for number, span in enumerate(spans):
            place = f"/spans/{number}"
            if not isinstance(span, dict):
                self.add(place, "span-shape", f"{_short(span)} (expected an object).")
                continue
            self._fields(place, span, _SPAN, ("name",), "span-shape")
            own = span.get("spanId")
            if isinstance(own, str) and (len(own) != 16 or not _HEX.issuperset(own)):
                self.add(f"{place}/spanId", "span-id", f"{_short(own)} (expected 16 hex digits).")
            for key in object_of(span.get("attributes")):
                if not key.startswith("openwop."):
                    self.add(
                        f"{place}/attributes/{key[:100]}", "span-attribute", "not of openwop.*."
                    )

    def _annotations(self, annotations: list[Any], run: Object) -> None:
        for number, annotation in enumerate(annotations):
            place = f"/annotations/{number}"
            if not isinstance(annotation, dict):
                self.add(place, "annotation-shape", f"{_short(annotation)} (expected an object).")
                continue
            needed = tuple(key for key in _ANNOTATION if key != "note")
            self._fields(place, annotation, _ANNOTATION, needed, "annotation-shape")
            for key in annotation.keys() - _ANNOTATION.keys():
                self.add(f"{place}/{key[:100]}", "annotation-shape", "not of the schema.")
            target = object_of(annotation.get("target")).get("runId")
            if isinstance(target, str) and target != run.get("runId"):
                self.add(f"{place}/target/runId", "run-differs", "not the run of this bundle.")

    def _fields(
        self,
        place: str,
        value: Object,
        fields: _Fields,
        needed: Sequence[str],
        missing: str = "key-missing",
    ) -> None:
        for key in needed:
            if key not in value:
                self.add(f"{place}/{key}", missing, f"missing (expected {fields[key][2]}).")
        for key, (holds, rule, expected) in fields.items():
            if key in value and not holds(value[key]):
                self.add(f"{place}/{key}", rule, f"{_short(value[key])} (expected {expected}).")


def _short(value: Any) -> str:
    text = (
        repr(value)
        if not isinstance(value, (dict, list))
        else "an object"
        if isinstance(value, dict)
        else "an array"
    )
    return text if len(text) <= 60 else f"{text[:57]}..."
