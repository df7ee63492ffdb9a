import asyncio

import shop
from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types


def get_exchange_rate(currency: str) -> dict:
    """The rate of a currency to USD."""
    try:
        return {"status": "success", "rate": shop.get_exchange_rate(currency)}
    except ConnectionError as e:
        return {"status": "error", "error_message": str(e)}


def convert(amount: float, rate: float) -> dict:
    """Convert an amount with a rate."""
    return {"status": "success", "result": shop.convert(amount, rate)}


model = LiteLlm(model="openai/gpt-4o-mini")
refund = LlmAgent(
    name="refund_agent",
    model=model,
    description="Computes refunds",
    instruction="You compute refunds.",
    tools=[shop.look_up_order, get_exchange_rate, convert],
)
root = LlmAgent(
    name="triage_agent",
    model=model,
    instruction="Transfer to the right agent.",
    sub_agents=[refund],
)


async def main():
    runner = InMemoryRunner(agent=root, app_name="shop")
    session = await runner.session_service.create_session(app_name="shop", user_id="u")
    message = types.Content(
        role="user", parts=[types.Part(text="How much is the refund of order 4711 in USD?")]
    )
    async for event in runner.run_async(user_id="u", session_id=session.id, new_message=message):
        if event.is_final_response() and event.content:
            print(event.author, event.content.parts[0].text)


asyncio.run(main())
