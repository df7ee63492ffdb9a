"""Steps of a run without model calls: its messages, tools, or innermost steps."""

from __future__ import annotations

from vestige.query.evidence import Evidence
from vestige.query.trajectory.actions import body_item, error_text
from vestige.query.trajectory.step_drafts import Draft, Drafts
from vestige.query.trajectory.types import Item, Step
from vestige.record.prompt_segments import SPAN_TYPE as ASSEMBLY
from vestige.record.run import SpanInfo

_NOT_STEPS = frozenset([ASSEMBLY, "process", "run", "snapshot", "state", "file", "http"])


def steps_without_models(evidence: Evidence, drafts: Drafts) -> list[Draft]:
    """Return a draft for each tool, and for each innermost span that no tool contains.

    A test case that only has files is innermost.
    """
    parents = {span.parent_id for span in evidence.run.spans if span.type not in _NOT_STEPS}
    known = (
        {span_id: draft for span_id, draft in drafts.owner_of.items() if draft in drafts.drafts}
        if len(drafts.drafts) < 2
        else dict(drafts.owner_of)
    )
    found: list[Draft] = []
    seen: set[int] = set()
    for span in evidence.run.spans:
        draft = known.get(span.id)
        if draft is None:
            if span.type in _NOT_STEPS or (span.id in parents and not _is_message(span)):
                continue
            draft = _make_draft(evidence, drafts, span)
            drafts.owner_of[span.id] = draft
        if id(draft) not in seen:
            seen.add(id(draft))
            found.append(draft)
    return found


def _is_message(span: SpanInfo) -> bool:
    return "message_index" in span.attributes


def _make_draft(evidence: Evidence, drafts: Drafts, span: SpanInfo) -> Draft:
    scope = drafts.scope_of(span)
    step = Step(
        number=0,
        span=span,
        agent=span.component if _is_message(span) else drafts.scopes[scope].agent,
        conversation=0,
        parent=None,
        depth=0,
        status=span.status or "open",
        error=error_text(span),
        started_ns=span.started_ns,
        duration_ns=span.duration_ns,
        span_ids=[span.id],
    )
    draft = Draft(step, scope)
    draft.is_imported = True
    item: Item | None = body_item(evidence, span, "input", "user")
    if item is not None:
        key = hash(("input", item.text))
        drafts.messages.setdefault(key, [item])
        draft.keys, draft.roles = [key], ["user"]
    output = body_item(evidence, span, "output", "assistant")
    step.answer = [output] if output is not None else []
    return draft
