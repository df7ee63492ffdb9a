"""Fill the steps with the contents that are new in them.

Steps are filled in reading order. A message that was shown is counted in `repeated`. A tool's
result goes to the action of its call, wherever a later request repeats it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from vestige.query.evidence import Evidence
from vestige.query.trajectory.actions import body_item, error_text, is_same_value, unexecuted_action
from vestige.query.trajectory.seen_contents import REPEAT_LENGTH, SeenContents, normalize
from vestige.query.trajectory.step_drafts import Draft, Drafts
from vestige.query.trajectory.types import Action, Conversation, Item, Repeat, Step
from vestige.record.run import SpanInfo

SHARED_MESSAGES = 2
"""Messages of another conversation from which on a conversation continues that one."""
SHARED_TEXT = 12
"""Shorter messages, such as a greeting, occur in many conversations."""


class StepFiller:
    """Fills the steps of one run."""

    def __init__(
        self, evidence: Evidence, drafts: Drafts, conversations: list[Conversation]
    ) -> None:
        self._evidence = evidence
        self._drafts = drafts
        self._families = _families(conversations)
        self._seen = SeenContents()
        self._shown: dict[tuple[int, int], int] = {}
        """The number of times that each message key was shown, by family."""
        self._actions: dict[tuple[int, str], Action] = {}
        """The latest action of each call id, by family."""
        self._pending: dict[int, list[Action]] = {}
        """Actions of each conversation whose results no request has repeated yet, in order."""
        self._requests: dict[int, list[int]] = {}
        """Message keys of the latest request of each conversation."""
        self._shown_in: dict[int, int] = {}
        """The step of each action, by the id of the object."""
        self._begun: set[int] = set()
        self._calls: dict[tuple[int, int], Action] = {}
        """Actions by the key of their arguments or code, by family."""

    def add_task(self, text: str) -> None:
        """Remember the lines of the task, which views show before the first step."""
        self._seen.add_lines(text, 0)

    def fill(self, draft: Draft) -> None:
        """Fill the input, the answer and the actions of a step."""
        family = self._find_family(draft)
        self._fill_input(draft, family)
        self._fill_answer(draft, family)
        self._fill_actions(draft, family)
        _set_duration(draft.step)

    def finish(self, draft: Draft) -> None:
        """Compare the results of a step's actions, after the steps of its sub-agents."""
        step = draft.step
        family = self._families[step.conversation]
        # Code ends after the tools and agents that it calls.
        for action in sorted(step.actions, key=lambda each: each.kind == "code"):
            for text in (action.result.text if action.result else None, action.error):
                if text:
                    self._compare(action, text, step, family)
        if step.error:  # the next request repeats it
            self._seen.add(step.error, step.number, family)

    def _compare(self, action: Action, text: str, step: Step, family: int) -> None:
        result = action.result
        if result is not None and text is result.text:
            self._set_repeats(result, family)
        self._seen.add(text, step.number, family)

    def _set_repeats(self, result: Item, family: int) -> None:
        """Mark the passages of a result that earlier steps show."""
        text = result.text
        shown = self._seen.find(text, family)
        if shown and len(text) >= REPEAT_LENGTH:
            result.repeats = [Repeat(0, len(text), shown)]
        else:
            result.repeats = self._seen.find_repeats(text)

    def _find_family(self, draft: Draft) -> int:
        """Return the family of a conversation; one that repeats parts of another one joins it."""
        index = draft.step.conversation
        family = self._families[index]
        if family != index or index in self._begun:
            return family
        self._begun.add(index)
        votes: Counter[int] = Counter()
        for key in draft.keys:
            for item in self._drafts.messages[key]:
                found = self._seen.family_of(item.text) if item.role != "system" else None
                if found is not None and len(item.text) >= SHARED_TEXT:
                    votes[found] += 1
        if votes and max(votes.values()) >= SHARED_MESSAGES:
            self._families[index] = max(votes, key=votes.__getitem__)
        return self._families[index]

    # --- input ------------------------------------------------------------------------------------

    def _fill_input(self, draft: Draft, family: int) -> None:
        step = draft.step
        occurrences: Counter[int] = Counter()
        earlier = self._requests.get(step.conversation, [])
        self._requests[step.conversation] = draft.keys
        for index, key in enumerate(draft.keys):
            occurrences[key] += 1
            if self._shown.get((family, key), 0) >= occurrences[key]:
                step.repeated += 1
                continue
            self._shown[family, key] = occurrences[key]
            items = self._drafts.messages[key]
            if index < len(earlier) and earlier[index] != key:
                items = _drop_shown_start(items, self._drafts.messages[earlier[index]])
            new = [
                item for item in items if not self._is_known(step, item, family, occurrences[key])
            ]
            if not new:
                step.repeated += 1
            for item in new:
                step.new_input.append(item)
                self._seen.add(item.text, step.number, family)

    def _is_known(self, step: Step, item: Item, family: int, occurrence: int) -> bool:
        """Return True if an earlier step shows an item, or if it went to its action."""
        if item.kind == "tool_call":
            return self._is_known_call(item, family)
        if item.kind == "tool_result" and self._give_result(step, item, family):
            return True
        if not item.text.strip():
            return True
        shown_in = self._seen.find(item.text, family, occurrence)
        if shown_in is not None:
            return True
        item.repeats = self._seen.find_repeats(item.text)
        return bool(item.repeats) and self._seen.is_contained(item.text, item.repeats)

    def _is_known_call(self, item: Item, family: int) -> bool:
        """Match a call in the history with the action of the answer that requested it."""
        if item.call_id and (family, item.call_id) in self._actions:
            return True
        action = self._calls.get((family, hash(normalize(item.text))))
        if action is not None:
            if item.call_id:  # an id that the framework made up after the answer
                self._actions[family, item.call_id] = action
            return True
        return self._seen.find(item.text, family) is not None and bool(item.text.strip())

    def _give_result(self, step: Step, item: Item, family: int) -> bool:
        """Give a result in a request to its action. False if it differs from the recorded one."""
        action = self._actions.get((family, item.call_id)) if item.call_id else None
        pending = self._pending.get(step.conversation, [])
        if action is None and pending:
            action = next((each for each in pending if each.result is None), pending[0])
        if action is None:
            return False
        if action in pending:
            pending.remove(action)
        if action.result is None and not action.error:
            action.result = item
            self._set_repeats(item, family)
            if action.status == "unanswered":
                action.status = "error" if item.is_error else "ok"
            self._seen.add(item.text, self._shown_in.get(id(action), step.number), family)
            return True
        if self._seen.find(item.text, family) is not None:
            return True
        if action.error and _is_error_of(item, action):
            return True
        if action.result is not None and is_same_value(item.text, action.result.text):
            return True
        repeats = self._seen.find_repeats(item.text)
        item.repeats = repeats
        return bool(repeats) and self._seen.is_contained(item.text, repeats)

    # --- answer and actions -----------------------------------------------------------------------

    def _fill_answer(self, draft: Draft, family: int) -> None:
        step = draft.step
        for item in step.answer:
            if not item.text.strip():
                continue
            shown_in = self._seen.find(item.text, family)
            if (
                item.kind != "tool_call"
                and shown_in
                and shown_in != step.number
                and len(item.text) >= REPEAT_LENGTH
            ):
                item.repeats = [Repeat(0, len(item.text), shown_in)]
            elif item.kind == "text":  # a plan quotes the task
                quotes = self._seen.find_repeats(item.text)
                item.repeats = [quote for quote in quotes if quote.step == 0]
            self._seen.add(item.text, step.number, family)
        parts = [item.text for item in step.answer if item.kind in ("text", "code")]
        if len(parts) > 1:  # histories contain the answer as one text
            self._seen.add(_as_written(step.answer), step.number, family, with_lines=False)

    def _fill_actions(self, draft: Draft, family: int) -> None:
        step = draft.step
        executed = {action.call_id for action in step.actions if action.call_id}
        unnamed = Counter(
            action.name for action in step.actions if not action.call_id and action.span_id
        )
        added: list[Action] = []
        for item in step.answer:
            if item.kind == "tool_call":
                if item.call_id in executed:
                    continue
                if unnamed[item.name or ""]:
                    unnamed[item.name or ""] -= 1
                    self._match(step, item, family)
                    continue
                added.append(unexecuted_action(item))
            elif item.kind == "code":
                added.append(unexecuted_action(item))
        self._read_containers(draft, added)
        step.actions = [*added, *step.actions] if _has_code(added) else [*step.actions, *added]
        self._drop_unexecuted_code(step)
        pending = self._pending.setdefault(step.conversation, [])
        if step.actions:
            pending.clear()
        for action in step.actions:
            self._shown_in[id(action)] = step.number
            if action.call_id:
                self._actions[family, action.call_id] = action
            if action.arguments is not None:
                if action.kind != "code" and _has_code(step.actions):
                    action.arguments.repeats = self._seen.find_repeats(action.arguments.text)
                if action.steps:  # the sub-agent's prompt repeats its task
                    self._seen.add_lines(action.arguments.text, step.number)
                self._calls[family, hash(normalize(action.arguments.text))] = action
            pending.append(action)

    def _match(self, step: Step, item: Item, family: int) -> None:
        """Give a call's id to the action of the same name that has none."""
        for action in step.actions:
            if action.call_id is None and action.name == item.name:
                action.call_id = item.call_id
                return

    def _read_containers(self, draft: Draft, added: list[Action]) -> None:
        """Read the results and errors of the spans around a step."""
        step = draft.step
        waiting = [action for action in added if action.result is None]
        for span in draft.containers:
            error = error_text(span)
            if error is not None:
                self._add_error(step, span, error, waiting)
            elif waiting and span.output is not None and span.type == "step":
                result = body_item(self._evidence, span, "output", "tool")
                if result is not None and result.text.strip():
                    result.kind = "tool_result"
                    waiting[-1].result = result
                    waiting[-1].status = "ok"
                    waiting[-1].span_ids.append(span.id)
                    waiting.clear()

    def _add_error(self, step: Step, span: SpanInfo, error: str, waiting: list[Action]) -> None:
        """Add the error of a container to the action that failed, else to the step."""
        if waiting:
            waiting[-1].error = error
            waiting[-1].status = span.status or "error"
            waiting[-1].span_ids.append(span.id)
            waiting.clear()
        elif step.error is None and not any(action.error for action in step.actions):
            step.error = error

    def _drop_unexecuted_code(self, step: Step) -> None:
        """Keep code as an action only if it was, or may have been, executed."""
        executed = any(
            action.kind == "code" and (action.result is not None or action.error)
            for action in step.actions
        )
        others = any(action.kind != "code" for action in step.actions)
        if not executed and others:
            step.actions = [action for action in step.actions if action.kind != "code"]


