"""A loopback provider for OpenAI (chat completions, responses, embeddings) and Anthropic.

    python provider.py PORT LOG        # Port 0: any free one, which is printed.

It drives an agent through: handoff, look_up_order, get_exchange_rate (fails), again, convert,
answer. Every request and response is appended to the log with its digest.
"""

import hashlib
import json
import os
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 18280
LOG = sys.argv[2] if len(sys.argv) > 2 else "scratch"
DELAY = float(os.environ.get("FAKE_DELAY", "0.02"))
lock = threading.Lock()
FINAL = "Order 4711: the refund of 42.00 EUR is 46.20 USD; the converter said 420.0, please check."


def text_of(content):
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return json.dumps(content)
    out = []
    for p in content:
        if isinstance(p, str):
            out.append(p)
        elif isinstance(p, dict):
            if "text" in p:
                out.append(str(p["text"]))
            elif p.get("type") == "tool_result":
                out.append(text_of(p.get("content")))
            else:
                out.append(json.dumps(p))
    return "\n".join(out)


def history_chat(req):
    """-> tool names available, [(name,args,result or None)], all text, first user"""
    names = [t.get("function", {}).get("name", "") for t in req.get("tools") or []]
    calls, by_id, texts, user = [], {}, [], ""
    for m in req.get("messages", []):
        texts.append((m.get("role"), text_of(m.get("content"))))
        if m.get("role") == "user" and not user:
            user = text_of(m.get("content"))
        for c in m.get("tool_calls") or []:
            e = [c["function"]["name"], c["function"]["arguments"], None]
            calls.append(e)
            by_id[c["id"]] = e
        if m.get("role") == "tool":
            e = by_id.get(m.get("tool_call_id"))
            if e:
                e[2] = text_of(m.get("content"))
    return names, calls, texts, user


def history_responses(req):
    names = [t.get("name", t.get("type", "")) for t in req.get("tools") or []]
    calls, by_id, texts, user = [], {}, [], ""
    inp = req.get("input", [])
    if isinstance(inp, str):
        inp = [{"role": "user", "content": inp}]
    if req.get("instructions"):
        texts.append(("system", req["instructions"]))
    for m in inp:
        if m.get("type") == "function_call":
            e = [m["name"], m["arguments"], None]
            calls.append(e)
            by_id[m["call_id"]] = e
        elif m.get("type") == "function_call_output":
            e = by_id.get(m["call_id"])
            if e:
                e[2] = text_of(m.get("output"))
        elif "role" in m:
            texts.append((m["role"], text_of(m.get("content"))))
            if m["role"] == "user" and not user:
                user = text_of(m.get("content"))
    return names, calls, texts, user


def history_anthropic(req):
    names = [t.get("name", "") for t in req.get("tools") or []]
    calls, by_id, texts, user = [], {}, [], ""
    if req.get("system"):
        texts.append(("system", text_of(req["system"])))
    for m in req.get("messages", []):
        c = m.get("content")
        if isinstance(c, str):
            c = [{"type": "text", "text": c}]
        for p in c:
            if p.get("type") == "tool_use":
                e = [p["name"], json.dumps(p["input"]), None]
                calls.append(e)
                by_id[p["id"]] = e
            elif p.get("type") == "tool_result":
                e = by_id.get(p["tool_use_id"])
                if e:
                    e[2] = text_of(p.get("content"))
            elif p.get("type") == "text":
                texts.append((m["role"], p["text"]))
                if m["role"] == "user" and not user:
                    user = p["text"]
    return names, calls, texts, user


def match(names, want):
    for n in names:
        if n == want or n.endswith(want):
            return n
    return None


