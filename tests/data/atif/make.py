"""Make the samples of this folder with Harbor's own models: python make.py (needs harbor)."""

from __future__ import annotations

import copy
import importlib.metadata
import json
from pathlib import Path
from typing import Any

from harbor.models.trajectories import Trajectory
from harbor.utils.trajectory_validator import TrajectoryValidator

HERE = Path(__file__).parent
AGENT = {"name": "shop-agent", "version": "2.1", "model_name": "gpt-4o-mini"}
CALL = {"tool_call_id": "call_1", "function_name": "find_order", "arguments": {"id": 7}}
RESULT = {"source_call_id": "call_1", "content": "order 7: late"}
USER = {"step_id": 1, "source": "user", "message": "Why is order 7 late?"}
ANSWER = {
    "step_id": 2,
    "source": "agent",
    "message": "I look it up.",
    "reasoning_content": "The order system knows.",
    "tool_calls": [CALL],
    "observation": {"results": [RESULT]},
    "metrics": {
        "prompt_tokens": 120,
        "completion_tokens": 18,
        "cached_tokens": 100,
        "cost_usd": 0.0004,
    },
}
LAST = {"step_id": 3, "source": "agent", "message": "The carrier lost it."}


def trajectory(version: str, **members: Any) -> dict[str, Any]:
    return {
        "schema_version": f"ATIF-v{version}",
        "session_id": "session-7",
        "agent": AGENT,
        "steps": [USER, ANSWER, LAST],
        "final_metrics": {"total_prompt_tokens": 120, "total_completion_tokens": 18},
    } | members


def with_times() -> dict[str, Any]:
    steps = copy.deepcopy([{"step_id": 0, "source": "system", "message": "Be brief."}, USER])
    steps += copy.deepcopy([ANSWER, LAST])
    for number, step in enumerate(steps):
        step["step_id"] = number + 1
        step["timestamp"] = f"2026-11-18T07:00:0{number}.250000Z"
    return trajectory("1.2", steps=steps, notes="Made by hand.")


def with_images() -> dict[str, Any]:
    image = {"media_type": "image/png", "path": "https://example.org/box.png"}
    parts = [{"type": "text", "text": "What is in the box?"}, {"type": "image", "source": image}]
    user = {"step_id": 1, "source": "user", "message": parts}
    return trajectory("1.6", steps=[user, {"step_id": 2, "source": "agent", "message": "Socks."}])


def with_sub_agent() -> dict[str, Any]:
    inner = trajectory(
        "1.7",
        trajectory_id="helper-1",
        agent={"name": "carrier-helper", "version": "1", "model_name": "gpt-4o-mini"},
        steps=[
            {"step_id": 1, "source": "user", "message": "Ask the carrier."},
            {
                "step_id": 2,
                "source": "agent",
                "message": "It is lost.",
                "metrics": {"prompt_tokens": 40, "completion_tokens": 4},
            },
        ],
    )
    del inner["final_metrics"]
    call = {"tool_call_id": "call_9", "function_name": "delegate", "arguments": {"to": "helper"}}
    result = {
        "source_call_id": "call_9",
        "content": "It is lost.",
        "subagent_trajectory_ref": [{"trajectory_id": "helper-1"}],
    }
    step = {
        "step_id": 2,
        "source": "agent",
        "message": "I delegate.",
        "tool_calls": [call],
        "observation": {"results": [result]},
        "llm_call_count": 1,
    }
    return trajectory("1.7", steps=[USER, step, LAST], subagent_trajectories=[inner])


def with_audio() -> dict[str, Any]:
    audio = {"media_type": "audio/mp3", "path": "https://example.org/a.mp3", "duration_sec": 2.5}
    user = {"step_id": 1, "source": "user", "message": [{"type": "audio", "source": audio}]}
    copied = {"step_id": 2, "source": "agent", "message": "Earlier.", "is_copied_context": True}
    return trajectory("1.8", steps=[user, copied, LAST])


SAMPLES = {
    "v1.0": trajectory("1.0"),
    "v1.2-times": with_times(),
    "v1.5-copied": trajectory(
        "1.5",
        steps=[USER, ANSWER | {"is_copied_context": True}, LAST],
        continued_trajectory_ref="trajectory.cont-1.json",
    ),
    "v1.6-images": with_images(),
    "v1.7-sub-agent": with_sub_agent(),
    "v1.8-audio": with_audio(),
}


