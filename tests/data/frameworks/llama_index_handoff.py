import asyncio

import shop
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.llms.openai import OpenAI

llm = OpenAI(model="gpt-4o-mini")
refund = FunctionAgent(
    name="refund_agent",
    description="Computes refunds",
    tools=[shop.look_up_order, shop.get_exchange_rate, shop.convert],
    llm=llm,
    system_prompt="You compute refunds.",
)
triage = FunctionAgent(
    name="triage_agent",
    description="Finds the right agent",
    llm=llm,
    system_prompt="Hand off to the right agent.",
    can_handoff_to=["refund_agent"],
)
workflow = AgentWorkflow(agents=[triage, refund], root_agent="triage_agent")


async def main():
    print(await workflow.run(user_msg="How much is the refund of order 4711 in USD?"))


asyncio.run(main())
