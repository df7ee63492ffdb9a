"""The effects of a model's answer: the tools that ran for it, and the error that came back.

    for action in agent_actions(evidence):
        action.call         # the model call
        action.tools        # tool spans that ran because of its answer
        action.failure      # the failed tool or step, with its error

A tool belongs to the call that requested it by id, else to the model call beside it: the last one
before it with the same parent, or in the same agent. A failed step belongs to the model call
inside it, whose answer it parsed or executed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from vestige.providers.chat_types import Response
from vestige.query.checks.requested_calls import CallIndex, get_tool_name
from vestige.query.evidence import Evidence
from vestige.record.run import SpanInfo

FAILED = frozenset(["error", "timeout"])
OBSERVATION_MAX = 200_000
"""Characters of one text that are searched."""

_OWN_ROLES = frozenset(["assistant", "tool-call"])

_CODE = re.compile(r"```[\w+-]*[ \t]*\n(.*?)(?:```|\Z)|<code>\s*(.*?)(?:</code>|\Z)", re.DOTALL)
_FINAL_NAMES = re.compile(
    r"final_?answer|finish|submit|complete_?task|task_?complete|terminate|attempt_completion"
    r"|done|return_?answer|respond|answer",
    re.IGNORECASE,
)
_EXIT_CODE = re.compile(r"\W*exit ?(?:code|status):? -?\d+(?: \([\w ]+\))?\W*", re.IGNORECASE)
_FINAL_CODE = re.compile(r"(?m)^[ \t]*(?:return[ \t]+)?(?:final_answer|submit|finish)\s*\(")


@dataclass(frozen=True, slots=True)
class Failure:
    """A span that failed because of an answer, and its error."""

    span: SpanInfo
    error: str


@dataclass(slots=True)
class Action:
    """An answer of a model, and what it made happen."""

    call: SpanInfo
    text: str = ""
    tool_names: list[str] = field(default_factory=list)
    """Tools that the answer requested by name."""
    code: str = ""
    """Code blocks of the answer, which some agents execute."""
    tools: list[SpanInfo] = field(default_factory=list)
    failure: Failure | None = None
    agent: str | None = None
    """Id of the nearest agent around the call, or of its parent."""

    @property
    def is_final(self) -> bool:
        """Return whether the answer ends the agent's work with a call of its final tool."""
        if any(is_final_tool(name) for name in self.tool_names):
            return True
        if any(is_final_tool(get_tool_name(tool)) for tool in self.tools):
            return True
        return bool(self.code) and _FINAL_CODE.search(self.code) is not None

    @property
    def working_tools(self) -> list[SpanInfo]:
        """Tools other than the one that ends the work."""
        return [tool for tool in self.tools if not is_final_tool(get_tool_name(tool))]


def is_final_tool(name: str) -> bool:
    """Return whether a tool only delivers the answer."""
    return _FINAL_NAMES.fullmatch(name.removesuffix("Tool").removesuffix("_tool")) is not None


def agent_actions(evidence: Evidence) -> Sequence[Action]:
    """Return the actions of a run in order, computed once per evidence."""
    return evidence.once(_find_actions)


def actions_by_agent(evidence: Evidence) -> Sequence[Sequence[Action]]:
    """Return the actions of each agent, in order. Sub-agents have actions of their own."""
    return evidence.once(_group_by_agent)


def _group_by_agent(evidence: Evidence) -> Sequence[Sequence[Action]]:
    groups: dict[str | None, list[Action]] = {}
    for action in agent_actions(evidence):
        groups.setdefault(action.agent, []).append(action)
    return list(groups.values())


def get_observation(evidence: Evidence, actions: Sequence[Action], index: int) -> str:
    """Return what came back from an action: tool results, prints of code, the next message."""
    parts = [text for tool in actions[index].tools if (text := evidence.output(tool))]
    if index + 1 < len(actions):
        request = evidence.request(actions[index + 1].call)
        messages = request.messages if request is not None else []
        last = max((n for n, m in enumerate(messages) if m.role in _OWN_ROLES), default=-1)
        for message in messages[last + 1 :]:
            if message.role != "system":
                parts.append(message.text)
                parts.extend(result.text for result in message.results)
    step = evidence.spans.get(actions[index].call.parent_id or "")
    if step is not None and step.type not in ("run", "process") and not is_agent(step):
        parts.append(evidence.output(step) or "")
    return "\n".join(part[:OBSERVATION_MAX] for part in parts if part)


def get_input(evidence: Evidence, call: SpanInfo, *, with_system: bool = True) -> str:
    """Return the instructions and the task of a call: its system and first user messages."""
    request = evidence.request(call)
    parts: list[str] = []
    for message in request.messages if request is not None else ():
        if message.role in _OWN_ROLES:
            break
        if with_system or message.role != "system":
            parts.append(message.text)
    return "\n".join(part[:OBSERVATION_MAX] for part in parts)


