"""Spans as drafts of steps: which model call each tool, agent and container belongs to.

Spans are visited in the order in which they happened. An action belongs to the model call that
requested it, by the id of the call, else to the latest one in the nearest enclosing span.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vestige.providers.chat_types import Request, Response
from vestige.query.body_cache import BODY_READ_MAX
from vestige.query.evidence import Evidence
from vestige.query.trajectory.actions import (
    base_name,
    error_text,
    is_same_tool,
    make_action,
    merge_inner,
)
from vestige.query.trajectory.conversations import raw_key
from vestige.query.trajectory.message_items import (
    answer_items,
    make_item,
    message_items,
    request_of_text,
    response_of_text,
)
from vestige.query.trajectory.span_roles import SpanTree, agent_name, find_call_id, is_scope
from vestige.query.trajectory.types import Action, Item, Step
from vestige.record.run import BodyRef, SpanInfo

TEXT_TOTAL_MAX = 64 * 1024 * 1024
"""Characters of all items of a run; further items have only their beginning."""
TEXT_BEGINNING = 2_000


@dataclass(slots=True, eq=False)
class Draft:
    """A step before its contents are compared."""

    step: Step
    scope: str | None
    """Id of the enclosing agent or tool span."""
    keys: list[int] = field(default_factory=list)
    """Keys of the messages of its request, in order."""
    roles: list[str] = field(default_factory=list)
    has_request: bool = False
    containers: list[SpanInfo] = field(default_factory=list)
    """Spans that contain only this step."""
    requested: dict[str, Item] = field(default_factory=dict)
    """Tool calls of the answer, by id."""
    is_imported: bool = False
    """Part of an imported list of messages, which is one conversation."""
    conversation: int = 0
    """Index within its scope."""


@dataclass(slots=True, eq=False)
class Scope:
    """An agent, or a tool that contains steps."""

    span: SpanInfo | None
    agent: str | None
    owner: Draft | None = None
    action: Action | None = None


class Drafts:
    """The drafts of a run, in order of time."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.tree = SpanTree(evidence)
        self.drafts: list[Draft] = []
        self.scopes: dict[str | None, Scope] = {None: Scope(None, None)}
        self.messages: dict[int, list[Item]] = {}
        """Items of each message, by key."""
        self.owner_of: dict[str, Draft] = {}
        """Draft of each span."""
        self._latest: dict[str | None, Draft] = {}
        self._by_call_id: dict[str, Draft] = {}
        self._by_name: dict[tuple[str | None, str], Draft] = {}
        self._containers: dict[str, list[Draft]] = {}
        self._text_length = 0

    def collect(self) -> None:
        """Visit every span once."""
        containers: list[SpanInfo] = []
        for span in self.evidence.run.spans:
            match self.tree.part(span):
                case "call":
                    self._add_call(span)
                case "action":
                    self._add_action(span)
                case "agent":
                    self._add_agent(span)
                case "container" if span.id in self.tree.around_calls:
                    containers.append(span)
                case "container":
                    self._add_leaf(span)
        for span in containers:
            self._add_container(span)

    # --- scopes -----------------------------------------------------------------------------------

    def scope_of(self, span: SpanInfo) -> str | None:
        """Return the id of the nearest enclosing agent or tool that is part of the story."""
        for parent in self.tree.ancestors(span):
            if is_scope(parent) and parent.id in self.scopes:
                return parent.id
        return None

    # --- model calls ------------------------------------------------------------------------------

    def _add_call(self, span: SpanInfo) -> None:
        scope = self.scope_of(span)
        wrappers = self.tree.wrappers_of(span)
        draft = Draft(self._make_step(span, wrappers, scope), scope)
        draft.is_imported = "message_index" in span.attributes
        self._read_request(draft, [span, *wrappers])
        self._read_response(draft, [span, *wrappers])
        self.drafts.append(draft)
        for each in (span, *wrappers):
            self.owner_of[each.id] = draft
        self._latest[scope] = self._latest[span.id] = draft
        for parent in self.tree.ancestors(span):
            if parent.id == scope:
                break
            self._latest[parent.id] = draft
            inside = self._containers.setdefault(parent.id, [])
            if len(inside) < 2:
                inside.append(draft)

    def _make_step(self, span: SpanInfo, wrappers: list[SpanInfo], scope: str | None) -> Step:
        named = next(
            (
                value
                for key in ("gen_ai.agent.name", "agent_name", "agent.name")
                if isinstance(value := span.attributes.get(key), str) and value
            ),
            None,
        )
        if named is None and "message_index" in span.attributes:
            named = span.component
        facts = span.attributes
        outer = wrappers[-1] if wrappers else span
        error = error_text(span)
        if error is None:
            error = next((text for each in wrappers if (text := error_text(each))), None)
        return Step(
            number=0,
            span=span,
            agent=named or self._agent_of(scope),
            conversation=0,
            parent=None,
            depth=0,
            status=span.status or "open",
            error=error,
            model=_find_text(facts, "model"),
            finish_reason=_find_text(facts, "finish_reason"),
            input_tokens=_find_count(facts, "input_tokens"),
            output_tokens=_find_count(facts, "output_tokens"),
            started_ns=outer.started_ns,
            duration_ns=outer.duration_ns if outer.duration_ns is not None else span.duration_ns,
            span_ids=[span.id, *(each.id for each in wrappers)],
        )

    def _agent_of(self, scope: str | None) -> str | None:
        while True:
            found = self.scopes[scope]
            if found.agent is not None or found.span is None:
                return found.agent
            scope = self.scope_of(found.span)

    def _read_request(self, draft: Draft, spans: list[SpanInfo]) -> None:
        for span in spans:
            if span.input is None or _size(span.input) > BODY_READ_MAX:
                continue
            request = self.evidence.request(span)
            text = self.evidence.input(span) if request is None else None
            if text is not None:
                request = request_of_text(text)
            if request is not None:
                self._add_messages(draft, request, span)
                return
            if text is not None and text.strip():
                item = self._keep(make_item("user", "text", text, span.id, "input"))
                key = hash(("input", text))
                self.messages.setdefault(key, [item])
                draft.keys, draft.roles = [key], ["user"]
                return

    def _add_messages(self, draft: Draft, request: Request, span: SpanInfo) -> None:
        draft.has_request = True
        draft.step.model = draft.step.model or request.model
        start = span.attributes.get("message_index")
        for index, message in enumerate(request.messages):
            key = raw_key(message)
            known = self.messages.get(key)
            if known is None:
                known = message_items(message, index, span.id)
                if isinstance(start, int):  # an imported message knows only its own index
                    for item in known:
                        item.message_index = None
                self.messages[key] = [self._keep(item) for item in known]
            draft.keys.append(key)
            draft.roles.append(known[0].role)

    def _read_response(self, draft: Draft, spans: list[SpanInfo]) -> None:
        for span in spans:
            if span.output is None or _size(span.output) > BODY_READ_MAX:
                continue
            response = self.evidence.response(span)
            text = self.evidence.output(span) if response is None else None
            if text is not None:
                response = response_of_text(text)
            if response is not None:
                self._add_answer(draft, response, span)
                return
            if text is not None and text.strip():
                draft.step.answer = [
                    self._keep(make_item("assistant", "text", text, span.id, "output"))
                ]
                return

    def _add_answer(self, draft: Draft, response: Response, span: SpanInfo) -> None:
        step = draft.step
        step.answer = [self._keep(item) for item in answer_items(response, span.id)]
        step.model = step.model or response.model
        step.finish_reason = step.finish_reason or response.finish_reason
        step.error = step.error or response.error
        index = span.attributes.get("message_index")
        for item in step.answer:
            if isinstance(index, int):
                item.message_index = index
            if item.kind != "tool_call":
                continue
            if item.call_id:
                draft.requested[item.call_id] = item
                self._by_call_id[item.call_id] = draft
            self._by_name[draft.scope, item.name or ""] = draft

    def _keep(self, item: Item) -> Item:
        self._text_length += len(item.text)
        if self._text_length > TEXT_TOTAL_MAX and len(item.text) > TEXT_BEGINNING:
            item.text, item.truncated = item.text[:TEXT_BEGINNING], True
        return item

    # --- actions ----------------------------------------------------------------------------------

    def _add_action(self, span: SpanInfo) -> None:
        scope = self.scope_of(span)
        enclosing = self.scopes[scope]
        action = make_action(self.evidence, span, "tool", base_name(span))
        for item in (action.arguments, action.result):
            if item is not None:
                self._keep(item)
        outer = enclosing.span
        if enclosing.action is not None and outer is not None and is_same_tool(outer, span):
            merge_inner(enclosing.action, action)
            if enclosing.owner is not None:
                self.owner_of[span.id] = enclosing.owner
            return
        owner = self._find_owner(span, scope, action.name)
        if owner is None:
            owner = self._step_without_call(span, scope)
        owner.step.actions.append(action)
        self.owner_of[span.id] = owner
        if span.type == "tool":
            self.scopes[span.id] = Scope(span, None, owner, action)

    def _add_agent(self, span: SpanInfo) -> None:
        scope = self.scope_of(span)
        text = self.evidence.input(span) if _size(span.input) <= BODY_READ_MAX else None
        name = agent_name(span, text)
        enclosing = self.scopes[scope]
        owner = self._find_owner(span, scope, name)
        if owner is None and enclosing.owner is not None:
            owner = enclosing.owner
        if owner is None:
            self.scopes[span.id] = Scope(span, name)
            return
        if enclosing.action is not None and enclosing.owner is owner:
            # An agent that runs as a tool: the tool's span is its action.
            self.scopes[span.id] = Scope(span, name, owner, enclosing.action)
            enclosing.action.span_ids.append(span.id)
        else:
            action = make_action(self.evidence, span, "agent", name)
            owner.step.actions.append(action)
            self.scopes[span.id] = Scope(span, name, owner, action)
        self.owner_of[span.id] = owner

    def _find_owner(self, span: SpanInfo, scope: str | None, name: str) -> Draft | None:
        call_id = find_call_id(span)
        if call_id is not None and call_id in self._by_call_id:
            return self._by_call_id[call_id]
        nearest: Draft | None = None
        for parent in self.tree.ancestors(span):
            nearest = self._latest.get(parent.id)
            if nearest is not None or parent.id == scope:
                break
        nearest = nearest or self._latest.get(scope)
        requester = self._by_name.get((scope, name))
        if requester is not None and requester is not nearest:
            requests = nearest.step.answer if nearest is not None else ()
            if not any(item.kind in ("tool_call", "code") for item in requests):
                return requester
        if nearest is None and scope is not None:
            return self.scopes[scope].owner
        return nearest

    def _step_without_call(self, span: SpanInfo, scope: str | None) -> Draft:
        """Return a step for an action that no model call in the run precedes."""
        step = Step(
            number=0,
            span=span,
            agent=self._agent_of(scope),
            conversation=0,
            parent=None,
            depth=0,
            status=span.status or "open",
            started_ns=span.started_ns,
            duration_ns=span.duration_ns,
            span_ids=[],
        )
        draft = Draft(step, scope)
        self.drafts.append(draft)
        return draft

    # --- containers -------------------------------------------------------------------------------

    def _add_container(self, span: SpanInfo) -> None:
        """Add a span that contains a single step to it."""
        inside = self._containers.get(span.id, ())
        if len(inside) == 1:
            inside[0].containers.append(span)
            inside[0].step.span_ids.append(span.id)
            self.owner_of.setdefault(span.id, inside[0])

    def _add_leaf(self, span: SpanInfo) -> None:
        """Add a span without model calls to the latest step; a failed one is an action."""
        owner = self._find_owner(span, self.scope_of(span), "")
        if owner is None:
            return
        self.owner_of.setdefault(span.id, owner)
        if span.status in ("ok", None) or self._has_failed_child(span):
            owner.step.span_ids.append(span.id)
        else:
            owner.step.actions.append(make_action(self.evidence, span, "step", span.name))

    def _has_failed_child(self, span: SpanInfo) -> bool:
        children = self.evidence.children.get(span.id, ())
        return any(child.status not in ("ok", None) for child in children)


def _find_text(facts: Mapping[str, object], name: str) -> str | None:
    value = facts.get(name)
    return value if isinstance(value, str) and value else None


def _find_count(facts: Mapping[str, object], name: str) -> int | None:
    value = facts.get(name)
    return value if type(value) is int else None


def _size(ref: BodyRef | None) -> int:
    return 0 if ref is None or ref.id is None else ref.size_bytes
