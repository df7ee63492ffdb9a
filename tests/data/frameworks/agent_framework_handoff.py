import asyncio

import shop
from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient
from agent_framework.orchestrations import HandoffBuilder

client = OpenAIChatCompletionClient(model="gpt-4o-mini")
triage = Agent(
    client=client,
    name="triage_agent",
    instructions="Hand off to the right agent.",
    require_per_service_call_history_persistence=True,
)
refund = Agent(
    client=client,
    name="refund_agent",
    instructions="You compute refunds.",
    tools=[shop.look_up_order, shop.get_exchange_rate, shop.convert],
    require_per_service_call_history_persistence=True,
)
workflow = (
    HandoffBuilder(name="desk", participants=[triage, refund])
    .with_start_agent(triage)
    .add_handoff(triage, [refund])
    .build()
)


async def main():
    result = await workflow.run("How much is the refund of order 4711 in USD?")
    print(result.get_outputs()[-1])


asyncio.run(main())
