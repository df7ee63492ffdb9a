"""A graph of its own: a planner, a loop of model and tools, and a reviewer in a subgraph."""

import operator
from typing import Annotated, TypedDict

import shop
from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage
from langchain_core.tools import StructuredTool, tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode


@tool
def look_up_order(order_id: str) -> dict:
    """Look an order up by its number."""
    return shop.look_up_order(order_id)


rate = StructuredTool.from_function(shop.get_exchange_rate, name="get_exchange_rate")
convert = StructuredTool.from_function(shop.convert, name="convert")
TOOLS = [look_up_order, rate, convert]
model = ChatOpenAI(model="gpt-4o-mini")


class State(TypedDict):
    messages: Annotated[list[AnyMessage], operator.add]
    approved: bool


def plan(state: State) -> dict:
    return {"messages": [SystemMessage("Use the tools, then answer.")]}


def think(state: State) -> dict:
    return {"messages": [model.bind_tools(TOOLS).invoke(state["messages"])]}


def has_calls(state: State) -> str:
    return "tools" if state["messages"][-1].tool_calls else "review"


def review(state: State) -> dict:
    return {"approved": "4711" in state["messages"][-1].content}


reviewer = StateGraph(State)
reviewer.add_node("judge", review)
reviewer.add_edge(START, "judge")
reviewer.add_edge("judge", END)

graph = StateGraph(State)
graph.add_node("plan", plan)
graph.add_node("think", think)
graph.add_node("tools", ToolNode(TOOLS, handle_tool_errors=True))
graph.add_node("review", reviewer.compile())
graph.add_edge(START, "plan")
graph.add_edge("plan", "think")
graph.add_conditional_edges("think", has_calls, ["tools", "review"])
graph.add_edge("tools", "think")
graph.add_edge("review", END)

final = graph.compile().invoke(
    {"messages": [HumanMessage("How much is the refund of order 4711 in USD?")], "approved": False}
)
print(final["messages"][-1].content, final["approved"])