def change(sample: str, *path: Any, value: Any = ...) -> dict[str, Any]:
    """Return a sample with one member replaced, or removed."""
    document = copy.deepcopy(SAMPLES[sample])
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return document


SUB = "subagent_trajectories"
RESULTS = ("steps", 1, "observation", "results", 0)
CASES = {
    "unknown version": change("v1.0", "schema_version", value="ATIF-v9.9"),
    "no agent": change("v1.0", "agent"),
    "no agent version": change("v1.0", "agent", "version"),
    "unknown member": change("v1.0", "colour", value="red"),
    "unknown member of a step": change("v1.0", "steps", 0, "colour", value="red"),
    "no steps": change("v1.0", "steps", value=[]),
    "wrong step id": change("v1.0", "steps", 1, "step_id", value=5),
    "unknown source": change("v1.0", "steps", 0, "source", value="tool"),
    "no message": change("v1.0", "steps", 0, "message"),
    "message is null": change("v1.0", "steps", 0, "message", value=None),
    "metrics of a user": change("v1.0", "steps", 0, "metrics", value={"prompt_tokens": 1}),
    "reasoning of a user": change("v1.0", "steps", 0, "reasoning_content", value="why"),
    "observation of a user": change(
        "v1.0", "steps", 0, "observation", value={"results": [{"content": "x"}]}
    ),
    "not a time": change("v1.2-times", "steps", 0, "timestamp", value="yesterday"),
    "a date": change("v1.2-times", "steps", 0, "timestamp", value="2026-11-18"),
    "arguments as text": change("v1.0", "steps", 1, "tool_calls", 0, "arguments", value="{}"),
    "call id of no call": change("v1.0", *RESULTS, "source_call_id", value="call_2"),
    "result without a call id": change("v1.0", *RESULTS, "source_call_id"),
    "tokens as text": change("v1.0", "steps", 1, "metrics", "prompt_tokens", value="many"),
    "negative total": change("v1.0", "final_metrics", "total_steps", value=-1),
    "text part without text": change("v1.6-images", "steps", 0, "message", 0, "text"),
    "image with a text": change("v1.6-images", "steps", 0, "message", 1, "text", value="box"),
    "unknown image type": change(
        "v1.6-images", "steps", 0, "message", 1, "source", "media_type", value="image/bmp"
    ),
    "audio as an image": change("v1.6-images", "steps", 0, "message", 1, "type", value="audio"),
    "negative duration": change(
        "v1.8-audio", "steps", 0, "message", 0, "source", "duration_sec", value=-1
    ),
    "sub-agent without an id": change("v1.7-sub-agent", SUB, 0, "trajectory_id"),
    "two sub-agents with one id": change(
        "v1.7-sub-agent", SUB, value=[SAMPLES["v1.7-sub-agent"][SUB][0]] * 2
    ),
    "a wrong step of a sub-agent": change("v1.7-sub-agent", SUB, 0, "steps", 0, "step_id", value=2),
    "reference without an id": change(
        "v1.7-sub-agent", *RESULTS, "subagent_trajectory_ref", value=[{"session_id": "x"}]
    ),
    "metrics without a model call": change("v1.0", "steps", 1, "llm_call_count", value=0),
    "negative calls": change("v1.0", "steps", 1, "llm_call_count", value=-1),
    "no session": change("v1.0", "session_id"),
}


def without_prose(schema: Any) -> Any:
    """Return a schema without its descriptions: the rules alone."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" or "properties" in schema:
            names = schema.get("properties", {})
            schema = schema | {"properties": {k: without_prose(v) for k, v in names.items()}}
        return {
            key: value if key == "properties" else without_prose(value)
            for key, value in schema.items()
            if key not in ("description", "title") or isinstance(value, dict)
        }
    return [without_prose(each) for each in schema] if isinstance(schema, list) else schema


def main() -> None:
    verdicts = {}
    for name, document in SAMPLES.items():
        Trajectory(**document)
        (HERE / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n")
    for name, document in CASES.items():
        valid = TrajectoryValidator().validate(document)
        verdicts[name] = {"valid": valid, "document": document}
    (HERE / "verdicts.json").write_text(json.dumps(verdicts, indent=1) + "\n")
    schema = without_prose(Trajectory.model_json_schema())
    (HERE / "schema.json").write_text(json.dumps(schema, indent=1) + "\n")
    print("harbor", importlib.metadata.version("harbor"))


if __name__ == "__main__":
    main()
