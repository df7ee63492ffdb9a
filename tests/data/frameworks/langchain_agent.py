"""LangChain: create_agent with a middleware for errors of tools."""

import shop
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain.messages import ToolMessage
from langchain.tools import tool


@tool
def look_up_order(order_id: str) -> dict:
    """Look an order up by its number."""
    return shop.look_up_order(order_id)


@tool
def get_exchange_rate(currency: str) -> float:
    """The rate of a currency to USD."""
    return shop.get_exchange_rate(currency)


@tool
def convert(amount: float, rate: float) -> float:
    """Convert an amount with a rate."""
    return shop.convert(amount, rate)


@wrap_tool_call
def handle_tool_errors(request, handler):
    try:
        return handler(request)
    except Exception as e:
        return ToolMessage(
            content=f"Tool error: {e}", tool_call_id=request.tool_call["id"], status="error"
        )


agent = create_agent(
    "openai:gpt-4o-mini",
    tools=[look_up_order, get_exchange_rate, convert],
    system_prompt="You are a refund agent.",
    middleware=[handle_tool_errors],
    name="refund_agent",
)
result = agent.invoke(
    {"messages": [{"role": "user", "content": "How much is the refund of order 4711 in USD?"}]}
)
print(result["messages"][-1].content)
