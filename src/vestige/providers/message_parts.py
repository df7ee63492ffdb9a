"""Parse the content of a message into parts: text, thinking, media, tool calls, tool results.

One table serves all providers, because their shapes do not collide and proxies mix them: a block is
known by its `type` (OpenAI, Anthropic, Cohere, Mistral) or by its only key (Gemini, Bedrock).
A block of an unknown type becomes a part of kind `other`; nothing is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vestige.providers.chat_types import MessagePart
from vestige.providers.json_access import (
    as_dict,
    as_list,
    as_str,
    dicts,
    find_str,
    join_texts,
    json_size,
    json_text,
)
from vestige.providers.media import Media, describe_base64, describe_url

DEPTH_MAX = 4
"""Levels of content inside content: a tool result, its document, the document's blocks."""

Block = dict[str, Any]


def read_parts(content: object, depth: int = 0) -> list[MessagePart]:
    """Parse a content: a string, a block, or a list of both."""
    if isinstance(content, str):
        return [MessagePart(kind="text", text=content)] if content else []
    if isinstance(content, dict):
        return [read_part(content, depth)]
    parts = []
    for item in as_list(content):
        parts += read_parts(item, depth) if isinstance(item, str | dict) else []
    return parts


def read_part(block: Block, depth: int = 0) -> MessagePart:
    """Parse one block."""
    kind = as_str(block.get("type"))
    if kind:
        reader = _BY_TYPE.get(kind)
        if reader is not None:
            return reader(block, depth)
        if kind.endswith("_tool_result"):
            return _read_hosted_result(block, depth)
        if kind.endswith("_call"):
            return _read_hosted_call(block, depth)
    elif block.get("thought") is True and isinstance(block.get("text"), str):
        return MessagePart(kind="thinking", type="thought", text=block["text"])
    for key, reader in _BY_KEY.items():
        if key in block:
            return reader(block, depth)
    return _read_other(block, depth)


def join_parts(parts: list[MessagePart]) -> list[MessagePart]:
    """Join neighbouring pieces of text and of thinking, as a stream delivers them."""
    joined: list[MessagePart] = []
    texts: list[str] = []
    for part in parts:
        last = joined[-1] if joined else None
        if part.kind in ("text", "thinking") and last and _is_same(last, part):
            texts.append(part.text)
            continue
        _flush_texts(joined, texts)
        joined.append(part)
        texts = [part.text]
    _flush_texts(joined, texts)
    return joined


def _is_same(last: MessagePart, part: MessagePart) -> bool:
    return (last.kind, last.type, last.is_redacted) == (part.kind, part.type, part.is_redacted)


def _flush_texts(joined: list[MessagePart], texts: list[str]) -> None:
    if len(texts) > 1:
        last = joined[-1]
        joined[-1] = MessagePart(kind=last.kind, type=last.type, text="".join(texts))


def thinking_part(text: str, kind: str = "thinking", encrypted: str = "") -> MessagePart:
    """Build a part of thinking; encrypted thinking has only its size."""
    if text or not encrypted:
        return MessagePart(kind="thinking", type=kind, text=text)
    return MessagePart(
        kind="thinking", type=kind, is_redacted=True, size_bytes=len(encrypted.encode())
    )


def media_part(
    kind: str,
    type: str,
    media: Media,
    *,
    name: str | None = None,
    file_id: str | None = None,
    text: str = "",
) -> MessagePart:
    """Build a part of media."""
    return MessagePart(
        kind=kind,
        type=type,
        text=text,
        name=name,
        mime_type=media.mime_type,
        size_bytes=media.size_bytes,
        width=media.width,
        height=media.height,
        url=media.url,
        file_id=file_id,
    )


def find_media_kind(mime_type: str | None) -> str:
    """Return `image`, `audio` or `file`."""
    first = (mime_type or "").partition("/")[0].lower()
    return first if first in ("image", "audio") else "file"


