"""A Starlette service: answers, a streamed response, a background task, and a failure."""

import asyncio
import sys

import uvicorn
from refund_loop import refund
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route


async def answer(request):
    text = await asyncio.to_thread(refund, request.path_params["order_id"])
    return JSONResponse({"answer": text})


async def stream(request):
    async def chunks():
        yield "working\n"
        yield await asyncio.to_thread(refund, request.path_params["order_id"])

    return StreamingResponse(chunks())


async def later(request):
    return PlainTextResponse("accepted", background=BackgroundTask(refund, "A7"))


async def boom(request):
    await asyncio.to_thread(refund, "A8")
    raise ValueError("no such customer")


async def health(request):
    return PlainTextResponse("ok")


app = Starlette(
    routes=[
        Route("/refund/{order_id}", answer, methods=["POST"]),
        Route("/stream/{order_id}", stream, methods=["POST"]),
        Route("/later", later, methods=["POST"]),
        Route("/boom", boom, methods=["POST"]),
        Route("/health", health),
    ]
)

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")
