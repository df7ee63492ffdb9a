import asyncio

import shop
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai import OpenAI

agent = FunctionAgent(
    name="refund_agent",
    description="Computes refunds",
    tools=[shop.look_up_order, shop.get_exchange_rate, shop.convert],
    llm=OpenAI(model="gpt-4o-mini"),
    system_prompt="You are a refund agent.",
)


async def main():
    print(await agent.run("How much is the refund of order 4711 in USD?"))


asyncio.run(main())
