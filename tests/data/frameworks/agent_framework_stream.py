"""An agent that streams, in a session, with tools by decorator, then asked again."""

import asyncio
from typing import Annotated

import shop
from agent_framework import Agent, tool
from agent_framework.openai import OpenAIChatCompletionClient


@tool
def look_up_order(order_id: Annotated[str, "the order's number"]) -> dict:
    """Look an order up by its number."""
    return shop.look_up_order(order_id)


@tool(name="get_exchange_rate", description="The rate of a currency to USD.")
async def rate(currency: str) -> float:
    await asyncio.sleep(0)
    return shop.get_exchange_rate(currency)


@tool
def convert(amount: float, rate: float) -> float:
    """Convert an amount with a rate."""
    return shop.convert(amount, rate)


async def main():
    agent = Agent(
        client=OpenAIChatCompletionClient(model="gpt-4o-mini"),
        name="desk",
        instructions="You answer questions about refunds.",
        tools=[look_up_order, rate, convert],
    )
    session = agent.create_session()
    parts = []
    async for update in agent.run(
        "How much is the refund of order 4711 in USD?", stream=True, session=session
    ):
        if update.text:
            parts.append(update.text)
    print("".join(parts))
    print(await agent.run("Say that again, please.", session=session))


asyncio.run(main())