def _families(conversations: list[Conversation]) -> list[int]:
    """Return the outermost conversation of each conversation."""
    families = []
    for conversation in conversations:
        index = conversation.index
        for _ in range(len(conversations)):
            parent = conversations[index].parent
            if parent is None or parent == index:
                break
            index = parent
        families.append(index)
    return families


def _drop_shown_start(items: list[Item], earlier: list[Item]) -> list[Item]:
    """Return a message that has grown since the last request without its earlier text.

    Some clients append to the last message of a role instead of sending another one.
    """
    if len(items) != 1 or len(earlier) != 1 or items[0].kind != earlier[0].kind:
        return items
    before, now = earlier[0].text.rstrip(), items[0].text
    if not before or len(now) <= len(before) or not now.startswith(before):
        return items
    rest = now[len(before) :].lstrip()
    is_error = items[0].is_error or rest.startswith("Error:")
    return [replace(items[0], text=rest, is_error=is_error)]


def _has_code(actions: list[Action]) -> bool:
    return any(action.kind == "code" for action in actions)


def _as_written(answer: list[Item]) -> str:
    """Return the answer as a history repeats it: with fences and labels."""
    parts = []
    for item in answer:
        if item.kind == "code":
            parts.append(f"Code:\n```{item.name or ''}\n{item.text}\n```")
        elif item.kind == "text":
            parts.append(item.text)
    return "\n".join(parts)


def _is_error_of(item: Item, action: Action) -> bool:
    """Return True if a result repeats the error that the action's span recorded."""
    error = normalize(action.error or "")
    message = error.partition(": ")[2] or error
    return message[:80] in normalize(item.text)


def _set_duration(step: Step) -> None:
    if step.duration_ns is None:
        return
    end = step.started_ns + step.duration_ns
    for action in step.actions:
        if action.started_ns is not None and action.duration_ns is not None:
            end = max(end, action.started_ns + action.duration_ns)
    step.duration_ns = end - step.started_ns
