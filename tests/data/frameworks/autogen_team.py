import asyncio

import shop
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient

client = OpenAIChatCompletionClient(model="gpt-4o-mini")
clerk = AssistantAgent(
    "refund_clerk",
    client,
    tools=[shop.look_up_order, shop.get_exchange_rate, shop.convert],
    system_message="You compute refunds.",
    max_tool_iterations=8,
)
writer = AssistantAgent("writer", client, system_message="You write letters.")


async def main():
    team = RoundRobinGroupChat([clerk, writer], termination_condition=MaxMessageTermination(3))
    result = await team.run(task="How much is the refund of order 4711 in USD?")
    print(result.messages[-1].content)


asyncio.run(main())
