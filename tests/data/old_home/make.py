"""Record a home with the version of Vestige that this Python has: see README.md."""

import os
import signal
import sys

import vestige

recorder = vestige.Recorder(sys.argv[1], last_words=False)
with recorder.run("refund agent", conversation_id="ticket-7") as run:
    messages = [
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": "Where is my refund?"},
    ]
    with run.span("chat", type="llm", body={"model": "gpt-4o-mini", "messages": messages}) as call:
        call.set_attributes(model="gpt-4o-mini", input_tokens=120, output_tokens=12)
        call.end(body={"role": "assistant", "content": "Looking it up."})
    tool = run.child("lookup_order", type="tool", body={"order": 7})
    tool.end(error=TimeoutError("orders: no answer in 5 s"))
    run.log.error("gave up", order=7, password="correct-horse-9")
    run.end(error=TimeoutError("orders: no answer in 5 s"))
with recorder.run("refund agent", conversation_id="ticket-8") as run:
    run.child("lookup_order", type="tool", body={"order": 8}).end(body={"state": "paid"})
    run.child("long", type="tool").end(body="a line of a long result\n" * 900)
if sys.argv[2:] == ["killed"]:
    run = recorder.run("killed agent")
    run.child("lookup_order", type="tool", body={"order": 9})
    os.kill(os.getpid(), signal.SIGKILL)
recorder.close()
