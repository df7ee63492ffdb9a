import shop
from smolagents import CodeAgent, OpenAIServerModel, tool


@tool
def look_up_order(order_id: str) -> dict:
    """Look an order up by its number.

    Args:
        order_id: the order's number
    """
    return shop.look_up_order(order_id)


@tool
def get_exchange_rate(currency: str) -> float:
    """The rate of a currency to USD.

    Args:
        currency: the code
    """
    return shop.get_exchange_rate(currency)


@tool
def convert(amount: float, rate: float) -> float:
    """Convert an amount with a rate.

    Args:
        amount: the amount
        rate: the rate
    """
    return shop.convert(amount, rate)


agent = CodeAgent(
    tools=[look_up_order, get_exchange_rate, convert],
    model=OpenAIServerModel("gpt-4o-mini"),
    name="refund_agent",
    description="refunds",
    max_steps=8,
    verbosity_level=0,
)
print(agent.run("How much is the refund of order 4711 in USD?"))