def decide(names, calls, texts, user):
    """-> ("tool", name, args) or ("text", s)"""
    alltext = "\n".join(t for _, t in texts)
    sys_t = "\n".join(t for r, t in texts if r in ("system", "developer"))
    # --- text-only protocols
    if not names:
        if "`next_tool_name`" in sys_t:
            return dspy_step(texts)
        if re.search(r"\[\[ ## (\w+) ## \]\]", alltext):
            return dspy_extract(texts)
        if "<code>" in sys_t or "```py" in sys_t:
            return smol_step(texts)
        if "Action Input:" in alltext:
            return react_step(texts)
    if not calls:  # smolagents writes its calls as text
        for r, t in texts:
            if r in ("assistant", "tool-call") and t.startswith("Calling tools:"):
                m = re.search(r"'name': '(\w+)'", t)
                if m:
                    calls.append([m.group(1), "", ""])
            elif t.startswith(("Observation:", "Error:")) and calls:
                calls[-1][2] = t

    def count(n):
        return sum(1 for c in calls if c[0] == n)

    # handoffs first
    for n in names:
        if (
            n.startswith("transfer_to_")
            and "triage" not in n
            and count(n) == 0
            and not match(names, "convert")
        ):
            if n == "transfer_to_agent":
                return ("tool", n, {"agent_name": "refund_agent"})
            return ("tool", n, {})
    if "handoff" in names and count("handoff") == 0 and not match(names, "convert"):
        return ("tool", "handoff", {"to_agent": "refund_agent", "reason": "a refund"})
    for n in names:
        if n.startswith("handoff_to_") and count(n) == 0 and not match(names, "convert"):
            return ("tool", n, {"context": "a refund"})
    # sub-agent as a tool
    for n in names:
        if n in ("ask_refund_agent", "refund_agent", "delegate") and count(n) == 0:
            return ("tool", n, {"request": "refund order 4711"})
    a = match(names, "look_up_order")
    m = re.search(r"order (\d+)", user or "")
    if a and count(a) == 0:
        return ("tool", a, {"order_id": m.group(1) if m else "4711"})
    r = match(names, "get_exchange_rate")
    if r:
        got = [c for c in calls if c[0] == r]
        if not got or (len(got) < 3 and "1.1" not in (got[-1][2] or "")):
            return ("tool", r, {"currency": "EUR"})
    c = match(names, "convert")
    if c and count(c) == 0:
        return ("tool", c, {"amount": 42.0, "rate": 1.1})
    f = match(names, "final_answer") or match(names, "final_result")
    if f:
        return ("tool", f, {"answer": FINAL} if "answer" in f else {"response": FINAL})
    return ("text", FINAL)


def smol_step(texts):
    n = sum(1 for r, _ in texts if r == "assistant")
    steps = [
        "Thought: look the order up.\n<code>\n"
        'order = look_up_order(order_id="4711")\nprint(order)\n</code>',
        "Thought: get the rate.\n<code>\n"
        'rate = get_exchange_rate(currency="EUR")\nprint(rate)\n</code>',
        "Thought: it failed, again.\n<code>\n"
        'rate = get_exchange_rate(currency="EUR")\nprint(rate)\n</code>',
        "Thought: convert.\n<code>\nusd = convert(amount=42.0, rate=1.1)\nprint(usd)\n</code>",
        f'Thought: done.\n<code>\nfinal_answer("{FINAL}")\n</code>',
    ]
    "\n".join(t for _, t in texts)
    return ("text", steps[min(n, 4)])


def dspy_step(texts):
    last = [t for r, t in texts if r == "user"][-1]
    n = len(set(re.findall(r"observation_(\d+)", last)))
    seq = [
        ("look_up_order", {"order_id": "4711"}),
        ("get_exchange_rate", {"currency": "EUR"}),
        ("get_exchange_rate", {"currency": "EUR"}),
        ("convert", {"amount": 42.0, "rate": 1.1}),
        ("finish", {}),
    ]
    name, args = seq[min(n, 4)]
    return (
        "text",
        f"[[ ## next_thought ## ]]\nStep {n + 1}: call {name}.\n\n"
        f"[[ ## next_tool_name ## ]]\n{name}\n\n"
        f"[[ ## next_tool_args ## ]]\n{json.dumps(args)}\n\n[[ ## completed ## ]]\n",
    )


def dspy_extract(texts):
    sys_t = "\n".join(t for r, t in texts if r == "system")
    outs = re.split(r"output fields are", sys_t)[-1]
    fields = list(re.findall(r"`(\w+)`", outs.split("All interactions")[0]))
    return (
        "text",
        "".join(
            f"[[ ## {f} ## ]]\n{FINAL if f != 'reasoning' else 'It is computed.'}\n\n"
            for f in fields
        )
        + "[[ ## completed ## ]]\n",
    )


