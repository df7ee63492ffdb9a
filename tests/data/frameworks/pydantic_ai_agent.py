from dataclasses import dataclass

import shop
from pydantic_ai import Agent, ModelRetry, RunContext


@dataclass
class Deps:
    customer: str


agent = Agent(
    "openai-chat:gpt-4o-mini",
    deps_type=Deps,
    name="refund_agent",
    instructions="You are a refund agent.",
    retries=2,
)


@agent.tool
def look_up_order(ctx: RunContext[Deps], order_id: str) -> dict:
    """Look an order up by its number."""
    return shop.look_up_order(order_id)


@agent.tool_plain
def get_exchange_rate(currency: str) -> float:
    """The rate of a currency to USD."""
    try:
        return shop.get_exchange_rate(currency)
    except ConnectionError as e:
        raise ModelRetry(f"{e}, try again") from e


@agent.tool_plain
def convert(amount: float, rate: float) -> float:
    """Convert an amount with a rate."""
    return shop.convert(amount, rate)


print(agent.run_sync("How much is the refund of order 4711 in USD?", deps=Deps("ada")).output)