def _describe(source: object, mime_type: str | None = None) -> Media:
    """Describe media in any of the usual forms: a URL, or an object with a URL or base64 data."""
    if isinstance(source, str):
        return describe_url(source, mime_type)
    fields = as_dict(source)
    mime = find_str(fields.get("media_type")) or find_str(fields.get("mimeType")) or mime_type
    url = find_str(fields.get("url")) or find_str(fields.get("uri"))
    if url:
        return describe_url(url, mime)
    data = find_str(fields.get("data")) or find_str(fields.get("bytes"))
    return describe_base64(data, mime) if data else Media(mime)


# Text and thinking


def _read_text(block: Block, _depth: int) -> MessagePart:
    text = as_str(block.get("text")) or as_str(block.get("refusal"))
    return MessagePart(kind="text", type=as_str(block.get("type")), text=text)


def _read_thinking(block: Block, _depth: int) -> MessagePart:
    """Read thinking of Anthropic, Mistral (a list of text blocks), Responses (a summary) and
    Bedrock."""
    kind = as_str(block.get("type")) or "reasoningContent"
    inner = as_dict(block.get("reasoningContent"))
    texts = [
        _plain_text(block.get(key))
        for key in ("thinking", "summary", "content", "text", "reasoning")
    ]
    texts.append(as_str(as_dict(inner.get("reasoningText")).get("text")))
    hidden = (
        block.get("encrypted_content"),
        block.get("data"),
        block.get("signature"),
        inner.get("redactedContent"),
    )
    return thinking_part(join_texts(texts), kind, next((h for h in map(as_str, hidden) if h), ""))


def _plain_text(content: object) -> str:
    if isinstance(content, str):
        return content
    return join_texts([as_str(block.get("text")) for block in dicts(content)])


# Media


def _read_image(block: Block, depth: int) -> MessagePart:
    kind = as_str(block.get("type"))
    if kind == "image" and isinstance(block.get("image"), str):  # smolagents
        return media_part("image", kind, describe_base64(block["image"]))
    source = (
        block.get("image_url")
        or block.get("source")
        or block.get("b64_json")
        or block.get("imageUrl")
    )
    if source is None and isinstance(block.get("data"), str):  # MCP
        source = block
    mime = find_str(block.get("mimeType")) or find_str(block.get("media_type"))
    file_id = find_str(block.get("file_id")) or find_str(as_dict(source).get("file_id"))
    if isinstance(source, str) and not source.startswith(("http", "data:", "gs:", "s3:")):
        return media_part("image", kind, describe_base64(source, mime), file_id=file_id)
    return media_part("image", kind, _describe(source, mime), file_id=file_id)


def _read_audio(block: Block, _depth: int) -> MessagePart:
    source = as_dict(block.get("input_audio")) or as_dict(block.get("audio_url")) or block
    data = find_str(source.get("data"))
    form = find_str(source.get("format"))
    mime = find_str(source.get("mimeType")) or (f"audio/{form}" if form else None)
    media = describe_base64(data, mime) if data else _describe(source, mime)
    return media_part(
        "audio",
        as_str(block.get("type")),
        media,
        file_id=find_str(source.get("id")),
        text=as_str(source.get("transcript")),
    )


def _read_file(block: Block, depth: int) -> MessagePart:
    """Read a file of OpenAI (`file`, `input_file`), Anthropic (`document`) or Mistral."""
    inner = as_dict(block.get("document"))
    if inner:  # Cohere
        return MessagePart(kind="text", type="document", text=json_text(inner.get("data", "")))
    fields = as_dict(block.get("file")) or as_dict(block.get("video_url")) or block
    source = as_dict(fields.get("source"))
    data = find_str(fields.get("file_data"))
    url = next(
        (
            value
            for value in (fields.get("file_url"), fields.get("document_url"), fields.get("url"))
            if isinstance(value, str)
        ),
        None,
    )
    text = ""
    if source.get("type") == "text":
        text = as_str(source.get("data"))
        media = Media(find_str(source.get("media_type")) or "text/plain", len(text.encode()))
    elif source.get("type") == "content" and depth < DEPTH_MAX:
        text, media = _plain_text(source.get("content")), Media()
    elif data:
        media = describe_url(data) if data.startswith("data:") else describe_base64(data)
    elif source:
        media = _describe(source)
    else:
        media = describe_url(url) if url else Media()
    file_id = find_str(fields.get("file_id")) or find_str(source.get("file_id"))
    names = (fields.get("filename"), fields.get("title"), fields.get("document_name"))
    return media_part(
        find_media_kind(media.mime_type),
        as_str(block.get("type")),
        media,
        name=next((name for name in map(find_str, names) if name), None),
        file_id=file_id,
        text=text or _plain_text(block.get("content")),
    )


