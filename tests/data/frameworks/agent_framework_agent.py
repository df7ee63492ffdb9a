import asyncio

import shop
from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient

agent = Agent(
    client=OpenAIChatCompletionClient(model="gpt-4o-mini"),
    name="refund_agent",
    instructions="You are a refund agent.",
    tools=[shop.look_up_order, shop.get_exchange_rate, shop.convert],
)


async def main():
    print(await agent.run("How much is the refund of order 4711 in USD?"))


asyncio.run(main())
