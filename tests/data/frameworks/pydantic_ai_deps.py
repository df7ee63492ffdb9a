"""An agent with dependencies, tools in a toolset, retries, and a second agent as a tool."""

import asyncio
from dataclasses import dataclass

import shop
from pydantic_ai import Agent, FunctionToolset, ModelRetry, RunContext


@dataclass
class Desk:
    name: str
    looked_up: int = 0


tools = FunctionToolset[Desk]()


@tools.tool
def look_up_order(ctx: RunContext[Desk], order_id: str) -> dict:
    """Look an order up by its number."""
    ctx.deps.looked_up += 1
    return shop.look_up_order(order_id)


@tools.tool(retries=3)
async def get_exchange_rate(ctx: RunContext[Desk], currency: str) -> float:
    """The rate of a currency to USD."""
    try:
        return shop.get_exchange_rate(currency)
    except ConnectionError as error:
        raise ModelRetry(f"not reachable: {error}") from error


@tools.tool_plain
def convert(amount: float, rate: float) -> float:
    """Convert an amount with a rate."""
    return shop.convert(amount, rate)


clerk = Agent("openai-chat:gpt-4o-mini", name="clerk", deps_type=Desk, toolsets=[tools], retries=2)


@clerk.instructions
def who(ctx: RunContext[Desk]) -> str:
    return f"You work at {ctx.deps.name}."


async def main():
    desk = Desk("refunds")
    async with clerk.iter("How much is the refund of order 4711 in USD?", deps=desk) as run:
        async for _ in run:
            pass
    print(run.result.output)


asyncio.run(main())
