"""Convert content blocks of Bedrock's Converse API, which Strands and AWS write into events.

    parse_blocks([{"text": "I look."}, {"toolUse": {"toolUseId": "t1", ...}}])

Blocks of other kinds (images, documents, reasoning) are copied unchanged.
"""

from __future__ import annotations

from typing import Any, Final

from vestige.formats.otlp.any_value import Object, as_object, as_objects, as_text

_KINDS: Final = frozenset(
    (
        "text",
        "toolUse",
        "toolResult",
        "reasoningContent",
        "image",
        "document",
        "video",
        "cachePoint",
    )
)


def is_blocks(content: Any) -> bool:
    """Return whether a message's content is a list of such blocks: each has its kind as a key."""
    return (
        isinstance(content, list)
        and bool(content)
        and all(
            isinstance(block, dict) and "type" not in block and _KINDS & block.keys()
            for block in content
        )
    )


def parse_blocks(blocks: list[Object]) -> tuple[list[Object], list[Object], list[Object]]:
    """Return the parts of the content, the tool calls, and a message for each tool result.

    The arguments of a call and the content of a result are not converted to text.
    """
    parts: list[Object] = []
    calls: list[Object] = []
    results: list[Object] = []
    for block in blocks:
        if "toolUse" in block:
            use = as_object(block["toolUse"])
            calls.append(
                {"id": use.get("toolUseId"), "name": use.get("name"), "arguments": use.get("input")}
            )
        elif "toolResult" in block:
            result = as_object(block["toolResult"])
            results.append(
                {"tool_call_id": result.get("toolUseId"), "content": _join(result.get("content"))}
            )
        elif "text" in block:
            parts.append({"type": "text", "text": as_text(block["text"])})
        else:
            parts.append(block)
    return parts, calls, results


def _join(content: Any) -> Any:
    """Return the text of a result that consists of text only, else its content."""
    items = as_objects(content)
    if items and all("text" in item for item in items):
        return "\n".join(as_text(item["text"]) for item in items)
    return content