def _read_resource(block: Block, _depth: int) -> MessagePart:
    """Read an embedded resource of MCP, or a link to one."""
    fields = as_dict(block.get("resource")) or block
    mime = find_str(fields.get("mimeType"))
    blob = find_str(fields.get("blob"))
    media = describe_base64(blob, mime) if blob else Media(mime)
    return media_part(
        find_media_kind(media.mime_type),
        as_str(block.get("type")),
        media._replace(url=find_str(fields.get("uri"))),
        name=find_str(fields.get("name")),
        text=as_str(fields.get("text")),
    )


def _read_inline_data(block: Block, _depth: int) -> MessagePart:
    """Read media of Gemini: `inlineData` with base64, `fileData` with an address."""
    key = next(k for k in ("inlineData", "inline_data", "fileData", "file_data") if k in block)
    fields = as_dict(block.get(key))
    mime = find_str(fields.get("mimeType")) or find_str(fields.get("mime_type"))
    data = find_str(fields.get("data"))
    uri = find_str(fields.get("fileUri")) or find_str(fields.get("file_uri"))
    media = describe_base64(data, mime) if data else Media(mime, url=uri)
    name = find_str(fields.get("displayName")) or find_str(fields.get("display_name"))
    return media_part(find_media_kind(media.mime_type), key, media, name=name)


_BEDROCK_MEDIA = ("image", "document", "video", "audio")


def _read_bedrock_media(block: Block, _depth: int) -> MessagePart:
    """Media of Bedrock Converse: `{"image": {"format": "png", "source": {"bytes": ...}}}`."""
    key = next(k for k in _BEDROCK_MEDIA if k in block)
    fields = as_dict(block.get(key))
    form = find_str(fields.get("format"))
    major = {"document": "application"}.get(key, key)
    source = as_dict(fields.get("source"))
    location = as_dict(source.get("s3Location")).get("uri")
    data = find_str(source.get("bytes")) or ""
    mime = f"{major}/{form}" if form else None
    text = as_str(source.get("text"))
    if text:
        media = Media("text/plain", len(text.encode()))
    else:
        media = describe_base64(data, mime) if data else Media(mime, url=find_str(location))
    kind = key if key in ("image", "audio") else "file"
    return media_part(kind, key, media, name=find_str(fields.get("name")), text=text)


# Tool calls and tool results


def _read_call(block: Block, _depth: int) -> MessagePart:
    """Read a tool call of OpenAI, Anthropic, Bedrock or Gemini."""
    kind = as_str(block.get("type"))
    key = next((k for k in ("toolUse", "functionCall", "function_call") if k in block), "")
    fields = as_dict(block.get(key)) if key else block
    function = as_dict(fields.get("function")) or as_dict(fields.get("custom")) or fields
    arguments: object = {}
    for name in ("arguments", "input", "args"):
        if function.get(name) is not None:
            arguments = function[name]
            break
    ids = (fields.get("call_id"), fields.get("toolUseId"), fields.get("id"))
    return MessagePart(
        kind="tool_call",
        type=kind or key,
        text=json_text(arguments),
        name=as_str(function.get("name")) or None,
        call_id=next((found for found in map(find_str, ids) if found), None),
        is_hosted=kind in ("server_tool_use", "mcp_tool_use"),
    )


