import asyncio

import shop
from ag2 import Agent
from ag2.config import OpenAIConfig

agent = Agent(
    "refund_agent",
    "You are a refund agent.",
    config=OpenAIConfig(model="gpt-4o-mini"),
    tools=[shop.look_up_order, shop.get_exchange_rate, shop.convert],
)


async def main():
    reply = await agent.ask("How much is the refund of order 4711 in USD?")
    print(await reply.content())


asyncio.run(main())
