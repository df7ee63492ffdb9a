"""Build the trajectory of a run.

    trajectory = evidence.once(build_trajectory)

Drafts of steps are collected from the spans (step_drafts.py), put into reading order, and filled
with the contents that are new in each (fill_steps.py). The work is linear in the recorded bytes.
"""

from __future__ import annotations

from dataclasses import replace

from vestige._runtime.gc_pause import pause_gc
from vestige.providers.injected_context import strip_context
from vestige.query.evidence import Evidence
from vestige.query.trajectory.actions import body_item, error_text
from vestige.query.trajectory.conversations import ConversationSplitter, MessageKey
from vestige.query.trajectory.fill_steps import StepFiller
from vestige.query.trajectory.headline import (
    copy_as_answer,
    extract_task,
    make_headline,
    make_title,
)
from vestige.query.trajectory.step_drafts import Draft, Drafts
from vestige.query.trajectory.steps_without_model_calls import steps_without_models
from vestige.query.trajectory.task import has_manifest
from vestige.query.trajectory.types import Conversation, Item, Step, Trajectory
from vestige.record.run import SpanInfo


def build_trajectory(evidence: Evidence) -> Trajectory:
    """Return the run as steps."""
    with pause_gc():  # parsed requests are many objects without cycles
        return _build(evidence)


def _build(evidence: Evidence) -> Trajectory:
    drafts = Drafts(evidence)
    drafts.collect()
    if not evidence.of_type("llm"):
        drafts.drafts = steps_without_models(evidence, drafts)
    conversations = _split_conversations(drafts)
    ordered = _reading_order(drafts)
    for number, draft in enumerate(ordered, evidence.first_step):
        draft.step.number = number
    _link_steps(drafts, ordered, conversations)
    filler = StepFiller(evidence, drafts, conversations)
    task = _find_root_task(evidence, drafts)
    if task is not None:
        filler.add_task(task.text)
    _fill_all(filler, ordered)
    steps = [draft.step for draft in ordered]
    _add_logs(evidence, steps, drafts)
    for step in steps:
        step.headline = make_headline(step)
    return _finish(evidence, drafts, steps, conversations, task or _find_first_text(steps))


def _fill_all(filler: StepFiller, ordered: list[Draft]) -> None:
    """Fill the steps in order; a step with sub-agents is finished after their steps."""
    open_drafts: list[Draft] = []
    for draft in ordered:
        while open_drafts and draft.step.depth <= open_drafts[-1].step.depth:
            filler.finish(open_drafts.pop())
        filler.fill(draft)
        open_drafts.append(draft)
    for draft in reversed(open_drafts):
        filler.finish(draft)


# --- conversations and order ----------------------------------------------------------------------


def _split_conversations(drafts: Drafts) -> list[Conversation]:
    """Assign each draft a conversation: one for each agent, else by the messages sent."""
    splitters: dict[str | None, ConversationSplitter] = {}
    indexes: dict[tuple[str | None, int], int] = {}
    conversations: list[Conversation] = []
    for draft in drafts.drafts:
        found = drafts.scopes[draft.scope]
        if found.agent is not None or draft.is_imported:
            local = 0
        else:
            keys = [
                MessageKey(role, key) for role, key in zip(draft.roles, draft.keys, strict=True)
            ]
            is_final = not any(item.kind == "tool_call" for item in draft.step.answer)
            splitter = splitters.setdefault(draft.scope, ConversationSplitter())
            local = splitter.assign(keys if draft.has_request else None, is_final=is_final)
        index = indexes.setdefault((draft.scope, local), len(conversations))
        if index == len(conversations):
            agent = draft.step.agent if not draft.is_imported else None
            conversations.append(Conversation(index, agent, ""))
        draft.step.conversation = index
    return conversations


def _reading_order(drafts: Drafts) -> list[Draft]:
    """Return the drafts in order of time, with the steps of a sub-agent after its caller.

    Conversations that run at the same time and have the same system prompt, as in a service, are
    read one after the other.
    """
    inside: dict[int, list[Draft]] = {}
    top: list[Draft] = []
    for draft in drafts.drafts:
        owner = drafts.scopes[draft.scope].owner
        if owner is not None and owner is not draft:
            inside.setdefault(id(owner), []).append(draft)
        else:
            top.append(draft)
    ordered: list[Draft] = []
    stack = _group_conversations(top)[::-1]
    while stack:
        draft = stack.pop()
        ordered.append(draft)
        stack.extend(_by_action(draft, inside.get(id(draft), []), drafts)[::-1])
    return ordered


def _by_action(owner: Draft, inner: list[Draft], drafts: Drafts) -> list[Draft]:
    """Sort the steps of a step's sub-agents by the agent, then by time."""
    if len(inner) < 2:
        return inner
    order = {id(action): index for index, action in enumerate(owner.step.actions)}
    return sorted(inner, key=lambda draft: order.get(id(drafts.scopes[draft.scope].action), 0))


def _group_conversations(drafts: list[Draft]) -> list[Draft]:
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    kinds: dict[int, object] = {}
    for index, draft in enumerate(drafts):
        conversation = draft.step.conversation
        first.setdefault(conversation, index)
        last[conversation] = index
        system = next(
            (key for key, role in zip(draft.keys, draft.roles, strict=True) if role == "system"),
            None,
        )
        kinds.setdefault(conversation, (draft.scope, system))
    concurrent: set[int] = set()
    open_of_kind: dict[object, int] = {}
    for conversation in sorted(first, key=first.__getitem__):
        kind = kinds[conversation]
        other = open_of_kind.get(kind)
        if other is not None and last[other] > first[conversation]:
            concurrent |= {other, conversation}
        if other is None or last[conversation] > last[other]:
            open_of_kind[kind] = conversation

    def place(indexed: tuple[int, Draft]) -> tuple[int, int]:
        index, draft = indexed
        conversation = draft.step.conversation
        return (first[conversation] if conversation in concurrent else index), index

    return [draft for _, draft in sorted(enumerate(drafts), key=place)]