def react_step(texts):
    alltext = "\n".join(t for r, t in texts if r != "system")
    n = len(re.findall(r"\nObservation:", alltext))
    seq = [
        ("look_up_order", {"order_id": "4711"}),
        ("get_exchange_rate", {"currency": "EUR"}),
        ("get_exchange_rate", {"currency": "EUR"}),
        ("convert", {"amount": 42.0, "rate": 1.1}),
    ]
    if n >= 4:
        return ("text", f"Thought: I now know the final answer\nFinal Answer: {FINAL}")
    return (
        "text",
        f"Thought: step {n + 1}\nAction: {seq[n][0]}\nAction Input: {json.dumps(seq[n][1])}",
    )


def toks(s):
    return max(1, len(s) // 4)


class H(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *a):
        pass

    def setup(self):
        import socket

        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, status, body, ctype="application/json", extra=None):
        self.send_response(status)
        self.send_header("Content-Type", ctype)
        self.send_header("Content-Length", str(len(body)))
        for k, v in (extra or {}).items():
            self.send_header(k, v)
        self.end_headers()
        self.wfile.write(body)
        self.keep(status, body)

    def keep(self, status, body):
        with lock, open(LOG, "a") as f:
            f.write(
                json.dumps(
                    {
                        "t": time.time(),
                        "path": self.path,
                        "status": status,
                        "ua": self.headers.get("user-agent"),
                        "req_sha": hashlib.sha256(self.raw).hexdigest(),
                        "res_sha": hashlib.sha256(body).hexdigest(),
                        "req": self.raw.decode("utf8", "replace"),
                        "res": body.decode("utf8", "replace"),
                    }
                )
                + "\n"
            )

    def sse(self, events, rid):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("x-request-id", rid)
        self.end_headers()
        allb = b""
        for name, data in events:
            b = (
                (f"event: {name}\n" if name else "").encode()
                + b"data: "
                + (data if isinstance(data, str) else json.dumps(data)).encode()
                + b"\n\n"
            )
            allb += b
            self.wfile.write(b"%x\r\n%s\r\n" % (len(b), b))
            self.wfile.flush()
            time.sleep(0.001)
        self.wfile.write(b"0\r\n\r\n")
        self.keep(200, allb)

    def do_GET(self):
        self.raw = b""
        self.send(
            200,
            json.dumps(
                {
                    "object": "list",
                    "data": [
                        {"id": "gpt-4o-mini", "object": "model", "created": 1, "owned_by": "x"}
                    ],
                }
            ).encode(),
        )

    def do_POST(self):
        self.raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            req = json.loads(self.raw)
        except Exception:
            return self.send(400, b'{"error":{"message":"bad json"}}')
        time.sleep(DELAY)
        p = self.path.split("?")[0]
        try:
            if p.endswith("/chat/completions"):
                return self.chat(req)
            if p.endswith("/responses"):
                return self.openai_responses(req)
            if p.endswith("/messages"):
                return self.anthropic(req)
            if p.endswith("/count_tokens"):
                return self.send(200, b'{"input_tokens": 10}')
            if p.endswith("/embeddings"):
                return self.embed(req)
            return self.send(404, b'{"error":{"message":"no such path"}}')
        except (BrokenPipeError, ConnectionResetError):
            raise
        except Exception as e:
            import traceback

            traceback.print_exc()
            return self.send(500, json.dumps({"error": {"message": repr(e)}}).encode())

    def embed(self, req):
        i = req["input"]
        n = len(i) if isinstance(i, list) else 1
        self.send(
            200,
            json.dumps(
                {
                    "object": "list",
                    "model": req.get("model"),
                    "data": [
                        {"object": "embedding", "index": k, "embedding": [0.1] * 8}
                        for k in range(n)
                    ],
                    "usage": {"prompt_tokens": 5, "total_tokens": 5},
                }
            ).encode(),
        )

    def ids(self):
        return hashlib.sha256(self.raw + str(time.time()).encode()).hexdigest()

    def chat(self, req):
        d = decide(*history_chat(req))
        h = self.ids()
        rid = "chatcmpl-" + h[:10]
        now = int(time.time())
        usage = {
            "prompt_tokens": toks(self.raw.decode()),
            "completion_tokens": toks(json.dumps(d)),
            "total_tokens": toks(self.raw.decode()) + toks(json.dumps(d)),
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        }
        base = {
            "id": rid,
            "created": now,
            "model": req.get("model"),
            "system_fingerprint": "fp_fake",
        }
        if req.get("stream"):
            ev = []

            def ch(delta, fin=None):
                ev.append(
                    (
                        None,
                        {
                            **base,
                            "object": "chat.completion.chunk",
                            "choices": [
                                {"index": 0, "delta": delta, "finish_reason": fin, "logprobs": None}
                            ],
                        },
                    )
                )

            ch({"role": "assistant", "content": "" if d[0] == "text" else None})
            if d[0] == "text":
                for w in re.findall(r"\S+\s*|\s+", d[1]):
                    ch({"content": w})
                ch({}, "stop")
            else:
                a = json.dumps(d[2])
                ch(
                    {
                        "tool_calls": [
                            {
                                "index": 0,
                                "id": "call_" + h[:8],
                                "type": "function",
                                "function": {"name": d[1], "arguments": ""},
                            }
                        ]
                    }
                )
                for k in range(0, len(a), 8):
                    ch({"tool_calls": [{"index": 0, "function": {"arguments": a[k : k + 8]}}]})
                ch({}, "tool_calls")
            if (req.get("stream_options") or {}).get("include_usage"):
                ev.append(
                    (
                        None,
                        {**base, "object": "chat.completion.chunk", "choices": [], "usage": usage},
                    )
                )
            ev.append((None, "[DONE]"))
            return self.sse(ev, "req_" + h[:12])
        msg = {
            "role": "assistant",
            "content": d[1] if d[0] == "text" else None,
            "refusal": None,
            "annotations": [],
        }
        if d[0] == "tool":
            msg["tool_calls"] = [
                {
                    "id": "call_" + h[:8],
                    "type": "function",
                    "function": {"name": d[1], "arguments": json.dumps(d[2])},
                }
            ]
        self.send(
            200,
            json.dumps(
                {
                    **base,
                    "object": "chat.completion",
                    "choices": [
                        {
                            "index": 0,
                            "message": msg,
                            "logprobs": None,
                            "finish_reason": "stop" if d[0] == "text" else "tool_calls",
                        }
                    ],
                    "usage": usage,
                    "service_tier": "default",
                }
            ).encode(),
            extra={"x-request-id": "req_" + h[:12]},
        )
        return None

    def openai_responses(self, req):
        d = decide(*history_responses(req))
        h = self.ids()
        rid = "resp_" + h[:16]
        now = int(time.time())
        if d[0] == "text":
            item = {
                "type": "message",
                "id": "msg_" + h[:12],
                "status": "completed",
                "role": "assistant",
                "content": [
                    {"type": "output_text", "text": d[1], "annotations": [], "logprobs": []}
                ],
            }
        else:
            item = {
                "type": "function_call",
                "id": "fc_" + h[:12],
                "call_id": "call_" + h[:8],
                "name": d[1],
                "arguments": json.dumps(d[2]),
                "status": "completed",
            }
        i, o = toks(self.raw.decode()), toks(json.dumps(d))
        usage = {
            "input_tokens": i,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": o,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": i + o,
        }

        def full(status, out, u):
            return {
                "id": rid,
                "object": "response",
                "created_at": now,
                "status": status,
                "background": False,
                "error": None,
                "incomplete_details": None,
                "instructions": req.get("instructions"),
                "max_output_tokens": None,
                "model": req.get("model"),
                "output": out,
                "parallel_tool_calls": True,
                "previous_response_id": None,
                "reasoning": {"effort": None, "summary": None},
                "store": True,
                "temperature": 1.0,
                "text": {"format": {"type": "text"}},
                "tool_choice": "auto",
                "tools": req.get("tools") or [],
                "top_p": 1.0,
                "truncation": "disabled",
                "usage": u,
                "user": None,
                "metadata": {},
            }

        if not req.get("stream"):
            return self.send(
                200,
                json.dumps(full("completed", [item], usage)).encode(),
                extra={"x-request-id": "req_" + h[:12]},
            )
        ev, seq = [], [0]

        def e(t, **kw):
            ev.append((t, {"type": t, "sequence_number": seq[0], **kw}))
            seq[0] += 1

        e("response.created", response=full("in_progress", [], None))
        e("response.in_progress", response=full("in_progress", [], None))
        if d[0] == "text":
            e(
                "response.output_item.added",
                output_index=0,
                item={**item, "status": "in_progress", "content": []},
            )
            e(
                "response.content_part.added",
                item_id=item["id"],
                output_index=0,
                content_index=0,
                part={"type": "output_text", "text": "", "annotations": []},
            )
            for w in re.findall(r"\S+\s*", d[1]):
                e(
                    "response.output_text.delta",
                    item_id=item["id"],
                    output_index=0,
                    content_index=0,
                    delta=w,
                    logprobs=[],
                )
            e(
                "response.output_text.done",
                item_id=item["id"],
                output_index=0,
                content_index=0,
                text=d[1],
                logprobs=[],
            )
            e(
                "response.content_part.done",
                item_id=item["id"],
                output_index=0,
                content_index=0,
                part=item["content"][0],
            )
        else:
            e(
                "response.output_item.added",
                output_index=0,
                item={**item, "status": "in_progress", "arguments": ""},
            )
            a = item["arguments"]
            for k in range(0, len(a), 8):
                e(
                    "response.function_call_arguments.delta",
                    item_id=item["id"],
                    output_index=0,
                    delta=a[k : k + 8],
                )
            e(
                "response.function_call_arguments.done",
                item_id=item["id"],
                output_index=0,
                arguments=a,
                name=item["name"],
            )
        e("response.output_item.done", output_index=0, item=item)
        e("response.completed", response=full("completed", [item], usage))
        self.sse(ev, "req_" + h[:12])
        return None

    def anthropic(self, req):
        d = decide(*history_anthropic(req))
        h = self.ids()
        block = (
            {"type": "text", "text": d[1]}
            if d[0] == "text"
            else {"type": "tool_use", "id": "toolu_" + h[:16], "name": d[1], "input": d[2]}
        )
        stop = "end_turn" if d[0] == "text" else "tool_use"
        i, o = toks(self.raw.decode()), toks(json.dumps(d))
        usage = {
            "input_tokens": i,
            "output_tokens": o,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "service_tier": "standard",
        }
        msg = {
            "id": "msg_" + h[:20],
            "type": "message",
            "role": "assistant",
            "model": req.get("model"),
            "content": [block],
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": usage,
        }
        if not req.get("stream"):
            return self.send(200, json.dumps(msg).encode(), extra={"request-id": "req_" + h[:12]})
        ev = [
            (
                "message_start",
                {
                    "type": "message_start",
                    "message": {
                        **msg,
                        "content": [],
                        "stop_reason": None,
                        "usage": {**usage, "output_tokens": 1},
                    },
                },
            )
        ]
        if d[0] == "text":
            ev.append(
                (
                    "content_block_start",
                    {
                        "type": "content_block_start",
                        "index": 0,
                        "content_block": {"type": "text", "text": ""},
                    },
                )
            )
            for w in re.findall(r"\S+\s*", d[1]):
                ev.append(
                    (
                        "content_block_delta",
                        {
                            "type": "content_block_delta",
                            "index": 0,
                            "delta": {"type": "text_delta", "text": w},
                        },
                    )
                )
        else:
            ev.append(
                (
                    "content_block_start",
                    {
                        "type": "content_block_start",
                        "index": 0,
                        "content_block": {**block, "input": {}},
                    },
                )
            )
            a = json.dumps(d[2])
            for k in range(0, len(a), 8):
                ev.append(
                    (
                        "content_block_delta",
                        {
                            "type": "content_block_delta",
                            "index": 0,
                            "delta": {"type": "input_json_delta", "partial_json": a[k : k + 8]},
                        },
                    )
                )
        ev.append(("content_block_stop", {"type": "content_block_stop", "index": 0}))
        ev.append(
            (
                "message_delta",
                {
                    "type": "message_delta",
                    "delta": {"stop_reason": stop, "stop_sequence": None},
                    "usage": {"output_tokens": o},
                },
            )
        )
        ev.append(("message_stop", {"type": "message_stop"}))
        self.sse(ev, "req_" + h[:12])
        return None


class S(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *a):
        pass


if __name__ == "__main__":
    open(LOG, "a").close()
    server = S(("127.0.0.1", PORT), H)
    print(server.server_address[1], flush=True)
    server.serve_forever()
