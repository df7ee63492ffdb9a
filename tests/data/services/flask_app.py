"""A Flask service: answers, a streamed response, and a failure."""

import sys

from flask import Flask, Response
from refund_loop import refund

app = Flask(__name__)


@app.post("/refund/<order_id>")
def answer(order_id):
    return {"answer": refund(order_id)}


@app.post("/stream/<order_id>")
def stream(order_id):
    def chunks():
        yield "working\n"
        yield refund(order_id)

    return Response(chunks())


@app.post("/boom")
def boom():
    refund("A8")
    raise ValueError("no such customer")


@app.get("/health")
def health():
    return "ok"


if __name__ == "__main__":
    app.run(port=int(sys.argv[1]), threaded=True)
