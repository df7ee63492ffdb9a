"""A sequence of agents; one asks another as a tool, and a plugin answers for a tool that fails."""

import asyncio

import shop
from google.adk.agents import LlmAgent, ParallelAgent, SequentialAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.plugins.reflect_retry_tool_plugin import ReflectAndRetryToolPlugin
from google.adk.runners import InMemoryRunner
from google.adk.tools.agent_tool import AgentTool
from google.genai import types


def get_exchange_rate(currency: str) -> dict:
    """The rate of a currency to USD."""
    return {"rate": shop.get_exchange_rate(currency)}


def make_model() -> LiteLlm:
    return LiteLlm(model="openai/gpt-4o-mini")


clerk = LlmAgent(
    name="refund_agent",
    model=make_model(),
    description="Computes refunds",
    instruction="You compute refunds.",
    tools=[shop.look_up_order, get_exchange_rate, shop.convert],
)
front = LlmAgent(
    name="front", model=make_model(), instruction="Ask the clerk.", tools=[AgentTool(clerk)]
)
letters = [
    LlmAgent(name=name, model=make_model(), instruction=f"Write a {name}.")
    for name in ("letter", "note")
]
desk = SequentialAgent(
    name="desk", sub_agents=[front, ParallelAgent(name="both", sub_agents=letters)]
)


async def main():
    plugins = [ReflectAndRetryToolPlugin(max_retries=3)]
    runner = InMemoryRunner(agent=desk, app_name="shop", plugins=plugins)
    session = await runner.session_service.create_session(app_name="shop", user_id="u")
    message = types.Content(
        role="user", parts=[types.Part(text="How much is the refund of order 4711 in USD?")]
    )
    answers = set()
    async for event in runner.run_async(user_id="u", session_id=session.id, new_message=message):
        if event.is_final_response() and event.content:
            answers.add(event.author)
    print(sorted(answers))


asyncio.run(main())