def _read_hosted_call(block: Block, depth: int) -> MessagePart:
    """A tool call that a Responses item reports: web search, code interpreter, computer, MCP."""
    kind = as_str(block.get("type"))
    fields = ("arguments", "action", "code", "queries", "input", "operation", "revised_prompt")
    arguments: Any = next((block[k] for k in fields if block.get(k) is not None), {})
    result = block.get("result")
    parts = []
    if isinstance(result, str) and result:
        parts = [media_part("image", kind, describe_base64(result))]
    if depth < DEPTH_MAX:
        parts += [read_part(output, depth + 1) for output in dicts(block.get("outputs"))]
    parts += read_parts(as_str(block.get("output")))
    for found in dicts(block.get("results")):
        parts.append(MessagePart(kind="other", type="result", text=_describe_result(found)))
    error = block.get("error")
    if error:
        parts.append(MessagePart(kind="other", type="error", text=json_text(error)))
    failed = bool(error) or block.get("status") in ("failed", "incomplete")
    return MessagePart(
        kind="tool_call",
        type=kind,
        text=json_text(arguments),
        name=find_str(block.get("name")) or kind.removesuffix("_call"),
        call_id=find_str(block.get("call_id")) or find_str(block.get("id")),
        is_hosted=kind
        not in ("computer_call", "local_shell_call", "shell_call", "apply_patch_call"),
        is_error=failed,
        parts=parts,
    )


def _read_result(block: Block, depth: int) -> MessagePart:
    """Read a tool result of Anthropic, Bedrock, Gemini or a Responses item."""
    kind = as_str(block.get("type"))
    key = next(
        (k for k in ("toolResult", "functionResponse", "function_response") if k in block), ""
    )
    fields = as_dict(block.get(key)) if key else block
    names = ("content", "output", "response")
    content = next((fields[k] for k in names if fields.get(k) is not None), "")
    ids = ("tool_use_id", "toolUseId", "call_id", "tool_call_id", "id", "name")
    call_id = next((found for found in (find_str(fields.get(k)) for k in ids) if found), None)
    text, parts = read_result_content(content, depth)
    if key in ("functionResponse", "function_response"):
        text = json_text(content)
        parts = read_parts(fields.get("parts"), depth + 1)
    failed = (
        fields.get("is_error") is True
        or fields.get("status") == "error"
        or (isinstance(content, dict) and "error" in content and "output" not in content)
    )
    return MessagePart(
        kind="tool_result",
        type=kind or key,
        text=text,
        name=find_str(fields.get("name")),
        call_id=call_id,
        is_error=failed,
        parts=parts,
    )


def read_result_content(content: object, depth: int = 0) -> tuple[str, list[MessagePart]]:
    """Parse the content of a tool result into its text and its other parts."""
    if isinstance(content, str) or depth >= DEPTH_MAX:
        return content if isinstance(content, str) else "", []
    if isinstance(content, dict) and not ({"type", "text"} & content.keys()):
        return json_text(content), []
    parts = read_parts(content, depth + 1)
    text = join_texts([part.text for part in parts if part.kind == "text"])
    return text, [part for part in parts if part.kind != "text"]


def _read_hosted_result(block: Block, depth: int) -> MessagePart:
    """The result of a tool that Anthropic ran: web search, web fetch, code execution."""
    content = block.get("content")
    kind = as_str(block.get("type"))
    inner = as_dict(content)
    if isinstance(content, list):
        text = join_texts([_describe_result(item) for item in dicts(content)])
    else:
        outputs = [as_str(inner.get(key)) for key in ("stdout", "stderr")]
        text = join_texts(outputs) or _describe_result(inner)
    failed = as_str(inner.get("type")).endswith("_error") or block.get("is_error") is True
    return MessagePart(
        kind="tool_result",
        type=kind,
        text=text,
        name=kind.removesuffix("_tool_result"),
        call_id=find_str(block.get("tool_use_id")),
        is_hosted=True,
        is_error=failed or bool(inner.get("return_code")),
    )


