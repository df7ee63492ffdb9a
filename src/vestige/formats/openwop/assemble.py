"""Put a bundle together: one pass, and never larger than its cap.

    raw = assemble(story, now_ns)                      # at most 8,000,000 bytes
    page = poll(story, after=41)                       # the events after that one

Events are a strict prefix: from the first one that does not fit, they are only counted. The same
holds for spans and annotations. The fields of the run itself are bounded by
formats/openwop/from_records.py, so there is always room for the first events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from vestige._version import __version__
from vestige.formats.openwop.constants import BUNDLE_VERSION, EVENTS_CUT
from vestige.formats.openwop.from_records import Story
from vestige.formats.openwop.redaction_modes import encode
from vestige.formats.openwop.times import render_time
from vestige.limits import OPENWOP_PART_MAX

HOST: Final = {"name": "vestige", "version": __version__, "vendor": "vestige"}
_CLOSING: Final = 400
"""Bytes reserved for the fields after the lists: flags, a reason, and brackets."""


@dataclass(slots=True)
class BundleSection:
    """The beginning of a list, as far as there was room."""

    items: list[bytes]
    size_bytes: int
    """The length of the items, with a comma after each."""
    is_complete: bool


def assemble(story: Story, generated_ns: int, max_events: int | None = None) -> bytes:
    """Return the bundle of a run. `max_events` lowers the cap, and never raises it."""
    head: dict[str, Any] = {
        "bundleVersion": BUNDLE_VERSION,
        "generatedAt": render_time(generated_ns),
        "host": HOST,
    }
    parts = [encode(head)[:-1], b',"run":', story.snapshot, b',"metrics":', story.metrics]
    room = story.cap_bytes - sum(map(len, parts)) - _CLOSING
    notes = _keep(story.annotations(), min(room, OPENWOP_PART_MAX, story.cap_bytes // 8))
    room -= notes.size_bytes
    source = iter(story.spans())
    # Spans get a quarter, however many events there are, and the space that events leave.
    spans = _keep(source, room // 4)
    events = _keep(story.events(), room - spans.size_bytes, max_events)
    if not spans.is_complete and events.is_complete:
        _go_on(spans, source, room - events.size_bytes)
    for name, section in (("events", events), ("spans", spans), ("annotations", notes)):
        parts += [f',"{name}":['.encode(), b",".join(section.items), b"]"]
    parts.append(encode(_flags(story, events, spans, notes)).replace(b"{", b",", 1))
    return b"".join(parts)


def _flags(
    story: Story, events: BundleSection, spans: BundleSection, notes: BundleSection
) -> dict[str, Any]:
    flags: dict[str, Any] = {
        "redactionApplied": story.privacy.applied,
        "redactionMode": story.privacy.mode,
    }
    cut = [] if events.is_complete else [EVENTS_CUT]
    cut += [] if spans.is_complete else ["spans_truncated_to_size_cap"]
    cut += [] if notes.is_complete else ["annotations_truncated_to_size_cap"]
    cut += [f"{name}_truncated_to_size_cap" for name in story.cut]
    return flags | {"truncated": True, "truncatedReason": cut[0]} if cut else flags


def _keep(items: Iterable[bytes], room: int, count_max: int | None = None) -> BundleSection:
    section = BundleSection([], 0, True)
    _go_on(section, items, room, count_max)
    return section


def _go_on(
    section: BundleSection, items: Iterable[bytes], room: int, count_max: int | None = None
) -> None:
    section.is_complete = True
    for item in items:
        full = count_max is not None and len(section.items) >= count_max
        if full or section.size_bytes + len(item) + 1 > room:
            section.is_complete = False
            return
        section.items.append(item)
        section.size_bytes += len(item) + 1


@dataclass(frozen=True, slots=True)
class Page:
    """Events that follow one another; the rest is one more question."""

    events: list[bytes]
    is_complete: bool
    """The run has ended, and its last event is among these, or was before them."""

    def render(self) -> bytes:
        complete = b"true" if self.is_complete else b"false"
        return b'{"events":[' + b",".join(self.events) + b'],"isComplete":' + complete + b"}"


def poll(story: Story, after: int = -1) -> Page:
    """Return events after a sequence number: as many as fit into a bundle, at least one."""
    found: Iterator[bytes] = story.events(after)
    events: list[bytes] = []
    size = 0
    for event in found:
        if events and size + len(event) > story.cap_bytes:
            return Page(events, False)
        events.append(event)
        size += len(event) + 1
    return Page(events, story.has_ended)