def _link_steps(drafts: Drafts, ordered: list[Draft], conversations: list[Conversation]) -> None:
    """Set the parents, depths and numbers of steps, actions and conversations."""
    for draft in ordered:
        step = draft.step
        scope = drafts.scopes[draft.scope]
        owner = scope.owner
        if owner is not None and owner is not draft:
            step.parent = owner.step.number
            step.depth = owner.step.depth + 1
            if scope.action is not None:
                scope.action.steps.append(step.number)
        conversation = conversations[step.conversation]
        if not conversation.steps and owner is not None and owner is not draft:
            conversation.parent = owner.step.conversation
        conversation.steps.append(step.number)


# --- the run --------------------------------------------------------------------------------------


def _add_logs(evidence: Evidence, steps: list[Step], drafts: Drafts) -> None:
    """Add each log record to the step of its span, or to the last step that began before it."""
    if not steps or not evidence.run.logs:
        return
    by_time = sorted(steps, key=lambda step: step.started_ns)
    at = 0
    for log in sorted(evidence.run.logs, key=lambda each: each.time_ns):
        owner = drafts.owner_of.get(log.span_id or "")
        if owner is not None:
            owner.step.logs.append(log)
            continue
        while at + 1 < len(by_time) and by_time[at + 1].started_ns <= log.time_ns:
            at += 1
        by_time[at].logs.append(log)


def _finish(
    evidence: Evidence,
    drafts: Drafts,
    steps: list[Step],
    conversations: list[Conversation],
    task: Item | None,
) -> Trajectory:
    info = evidence.run.info
    by_span = {
        span_id: draft.step.number
        for span_id, draft in drafts.owner_of.items()
        if draft.step.number
    }
    root = evidence.root
    for conversation in conversations:
        conversation.opening = _find_opening(steps, conversation)
    return Trajectory(
        task=task,
        title=make_title(task.text) if task is not None else "",
        outcome=info.outcome,
        error=error_text(root) if root is not None else None,
        answer=_find_answer(evidence, drafts, steps),
        steps=steps,
        conversations=conversations,
        by_span=by_span,
    )


def _find_opening(steps: list[Step], conversation: Conversation) -> str:
    for number in conversation.steps[:3]:
        for item in steps[number - steps[0].number].new_input:
            if item.role == "user" and item.kind == "text":
                return item.text[:500]
    return ""


def _find_root_task(evidence: Evidence, drafts: Drafts) -> Item | None:
    """Return the input of the run, or of its first agent."""
    for span in _outermost(evidence, drafts):
        item = body_item(evidence, span, "input", "user")
        if item is not None and (task := extract_task(item.text)).strip():
            item.text = task
            return item
    return None


def _find_first_text(steps: list[Step]) -> Item | None:
    """Return the first text of the user, without context that its program adds.

    Some programs ask for a title first: then a later conversation begins with the same text.
    """
    first = next((step for step in steps if step.new_input), None)
    found = _find_texts(first) if first is not None else []
    if first is None or not found:
        return None
    for step in steps:
        if step.conversation != first.conversation and step.new_input:
            texts = [item.text for item in _find_texts(step)[:1]]
            found = [item for item in found if item.text in texts] or found
            break
    item = found[0]
    text = strip_context(item.text)
    return replace(item, text=text) if text and text != item.text.strip() else item


def _find_texts(step: Step) -> list[Item]:
    """Return the new texts of the user, without those that are only context."""
    texts = [
        item
        for item in step.new_input
        if item.role == "user" and item.kind == "text" and item.text.strip()
    ]
    return [item for item in texts if strip_context(item.text)] or texts


def _outermost(evidence: Evidence, drafts: Drafts) -> list[SpanInfo]:
    """Return the run's root and its outermost agents, in order."""
    root = evidence.root
    found = [root] if root is not None and not has_manifest(root) else []
    found += [
        scope.span
        for scope in drafts.scopes.values()
        if scope.span is not None and scope.agent is not None and scope.owner is None
    ]
    return found


def _find_answer(evidence: Evidence, drafts: Drafts, steps: list[Step]) -> Item | None:
    """Return the run's output, else its last answer, else its agent's output."""
    root = evidence.root
    if root is not None and root.output is not None:
        item = body_item(evidence, root, "output", "assistant")
        if item is not None and not _is_empty(item.text):
            return item
    last = next((step for step in reversed(steps) if step.depth == 0 and _has_text(step)), None)
    if last is not None and not last.actions:
        texts = [item for item in last.answer if item.kind == "text" and item.text.strip()]
        if texts:
            return copy_as_answer(texts[-1], "\n".join(item.text for item in texts))
    for span in reversed(_outermost(evidence, drafts)):
        item = body_item(evidence, span, "output", "assistant")
        if item is not None and item.text.strip():
            return item
    if last is not None:
        for action in reversed(last.actions):
            if action.name == "final_answer" and action.arguments is not None:
                return copy_as_answer(action.arguments, action.arguments.text)
    return None


def _has_text(step: Step) -> bool:
    return any(item.kind == "tool_call" or not _is_empty(item.text) for item in step.answer)


def _is_empty(text: str) -> bool:
    """Return True for no text, and for the word that ends a group chat."""
    return text.strip(" \n.*") in ("", "TERMINATE")
