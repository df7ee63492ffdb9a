"""Contents of steps: a text, or a list of text, image and audio parts."""

from __future__ import annotations

from typing import Any, Final

from vestige.record.coercion import clean_text

Object = dict[str, Any]

_EXTRAS_MAX: Final = 40


def content_text(content: Any) -> str:
    """Return the text of a content. Media are named in brackets."""
    if isinstance(content, str):
        return clean_text(content)
    parts = content if isinstance(content, list) else []
    return clean_text("\n".join(filter(None, map(_part_text, parts))))


def _part_text(part: Any) -> str:
    if not isinstance(part, dict):
        return part if isinstance(part, str) else ""
    if isinstance(part.get("text"), str):
        return str(part["text"])
    path = _media_path(part)
    return f"[{part.get('type', 'media')}: {path}]" if path else ""


def to_openai_content(content: Any) -> Any:
    """Return the content in OpenAI's shape."""
    if not isinstance(content, list):
        return content_text(content)
    parts: list[Object] = []
    for part in content:
        path = _media_path(part) if isinstance(part, dict) else ""
        if path and part.get("type") == "image":
            parts.append({"type": "image_url", "image_url": {"url": path}})
        elif text := _part_text(part):
            parts.append({"type": "text", "text": text})
    return parts


def _media_path(part: Object) -> str:
    source = part.get("source")
    path = source.get("path") if isinstance(source, dict) else None
    return path if isinstance(path, str) else ""


def flatten_extra(prefix: str, extra: Any) -> Object:
    """Return the scalars of a trajectory's free-form members, one attribute for each."""
    members = extra.items() if isinstance(extra, dict) else ()
    found = {
        f"{prefix}.{key}": value
        for key, value in members
        if isinstance(value, (str, int, float, bool))
    }
    return dict(list(found.items())[:_EXTRAS_MAX])
