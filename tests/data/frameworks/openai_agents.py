"""OpenAI Agents SDK: a triage agent hands off to a refund agent; streamed."""

import asyncio

import shop
from agents import Agent, Runner, function_tool


@function_tool
def look_up_order(order_id: str) -> dict:
    """Look an order up by its number."""
    return shop.look_up_order(order_id)


@function_tool
def get_exchange_rate(currency: str) -> float:
    """The rate of a currency to USD."""
    return shop.get_exchange_rate(currency)


@function_tool
def convert(amount: float, rate: float) -> float:
    """Convert an amount with a rate."""
    return shop.convert(amount, rate)


refund = Agent(
    name="Refund agent",
    instructions="You compute refunds.",
    model="gpt-4o-mini",
    tools=[look_up_order, get_exchange_rate, convert],
    handoff_description="For refunds",
)
triage = Agent(
    name="Triage agent",
    instructions="Hand off to the right agent.",
    model="gpt-4o-mini",
    handoffs=[refund],
)


async def main():
    result = await Runner.run(triage, "How much is the refund of order 4711 in USD?")
    print(result.final_output)
    print("last agent:", result.last_agent.name)


asyncio.run(main())
