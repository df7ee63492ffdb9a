"""A swarm: triage hands over to the clerk, and an agent of the program's own files the answer."""

import asyncio

import shop
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import HandoffMessage, TextMessage
from autogen_agentchat.teams import Swarm
from autogen_ext.models.openai import OpenAIChatCompletionClient


class Archive(BaseChatAgent):
    """Files what was said last, without a model."""

    @property
    def produced_message_types(self):
        return (TextMessage,)

    async def on_messages(self, messages, cancellation_token):
        words = len(messages[-1].to_text().split())
        return Response(chat_message=TextMessage(content=f"filed {words} words", source=self.name))

    async def on_reset(self, cancellation_token):
        pass


async def main():
    model = OpenAIChatCompletionClient(model="gpt-4o-mini")
    triage = AssistantAgent("triage", model, handoffs=["clerk"], system_message="You route.")
    clerk = AssistantAgent(
        "clerk",
        model,
        tools=[shop.look_up_order, shop.get_exchange_rate, shop.convert],
        system_message="You compute refunds.",
        max_tool_iterations=8,
    )
    team = Swarm([triage, clerk], termination_condition=MaxMessageTermination(14))
    answer = ""
    async for item in team.run_stream(task="How much is the refund of order 4711 in USD?"):
        if isinstance(item, TextMessage) and item.source == "clerk":
            answer = item.content
            break
    filed = await Archive("archive", "files answers").run(task=answer)
    print(answer, filed.messages[-1].content, HandoffMessage.__name__)
    await model.close()


asyncio.run(main())