def action_of(evidence: Evidence, span: SpanInfo) -> Action | None:
    """Return the action that a tool or step belongs to."""
    return evidence.once(_index_by_span).get(span.id)


def _index_by_span(evidence: Evidence) -> dict[str, Action]:
    found: dict[str, Action] = {}
    for action in agent_actions(evidence):
        for tool in action.tools:
            found[tool.id] = action
        if action.failure is not None:
            found.setdefault(action.failure.span.id, action)
    return found


def _find_actions(evidence: Evidence) -> Sequence[Action]:
    actions = [_read_action(evidence, call) for call in evidence.model_calls]
    by_call = {action.call.id: action for action in actions}
    index = CallIndex(evidence)
    for tool in evidence.of_type("tool"):
        action = by_call.get(_find_requester(evidence, index, tool, by_call) or "")
        if action is not None:
            action.tools.append(tool)
    for action in actions:
        action.failure = _find_failure(evidence, action)
    return actions


def _read_action(evidence: Evidence, call: SpanInfo) -> Action:
    response = evidence.response(call)
    text = response.text if response is not None else ""
    return Action(
        call,
        text,
        _requested_names(response),
        find_code(text),
        agent=_find_agent(evidence, call),
    )


def _requested_names(response: Response | None) -> list[str]:
    return [call.name for call in response.calls] if response is not None else []


def find_code(text: str) -> str:
    """Return the code blocks of a text. The last one may be cut off by a stop sequence."""
    return "\n\n".join((a or b).strip() for a, b in _CODE.findall(text))


def _find_agent(evidence: Evidence, call: SpanInfo) -> str | None:
    """Return the id of the nearest agent around a call: its steps are inside one."""
    span = evidence.spans.get(call.parent_id or "")
    for _ in range(20):
        if span is None:
            return None
        if is_agent(span):
            return span.id
        span = evidence.spans.get(span.parent_id or "")
    return None


def is_agent(span: SpanInfo) -> bool:
    """Return whether a span contains the work of one agent."""
    kind = str(span.attributes.get("openinference.span.kind") or "").lower()
    named = "gen_ai.agent.name" in span.attributes
    return span.type in ("agent", "run") or kind == "agent" or named


def _find_requester(
    evidence: Evidence, index: CallIndex, tool: SpanInfo, by_call: dict[str, Action]
) -> str | None:
    found = index.find(tool)
    if found is not None and found[1]:
        return found[0].span.id
    beside = evidence.last_before("llm", tool)
    if beside is not None:
        inner = [span.id for span in evidence.children.get(beside.id, ()) if span.id in by_call]
        return inner[-1] if inner else beside.id
    if found is not None:
        return found[0].span.id
    return _find_last_in_agent(evidence, tool, by_call)


def _find_last_in_agent(
    evidence: Evidence, tool: SpanInfo, by_call: dict[str, Action]
) -> str | None:
    """Return the agent's last model call before a tool: its steps may each be inside a span."""
    agent = evidence.spans.get(tool.parent_id or "")
    if agent is None or agent.type != "agent":
        return None
    place = evidence.places[tool.id]
    before = [
        call.id
        for call in evidence.model_calls
        if evidence.places[call.id] < place and by_call[call.id].agent == agent.id
    ]
    return before[-1] if before else None


def _find_failure(evidence: Evidence, action: Action) -> Failure | None:
    for tool in action.tools:
        if tool.status in FAILED:
            return Failure(tool, get_error(evidence, tool))
    step = evidence.spans.get(action.call.parent_id or "")
    if step is None or step.type not in ("step", "agent", "chain") or step.status not in FAILED:
        return None
    inside = [span for span in evidence.children.get(step.id, ()) if span.type == "llm"]
    if not inside or inside[-1].id != action.call.id:
        return None  # a later call of the same step was executed
    if any(span.status in FAILED for span in evidence.children.get(step.id, ())):
        return None  # the failure of a call or an agent inside
    error = get_error(evidence, step)
    return Failure(step, error) if error else None


def get_error(evidence: Evidence, span: SpanInfo) -> str:
    """Return the error of a failed span, its type first."""
    kind, message = span.attributes.get("error.type"), span.attributes.get("error.message")
    if kind or message:
        text = str(message or "")
        if _EXIT_CODE.fullmatch(text):
            lines = (evidence.output(span) or "")[-2000:].strip().splitlines()
            return f"{text}: {lines[-1].strip()}" if len(lines) > 1 else text
        return text if not kind or str(kind) in text[:200] else f"{kind}: {text}".rstrip(": ")
    return (evidence.output(span) or "")[:2000]
