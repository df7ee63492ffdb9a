"""The rules of an OpenWOP debug bundle: id, requirement, and the section that states it.

Elsewhere: formats/openwop/validate.py checks them; docs/reference/rules.md is generated from this
table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that a bundle must follow."""

    id: str
    meaning: str
    """The requirement, in one line."""
    clause: str
    """The source: a published schema, or a section of the specification."""
    hint: str = ""
    warning: bool = False
    """The text leaves it open, or it cannot be known for sure: a warning."""


_BUNDLE = "debug-bundle.schema.json"
_RUN = "run-snapshot.schema.json"
_EVENT = "run-event.schema.json"
_PAYLOAD = "run-event-payloads.schema.json"
_NOTE = "annotation.schema.json"
_REDACTION = "Redaction guarantees"
_METRICS = "metrics field"
_SCOPE = "Authorization and scoping"
_SIZE = "Bundle size limits"

_ALL: Final = (
    Rule("json", "A bundle is a JSON document.", "Response shape"),
    Rule("bundle-type", "A bundle is an object; its parts have the types of the schema.", _BUNDLE),
    Rule("key-missing", "Required keys are there.", f"{_BUNDLE}, {_RUN}"),
    Rule("bundle-version", "`bundleVersion` is two numbers with a dot.", _BUNDLE),
    Rule(
        "bundle-version-short",
        '`bundleVersion` has a dot: the text\'s own "1" is read, its schema wants "1.0".',
        _BUNDLE,
        'Write "1.0".',
        True,
    ),
    Rule("bundle-version-newer", "The major version is 1.", "Top-level", "Upgrade vestige."),
    Rule(
        "text-empty",
        "Names and ids are not empty, nor longer than the schema allows.",
        f"{_BUNDLE}, {_RUN}, {_EVENT}",
    ),
    Rule("time", "Times are ISO 8601 with a zone.", f"{_BUNDLE}, {_RUN}, {_EVENT}"),
    Rule("host-unknown-key", "`host` has name, version and vendor, and nothing else.", _BUNDLE),
    Rule("run-status", "`run.status` is one that both schemas know.", f"{_BUNDLE}, {_RUN}"),
    Rule(
        "run-error",
        "`run.error`, where there is one, has a code and a message.",
        _RUN,
        "Leave it out where nothing failed.",
    ),
    Rule(
        "cost",
        "`openwopCost` has numbers that are not negative, and tokens as input and output.",
        f"{_BUNDLE}, {_RUN}",
    ),
    Rule("redaction-mode", "`redactionMode` is mask, omit, hash or passthrough.", _BUNDLE),
    Rule(
        "redaction-malformed",
        "`redactionApplied` is true, unless the mode is passthrough: then it is false.",
        _REDACTION,
    ),
    Rule(
        "secret-in-clear",
        "It contains no credential in clear.",
        _REDACTION,
        "Export it again; revoke what was shown.",
        True,
    ),
    Rule(
        "machine-detail",
        "It contains no internal address, host name or connection string.",
        _SCOPE,
        "Export it again.",
        True,
    ),
    Rule(
        "event-shape",
        "An event has eventId, runId, type, payload, timestamp and sequence, as the schema has "
        "them.",
        _EVENT,
    ),
    Rule("event-type", "An event's type is of the catalog, or has a vendor's prefix.", _EVENT),
    Rule(
        "event-sequence",
        "Events are in order: sequence counts from 0, without a gap.",
        "events field",
    ),
    Rule("event-duplicate", "No two events have the same eventId.", _EVENT),
    Rule("event-payload", "The payload of a known event has what it needs.", _PAYLOAD, "", True),
    Rule("run-differs", "Every event is of the run that the bundle is about.", _SCOPE),
    Rule("terminal-last", "A run ends with one terminal event, which is the last.", "events field"),
    Rule(
        "terminal-missing",
        "A run that has ended has a terminal event, unless the bundle is truncated.",
        "events field",
    ),
    Rule(
        "event-count",
        "`metrics.eventCount` is the number of events; of a truncated bundle, of all there were.",
        _METRICS,
    ),
    Rule(
        "node-count",
        "`metrics.nodeCount` is the number of distinct nodeIds; of a truncated bundle, of all "
        "there were.",
        _METRICS,
        "",
        True,
    ),
    Rule("span-shape", "A span has a name, and its fields have the types of the schema.", _BUNDLE),
    Rule("span-id", "A span's id is 16 hex digits.", "spans field", "", True),
    Rule(
        "span-attribute", "Span attributes outside `openwop.*` are filtered.", _REDACTION, "", True
    ),
    Rule(
        "annotation-shape",
        "An annotation has an id, a target in this run, a signal, an actor and a time.",
        _NOTE,
    ),
    Rule("truncated-reason", "A truncated bundle says why.", _SIZE),
    Rule(
        "size",
        "A bundle is at most 8 MB.",
        _SIZE,
        "Hosts may raise the cap; others may refuse it.",
        True,
    ),
)

RULES: Final = {rule.id: rule for rule in _ALL}
