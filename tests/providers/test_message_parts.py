"""Parts of messages and responses: thinking, media, hosted tools and framework roles are kept."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

import pytest

from vestige.providers.chat_types import (
    Message,
    MessagePart,
    Request,
    Response,
    ToolCall,
    ToolResult,
)
from vestige.providers.media import describe_base64, describe_url, find_dimensions
from vestige.providers.parsing import parse_request, parse_response


def png(width: int, height: int) -> bytes:
    """A real PNG image, black."""

    def chunk(name: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + check

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\x00" + bytes(width) for _ in range(height)))
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def jpeg(width: int, height: int, metadata: int = 0) -> bytes:
    """The head of a JPEG file, with metadata before its frame header."""
    head = b"\xff\xd8"
    while metadata > 0:
        size = min(metadata, 65_000)
        head += b"\xff\xe1" + struct.pack(">H", size + 2) + bytes(size)
        metadata -= size
    return head + b"\xff\xc0" + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(10)


def webp(width: int, height: int) -> bytes:
    size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF" + bytes(4) + b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + size + bytes(8)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


IMAGE = png(40, 30)
IMAGE_64 = b64(IMAGE)
IMAGE_URL = "data:image/png;base64," + IMAGE_64


def parse(data: dict[str, Any], hint: str | None = None) -> Request:
    request = parse_request(json.dumps(data), hint)
    assert request is not None
    return request


def chat(*messages: dict[str, Any]) -> list[Message]:
    return parse({"model": "m", "n": 1, "messages": list(messages)}).messages


def answer(data: dict[str, Any] | str, hint: str | None = None) -> Response:
    response = parse_response(data if isinstance(data, str) else json.dumps(data), hint)
    assert response is not None
    return response


def stream(*events: dict[str, Any]) -> str:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events)


def kinds(parts: list[MessagePart]) -> list[str]:
    return [part.kind for part in parts]


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (png(40, 30), "image/png"),
        (jpeg(40, 30), "image/jpeg"),
        (jpeg(40, 30, metadata=150_000), "image/jpeg"),
        (gif(40, 30), "image/gif"),
        (webp(40, 30), "image/webp"),
    ],
)
def test_an_image_has_its_type_size_and_dimensions(data: bytes, mime: str) -> None:
    media = describe_base64(b64(data))

    assert media == (mime, len(data), 40, 30, None)


@pytest.mark.parametrize("size", range(9))
def test_the_size_of_base64_is_exact(size: int) -> None:
    assert describe_base64(b64(bytes(size))).size_bytes == size
    assert describe_base64(b64(bytes(size)).rstrip("=")).size_bytes == size


def test_damaged_media_have_a_size_and_no_dimensions() -> None:
    assert find_dimensions(IMAGE[:18]) is None
    assert find_dimensions(jpeg(4, 3)[:9]) is None
    assert describe_base64("!!! not base64").width is None
    assert describe_url("https://example.com/a.png").url == "https://example.com/a.png"
    assert describe_url(IMAGE_URL).url is None


def test_chat_completions_keep_images_audio_and_files() -> None:
    (message,) = chat(
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look."},
                {"type": "image_url", "image_url": {"url": IMAGE_URL}},
                {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                {"type": "input_audio", "input_audio": {"data": b64(b"abcd"), "format": "wav"}},
                {"type": "file", "file": {"file_id": "file-1"}},
                {
                    "type": "file",
                    "file": {
                        "filename": "a.pdf",
                        "file_data": "data:application/pdf;base64," + b64(b"%PDF-1"),
                    },
                },
                {"type": "hologram", "data": "?"},
            ],
        }
    )

    text, inline, linked, audio, stored, pdf, other = message.parts
    assert message.text == text.text == "Look."
    assert (inline.kind, inline.mime_type, inline.size_bytes) == ("image", "image/png", len(IMAGE))
    assert (inline.width, inline.height, inline.url) == (40, 30, None)
    assert (linked.kind, linked.url) == ("image", "https://example.com/a.png")
    assert (audio.kind, audio.mime_type, audio.size_bytes) == ("audio", "audio/wav", 4)
    assert (stored.kind, stored.file_id) == ("file", "file-1")
    assert (pdf.name, pdf.mime_type, pdf.size_bytes) == ("a.pdf", "application/pdf", 6)
    assert (other.kind, other.type) == ("other", "hologram")


def test_chat_completions_keep_thinking_beside_the_content() -> None:
    function = {"name": "look", "arguments": "{}"}
    message = {
        "role": "assistant",
        "reasoning_content": "Hm.",
        "content": "Yes.",
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }

    complete = answer({"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    streamed = answer(
        stream(
            {"choices": [{"index": 0, "delta": {"reasoning_content": "H"}}]},
            {"choices": [{"index": 0, "delta": {"reasoning_content": "m."}}]},
            {"choices": [{"index": 0, "delta": {"content": "Ye"}}]},
            {"choices": [{"index": 0, "delta": {"content": "s."}}]},
            {"choices": [{"index": 0, "delta": {"tool_calls": message["tool_calls"]}}]},
        )
    )

    for response in (complete, streamed):
        assert kinds(response.parts) == ["thinking", "text", "tool_call"]
        assert [part.text for part in response.parts] == ["Hm.", "Yes.", "{}"]
        assert response.text == "Yes."


def test_thinking_of_openrouter_and_mistral_is_kept() -> None:
    details = [
        {"type": "reasoning.text", "text": "Hm."},
        {"type": "reasoning.encrypted", "data": "x" * 30},
    ]
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Let me see."}]}

    routed = answer({"choices": [{"message": {"content": "a", "reasoning_details": details}}]})
    mistral = answer(
        {"choices": [{"message": {"content": [thinking, {"type": "text", "text": "4"}]}}]}
    )

    assert kinds(routed.parts) == ["thinking", "thinking", "text"]
    assert (routed.parts[1].is_redacted, routed.parts[1].size_bytes) == (True, 30)
    assert [part.text for part in mistral.parts] == ["Let me see.", "4"]


def test_spoken_answers_are_kept_with_their_transcript() -> None:
    complete = answer(
        {"choices": [{"message": {"audio": {"id": "a1", "data": "AAAA", "transcript": "Hi"}}}]}
    )
    streamed = answer(
        stream(
            {"choices": [{"index": 0, "delta": {"audio": {"id": "a1", "transcript": "H"}}}]},
            {"choices": [{"index": 0, "delta": {"audio": {"transcript": "i"}}}]},
            {"choices": [{"index": 0, "delta": {"audio": {"data": "AAAA"}}}]},
        )
    )

    for response in (complete, streamed):
        (part,) = response.parts
        assert (part.kind, part.text, part.size_bytes, part.file_id) == ("audio", "Hi", 3, "a1")


def test_responses_items_keep_reasoning_hosted_tools_and_media() -> None:
    output = [
        {"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "x" * 50},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Plan."}]},
        {"type": "web_search_call", "id": "w1", "action": {"type": "search", "query": "q"}},
        {
            "type": "code_interpreter_call",
            "id": "ci",
            "code": "1+1",
            "outputs": [{"type": "logs", "logs": "2"}],
        },
        {"type": "computer_call", "call_id": "c1", "action": {"type": "click", "x": 1}},
        {
            "type": "mcp_call",
            "id": "m1",
            "name": "roll",
            "arguments": "{}",
            "output": "6",
            "server_label": "dice",
        },
        {"type": "image_generation_call", "id": "i1", "result": IMAGE_64},
        {"type": "message", "content": [{"type": "output_text", "text": "Done."}]},
    ]
    complete = answer({"object": "response", "status": "completed", "output": output})
    streamed = answer(
        stream(
            *(
                {"type": "response.output_item.done", "output_index": n, "item": item}
                for n, item in enumerate(output)
            )
        )
    )

    assert complete.parts == streamed.parts
    assert complete.text == "Done."
    hidden, plan, search, code, computer, mcp, image, text = complete.parts
    assert (hidden.kind, hidden.is_redacted, hidden.size_bytes) == ("thinking", True, 50)
    assert (plan.kind, plan.text) == ("thinking", "Plan.")
    assert (search.name, search.is_hosted) == ("web_search", True)
    assert json.loads(search.text)["query"] == "q"
    assert (code.text, code.parts[0].text) == ("1+1", "2")
    assert (computer.name, computer.is_hosted, computer.call_id) == ("computer", False, "c1")
    assert (mcp.name, mcp.parts[0].text) == ("roll", "6")
    assert (image.parts[0].kind, image.parts[0].width) == ("image", 40)
    assert text.text == "Done."


def test_a_responses_stream_that_ends_early_keeps_its_reasoning() -> None:
    response = answer(
        stream(
            {
                "type": "response.output_item.added",
                "output_index": 0,
                "item": {"type": "reasoning", "summary": []},
            },
            {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Pl"},
            {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "an"},
        )
    )

    assert [(part.kind, part.text) for part in response.parts] == [("thinking", "Plan")]


def test_responses_requests_keep_screenshots_and_files() -> None:
    request = parse(
        {
            "model": "m",
            "input": [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_image", "image_url": IMAGE_URL},
                        {"type": "input_file", "filename": "a.pdf", "file_id": "file-7"},
                    ],
                },
                {
                    "type": "computer_call_output",
                    "call_id": "c1",
                    "output": {"type": "computer_screenshot", "image_url": IMAGE_URL},
                },
                {
                    "type": "function_call_output",
                    "call_id": "c2",
                    "output": [
                        {"type": "input_text", "text": "See:"},
                        {"type": "input_image", "file_id": "file-8"},
                    ],
                },
            ],
        }
    )

    user, screenshot, result = request.messages
    assert kinds(user.parts) == ["image", "file"]
    assert user.parts[1].file_id == "file-7"
    assert screenshot.role == "tool"
    assert screenshot.parts[0].parts[0].width == 40
    assert result.results[0].text == "See:"
    assert result.results[0].parts[0].file_id == "file-8"


ANTHROPIC_BLOCKS: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "Hm.", "signature": "s"},
    {"type": "redacted_thinking", "data": "x" * 20},
    {"type": "server_tool_use", "id": "srv1", "name": "web_search", "input": {"query": "q"}},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srv1",
        "content": [
            {
                "type": "web_search_result",
                "title": "T",
                "url": "https://e.com",
                "encrypted_content": "zzz",
            }
        ],
    },
    {
        "type": "code_execution_tool_result",
        "tool_use_id": "srv2",
        "content": {
            "type": "code_execution_result",
            "stdout": "out",
            "stderr": "",
            "return_code": 1,
        },
    },
    {"type": "text", "text": "Done."},
    {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}},
]


def anthropic_stream() -> str:
    """The same blocks as events, with the deltas that a real stream has."""
    deltas = {
        0: [
            {"type": "thinking_delta", "thinking": "H"},
            {"type": "thinking_delta", "thinking": "m."},
            {"type": "signature_delta", "signature": "s"},
        ],
        2: [{"type": "input_json_delta", "partial_json": '{"query":"q"}'}],
        5: [{"type": "text_delta", "text": "Do"}, {"type": "text_delta", "text": "ne."}],
        6: [{"type": "input_json_delta", "partial_json": '{"at":1}'}],
    }
    empty = {"thinking": "", "text": "", "input": {}, "signature": ""}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"model": "claude"}}]
    for n, block in enumerate(ANTHROPIC_BLOCKS):
        first = {k: empty.get(k, v) for k, v in block.items()} if n in deltas else block
        events.append({"type": "content_block_start", "index": n, "content_block": first})
        events += [
            {"type": "content_block_delta", "index": n, "delta": delta}
            for delta in deltas.get(n, [])
        ]
    return stream(*events)


@pytest.mark.parametrize("streamed", [False, True])
def test_anthropic_keeps_thinking_and_server_tools(streamed: bool) -> None:
    body = {"type": "message", "content": ANTHROPIC_BLOCKS, "stop_reason": "end_turn"}
    response = answer(anthropic_stream() if streamed else body)

    thinking, redacted, search, found, code, text, call = response.parts
    assert (thinking.kind, thinking.text) == ("thinking", "Hm.")
    assert (redacted.is_redacted, redacted.size_bytes, redacted.text) == (True, 20, "")
    assert (search.name, search.is_hosted, search.text) == ("web_search", True, '{"query":"q"}')
    assert (found.kind, found.text, found.call_id) == ("tool_result", "T https://e.com", "srv1")
    assert (code.text, code.is_error) == ("out", True)
    assert (text.text, response.text) == ("Done.", "Done.")
    assert (call.kind, call.is_hosted, call.text) == ("tool_call", False, '{"at":1}')
    assert [each.name for each in response.calls] == ["look"]


def test_anthropic_requests_keep_images_and_documents() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": IMAGE_64}
    content = [
        {"type": "image", "source": source},
        {"type": "image", "source": {"type": "url", "url": "https://e.com/i.png"}},
        {"type": "image", "source": {"type": "file", "file_id": "f1"}},
        {
            "type": "document",
            "title": "Report",
            "source": {"type": "base64", "media_type": "application/pdf", "data": b64(b"%PDF-1.7")},
        },
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "abc"}},
        {
            "type": "tool_result",
            "tool_use_id": "t1",
            "content": [{"type": "text", "text": "Seen."}, {"type": "image", "source": source}],
        },
    ]
    request = parse(
        {
            "model": "claude-x",
            "max_tokens": 1,
            "system": "Be.",
            "messages": [{"role": "user", "content": content}],
        }
    )

    system, message = request.messages
    assert [part.text for part in system.parts] == ["Be."]
    inline, linked, stored, pdf, plain, result = message.parts
    assert (inline.width, inline.size_bytes) == (40, len(IMAGE))
    assert (linked.url, stored.file_id) == ("https://e.com/i.png", "f1")
    assert (pdf.kind, pdf.name, pdf.size_bytes) == ("file", "Report", 8)
    assert (plain.text, plain.mime_type, plain.size_bytes) == ("abc", "text/plain", 3)
    assert (result.kind, result.text, result.parts[0].width) == ("tool_result", "Seen.", 40)
    assert message.results[0].parts == result.parts


def test_gemini_keeps_thoughts_media_and_code() -> None:
    parts = [
        {"text": "Hm.", "thought": True},
        {"text": "", "thoughtSignature": "x" * 12},
        {"inlineData": {"mimeType": "image/png", "data": IMAGE_64}},
        {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://b/v.mp4"}},
        {"executableCode": {"language": "PYTHON", "code": "1+1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "no"}},
        {"functionCall": {"name": "look", "args": {"at": 1}}, "thoughtSignature": "y"},
        {"text": "Do"},
        {"text": "ne."},
    ]
    response = answer({"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]})
    request = parse({"contents": [{"role": "model", "parts": parts}]})

    thought, hidden, image, video, code, result, call, text = response.parts
    assert (thought.kind, thought.text) == ("thinking", "Hm.")
    assert (hidden.is_redacted, hidden.size_bytes) == (True, 12)
    assert (image.kind, image.width) == ("image", 40)
    assert (video.kind, video.url, video.mime_type) == ("file", "gs://b/v.mp4", "video/mp4")
    assert (code.name, code.text, code.is_hosted) == ("code_execution", "1+1", True)
    assert (result.text, result.is_error) == ("no", True)
    assert (call.name, call.text) == ("look", '{"at":1}')
    assert text.text == response.text == "Done."
    assert request.messages[0].parts[:7] == response.parts[:7]


def test_ollama_keeps_images_and_thinking() -> None:
    (message,) = chat({"role": "user", "content": "What?", "images": [IMAGE_64]})
    response = answer(
        '{"model":"q","message":{"role":"assistant","content":"","thinking":"H"},"done":false}\n'
        '{"model":"q","message":{"role":"assistant","content":"","thinking":"m"},"done":false}\n'
        '{"model":"q","message":{"role":"assistant","content":"A"},"done":true}\n'
    )

    assert kinds(message.parts) == ["text", "image"]
    assert message.parts[1].height == 30
    assert [(p.kind, p.text) for p in response.parts] == [("thinking", "Hm"), ("text", "A")]


def test_smolagents_messages_are_tool_calls_and_tool_results() -> None:
    """Its own roles are what a trace records; the provider gets others."""
    calls = [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "search", "arguments": {"query": "it's"}},
        }
    ]
    request = parse(
        {
            "messages": [
                {"role": "user", "content": "Find it."},
                {
                    "role": "tool-call",
                    "content": [{"type": "text", "text": f"Calling tools:\n{calls}"}],
                },
                {"role": "tool-response", "content": [{"type": "text", "text": "Observation:\nA"}]},
                {"role": "tool-response", "content": "Call id: call_1\nError:\nno\n"},
            ]
        }
    )

    _, call, result, failed = request.messages
    assert (call.role, call.text) == ("assistant", "")
    assert call.calls == [ToolCall(id="call_1", name="search", arguments='{"query":"it\'s"}')]
    assert kinds(call.parts) == ["tool_call"]
    assert (result.role, result.results) == ("tool", [ToolResult(call_id=None, text="A")])
    assert failed.results == [ToolResult(call_id="call_1", text="Error:\nno\n", is_error=True)]
    assert request.problems == []


@pytest.mark.parametrize("text", ["Calling tools:\nwell", "Calling tools:\n[f(1)]", "Hello"])
def test_a_tool_call_message_of_another_form_keeps_its_text(text: str) -> None:
    (message,) = chat({"role": "tool-call", "content": text})

    assert (message.role, message.text, message.calls) == ("assistant", text, [])
    assert message.parts[0].text == text


def test_developer_and_function_roles_are_system_and_tool() -> None:
    developer, function = chat(
        {"role": "developer", "content": "Be."},
        {"role": "function", "name": "look", "content": "A door."},
    )

    assert developer.role == "system"
    assert (function.role, function.results[0].call_id) == ("tool", "look")
