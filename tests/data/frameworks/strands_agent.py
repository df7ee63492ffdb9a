import shop
from strands import Agent, tool
from strands.models.openai import OpenAIModel


@tool
def look_up_order(order_id: str) -> dict:
    """Look an order up by its number."""
    return shop.look_up_order(order_id)


@tool
def get_exchange_rate(currency: str) -> str:
    """The rate of a currency to USD."""
    return str(shop.get_exchange_rate(currency))


@tool
def convert(amount: float, rate: float) -> str:
    """Convert an amount with a rate."""
    return str(shop.convert(amount, rate))


agent = Agent(
    name="refund_agent",
    model=OpenAIModel(model_id="gpt-4o-mini"),
    tools=[look_up_order, get_exchange_rate, convert],
    system_prompt="You are a refund agent.",
)
print("\nFINAL", agent("How much is the refund of order 4711 in USD?"))