def _describe_result(item: Block) -> str:
    """Render one search result, without the encrypted content that comes with it."""
    if isinstance(item.get("text"), str):
        return as_str(item["text"])
    words = [as_str(item.get(key)) for key in ("title", "filename", "url", "error_code")]
    found = " ".join(word for word in words if word)
    return found or json_text({k: v for k, v in item.items() if k != "encrypted_content"})


# Gemini's code execution


def _read_code(block: Block, _depth: int) -> MessagePart:
    fields = as_dict(block.get("executableCode") or block.get("executable_code"))
    return MessagePart(
        kind="tool_call",
        type="executableCode",
        name="code_execution",
        text=as_str(fields.get("code")),
        call_id=find_str(fields.get("id")),
        is_hosted=True,
    )


def _read_code_result(block: Block, _depth: int) -> MessagePart:
    fields = as_dict(block.get("codeExecutionResult") or block.get("code_execution_result"))
    outcome = as_str(fields.get("outcome"))
    return MessagePart(
        kind="tool_result",
        type="codeExecutionResult",
        name="code_execution",
        text=as_str(fields.get("output")),
        call_id=find_str(fields.get("id")),
        is_hosted=True,
        is_error=bool(outcome) and outcome != "OUTCOME_OK",
    )


def _read_json(block: Block, _depth: int) -> MessagePart:
    return MessagePart(kind="text", type="json", text=json_text(block["json"]))


def _read_logs(block: Block, _depth: int) -> MessagePart:
    return MessagePart(kind="text", type="logs", text=as_str(block.get("logs")))


def _read_other(block: Block, _depth: int) -> MessagePart:
    """Keep the name, text and size of a block that is not known."""
    return MessagePart(
        kind="other",
        type=as_str(block.get("type")) or next(iter(block), ""),
        text=as_str(block.get("text")),
        size_bytes=json_size(block),
    )


Reader = Callable[[Block, int], MessagePart]

_BY_TYPE: dict[str, Reader] = {
    **dict.fromkeys(("text", "input_text", "output_text", "refusal", "summary_text"), _read_text),
    "reasoning_text": _read_text,
    **dict.fromkeys(("thinking", "redacted_thinking", "reasoning", "compaction"), _read_thinking),
    **dict.fromkeys(("reasoning.text", "reasoning.summary", "reasoning.encrypted"), _read_thinking),
    **dict.fromkeys(("image_url", "input_image", "output_image", "image"), _read_image),
    "computer_screenshot": _read_image,
    **dict.fromkeys(("input_audio", "output_audio", "audio", "audio_url"), _read_audio),
    **dict.fromkeys(("file", "input_file", "document", "document_url", "video_url"), _read_file),
    **dict.fromkeys(("container_upload", "search_result"), _read_file),
    **dict.fromkeys(("resource", "resource_link"), _read_resource),
    **dict.fromkeys(("tool_use", "server_tool_use", "mcp_tool_use", "function"), _read_call),
    **dict.fromkeys(("function_call", "custom_tool_call", "tool_call"), _read_call),
    **dict.fromkeys(("tool_result", "function_call_output", "tool_response"), _read_result),
    **dict.fromkeys(("custom_tool_call_output", "computer_call_output"), _read_result),
    **dict.fromkeys(("local_shell_call_output", "shell_call_output"), _read_result),
    "apply_patch_call_output": _read_result,
    "logs": _read_logs,
}

_BY_KEY: dict[str, Reader] = {
    **dict.fromkeys(("toolUse", "functionCall", "function_call"), _read_call),
    **dict.fromkeys(("toolResult", "functionResponse", "function_response"), _read_result),
    **dict.fromkeys(("inlineData", "inline_data", "fileData", "file_data"), _read_inline_data),
    **dict.fromkeys(("executableCode", "executable_code"), _read_code),
    **dict.fromkeys(("codeExecutionResult", "code_execution_result"), _read_code_result),
    "reasoningContent": _read_thinking,
    **dict.fromkeys(_BEDROCK_MEDIA, _read_bedrock_media),
    "json": _read_json,
    "text": _read_text,
    "refusal": _read_text,
}
