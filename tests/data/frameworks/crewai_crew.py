import shop
from crewai import Agent, Crew, Process, Task
from crewai.tools import tool


@tool("look_up_order")
def look_up_order(order_id: str) -> str:
    """Look an order up by its number."""
    return str(shop.look_up_order(order_id))


@tool("get_exchange_rate")
def get_exchange_rate(currency: str) -> float:
    """The rate of a currency to USD."""
    return shop.get_exchange_rate(currency)


@tool("convert")
def convert(amount: float, rate: float) -> float:
    """Convert an amount with a rate."""
    return shop.convert(amount, rate)


clerk = Agent(
    role="Refund clerk",
    goal="Compute refunds",
    backstory="You know all orders.",
    tools=[look_up_order, get_exchange_rate, convert],
    llm="gpt-4o-mini",
    verbose=False,
)
writer = Agent(
    role="Writer",
    goal="Write a letter",
    backstory="You write well.",
    llm="gpt-4o-mini",
    verbose=False,
)
compute = Task(
    description="How much is the refund of order 4711 in USD?",
    expected_output="An amount",
    agent=clerk,
)
letter = Task(
    description="Write to the customer", expected_output="A letter", agent=writer, context=[compute]
)
crew = Crew(
    name="refund crew",
    agents=[clerk, writer],
    tasks=[compute, letter],
    process=Process.sequential,
    verbose=False,
)
print(crew.kickoff())
