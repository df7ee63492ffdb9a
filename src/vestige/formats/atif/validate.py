"""Check trajectories against the rules of ATIF, versions 1.0 to 1.8.

The types below have the fields that the specification defines; others are not allowed. Rules
that types cannot state are functions: step numbers, fields of the agent only, references.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from vestige.errors import UnreadableError
from vestige.formats.atif.constants import DEPTH_MAX, VERSIONS
from vestige.formats.atif.detect import find_trajectories
from vestige.formats.lenient_json import Object, decode_object, read_document
from vestige.formats.protocol import Problem
from vestige.limits import PROBLEMS_MAX

_AGENT_ONLY: Final = (
    "model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics",
)  # fmt: skip
_MODEL_ONLY: Final = ("metrics", "reasoning_content")
_IMAGES: Final = frozenset(["image/jpeg", "image/png", "image/gif", "image/webp"])
_AUDIO: Final = frozenset(
    [
        "audio/wav", "audio/mpeg", "audio/mp4", "audio/aac", "audio/ogg", "audio/flac",
        "audio/webm", "audio/aiff", "audio/mp3", "audio/mpga", "audio/x-mpeg", "audio/x-wav",
        "audio/wave", "audio/vnd.wave", "audio/x-m4a", "audio/m4a", "audio/x-aac",
        "audio/x-flac", "audio/x-aiff",
    ]
)  # fmt: skip


class _Strict(msgspec.Struct, forbid_unknown_fields=True):
    pass


class _Media(_Strict):
    media_type: str
    path: str
    duration_sec: float | None = None


class _Part(_Strict):
    type: Literal["text", "image", "audio"]
    text: str | None = None
    source: _Media | None = None


class _Agent(_Strict):
    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None
    extra: dict[str, Any] | None = None


class _Call(_Strict):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: dict[str, Any] | None = None


class _Reference(_Strict):
    trajectory_id: str | None = None
    session_id: str | None = None
    trajectory_path: str | None = None
    extra: dict[str, Any] | None = None


class _Result(_Strict):
    source_call_id: str | None = None
    content: str | list[_Part] | None = None
    subagent_trajectory_ref: list[_Reference] | None = None
    extra: dict[str, Any] | None = None


class _Observation(_Strict):
    results: list[_Result]


class _Metrics(_Strict):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    extra: dict[str, Any] | None = None


class _Step(_Strict):
    step_id: int
    source: Literal["system", "user", "agent"]
    message: str | list[_Part]
    timestamp: str | None = None
    model_name: str | None = None
    reasoning_effort: str | float | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    observation: _Observation | None = None
    metrics: _Metrics | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = None
    extra: dict[str, Any] | None = None


class _FinalMetrics(_Strict):
    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    total_steps: int | None = None
    extra: dict[str, Any] | None = None


class _Head(_Strict):
    """A trajectory without its steps and sub-agents, which are checked one by one."""

    agent: _Agent
    steps: list[Any]
    schema_version: str = VERSIONS[-1]
    session_id: str | None = None
    trajectory_id: str | None = None
    notes: str | None = None
    final_metrics: _FinalMetrics | None = None
    continued_trajectory_ref: str | None = None
    extra: dict[str, Any] | None = None
    subagent_trajectories: list[dict[str, Any]] | None = None


def validate_path(path: Path) -> Sequence[Problem]:
    """Return the problems of a file, or of every trajectory in a folder."""
    problems: list[Problem] = []
    for file in find_trajectories(path):
        try:
            document = decode_object(read_document(file))
        except UnreadableError as error:
            problems.append(Problem(str(file), "", "unreadable", str(error)))
            continue
        for place, rule, message in find_violations(document):
            if len(problems) < PROBLEMS_MAX:
                problems.append(Problem(str(file), place, rule, message))
    return problems


def find_violations(
    document: Object, at: str = "", depth: int = 0
) -> Iterator[tuple[str, str, str]]:
    """Yield the place, rule and message of each violation in a trajectory."""
    try:
        head = msgspec.convert(document, _Head)
    except msgspec.ValidationError as error:
        yield at, "trajectory", _sentence(error)
        return
    if head.schema_version not in VERSIONS:
        expected = f"{VERSIONS[0]} to {VERSIONS[-1]}"
        message = f"{head.schema_version!r} is unknown (expected {expected})."
        yield f"{at}/schema_version", "version", message
    total = head.final_metrics.total_steps if head.final_metrics is not None else None
    if total is not None and total < 0:
        yield f"{at}/final_metrics/total_steps", "total-steps", f"{total} is negative."
    if not head.steps:
        yield f"{at}/steps", "no-steps", "empty (expected at least one step)."
    for index, value in enumerate(head.steps):
        place = f"{at}/steps/{index}"
        try:
            step = msgspec.convert(value, _Step)
        except msgspec.ValidationError as error:
            yield place, "step", _sentence(error)
            continue
        for rule, message in _check_step(step, index):
            yield place, rule, message
    yield from _check_agents(head.subagent_trajectories or [], at, depth)


def _check_step(step: _Step, index: int) -> Iterator[tuple[str, str]]:
    if step.step_id != index + 1:
        yield "step-id", f"step_id is {step.step_id} (expected {index + 1}: numbers from 1)."
    if step.timestamp is not None and not _is_time(step.timestamp):
        yield "timestamp", f"{step.timestamp[:60]!r} is not a time (expected ISO 8601)."
    if step.source != "agent":
        for name in _AGENT_ONLY:
            if getattr(step, name) is not None:
                yield "agent-only", f"{name} belongs to a step of the agent, not {step.source}."
    elif step.llm_call_count == 0:
        for name in _MODEL_ONLY:
            if getattr(step, name) is not None:
                yield "no-model-call", f"{name} is set, but llm_call_count is 0."
    if step.llm_call_count is not None and step.llm_call_count < 0:
        yield "llm-call-count", f"llm_call_count: {step.llm_call_count} is negative."
    yield from _check_content(step.message)
    call_ids = {call.tool_call_id for call in step.tool_calls or ()}
    for result in step.observation.results if step.observation is not None else ():
        if result.source_call_id is not None and result.source_call_id not in call_ids:
            shown = result.source_call_id[:60]
            yield "source-call-id", f"source_call_id {shown!r} is not a tool call of this step."
        yield from _check_content(result.content)
        for reference in result.subagent_trajectory_ref or ():
            if reference.trajectory_id is None and reference.trajectory_path is None:
                yield "reference", "a sub-agent has neither trajectory_id nor trajectory_path."


def _check_content(content: str | list[_Part] | None) -> Iterator[tuple[str, str]]:
    for part in content if isinstance(content, list) else ():
        if part.type == "text":
            if part.text is None or part.source is not None:
                yield "content", "a text part needs `text`, and no `source`."
        elif part.source is None or part.text is not None:
            yield "content", f"part `{part.type}` needs `source`, and no `text`."
        else:
            known = _IMAGES if part.type == "image" else _AUDIO
            media_type = part.source.media_type
            expected = media_type if part.type == "image" else media_type.strip().lower()
            if expected not in known:
                yield "media-type", f"media_type {media_type[:60]!r} is not of type {part.type}."
            duration = part.source.duration_sec
            if duration is not None and (duration < 0 or part.type == "image"):
                yield "duration", "duration_sec belongs to audio, and is not negative."


def _check_agents(agents: list[Object], at: str, depth: int) -> Iterator[tuple[str, str, str]]:
    seen: set[str] = set()
    for index, agent in enumerate(agents):
        place = f"{at}/subagent_trajectories/{index}"
        agent_id = agent.get("trajectory_id")
        if not isinstance(agent_id, str):
            yield place, "trajectory-id", "trajectory_id is missing (sub-agents need one)."
        elif agent_id in seen:
            yield place, "trajectory-id", f"trajectory_id {agent_id[:60]!r} is not unique."
        else:
            seen.add(agent_id)
        if depth < DEPTH_MAX:
            yield from find_violations(agent, place, depth + 1)


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return False
    return True


def _sentence(error: Exception) -> str:
    return f"{str(error)[:200].replace(' - at `$', ' (at `').rstrip('.')}" + (
        ")." if " - at `$" in str(error) else "."
    )
