"""LangGraph: a router, a refund agent as a subgraph, and a summary, streamed."""

import asyncio
from typing import Annotated, TypedDict

import shop
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain.chat_models import init_chat_model
from langchain.messages import ToolMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages


class State(TypedDict):
    messages: Annotated[list, add_messages]
    route: str


@wrap_tool_call
async def handle(request, handler):
    try:
        return await handler(request)
    except Exception as e:
        return ToolMessage(
            content=f"Tool error: {e}", tool_call_id=request.tool_call["id"], status="error"
        )


llm = init_chat_model("openai:gpt-4o-mini")
refund = create_agent(
    llm,
    tools=[shop.look_up_order, shop.get_exchange_rate, shop.convert],
    system_prompt="You are a refund agent.",
    middleware=[handle],
    name="refund_agent",
)


async def router(state):
    await llm.ainvoke("Route this: " + state["messages"][0].content)
    return {"route": "refund"}


async def summary(state):
    return {
        "messages": [
            await llm.ainvoke([("system", "Summarise."), ("user", state["messages"][-1].content)])
        ]
    }


graph = StateGraph(State)
graph.add_node("router", router)
graph.add_node("refund_agent", refund)
graph.add_node("summary", summary)
graph.add_edge(START, "router")
graph.add_conditional_edges("router", lambda s: "refund_agent")
graph.add_edge("refund_agent", "summary")
graph.add_edge("summary", END)
app = graph.compile()


async def main():
    async for mode, chunk in app.astream(
        {"messages": [("user", "How much is the refund of order 4711 in USD?")]},
        stream_mode=["updates", "messages"],
        config={"configurable": {"thread_id": "t-1"}},
    ):
        if mode == "updates":
            print(list(chunk))


asyncio.run(main())
