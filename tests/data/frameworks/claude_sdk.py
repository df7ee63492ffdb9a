import asyncio

import shop
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    TextBlock,
    create_sdk_mcp_server,
    tool,
)


@tool("look_up_order", "Look an order up by its number", {"order_id": str})
async def look_up_order(args):
    return {"content": [{"type": "text", "text": str(shop.look_up_order(args["order_id"]))}]}


@tool("get_exchange_rate", "The rate of a currency to USD", {"currency": str})
async def get_exchange_rate(args):
    return {"content": [{"type": "text", "text": str(shop.get_exchange_rate(args["currency"]))}]}


@tool("convert", "Convert an amount with a rate", {"amount": float, "rate": float})
async def convert(args):
    return {"content": [{"type": "text", "text": str(shop.convert(args["amount"], args["rate"]))}]}


server = create_sdk_mcp_server("shop", tools=[look_up_order, get_exchange_rate, convert])
options = ClaudeAgentOptions(
    model="claude-sonnet-4-5",
    system_prompt="You are a refund agent.",
    mcp_servers={"shop": server},
    tools=[],
    allowed_tools=[
        "mcp__shop__look_up_order",
        "mcp__shop__get_exchange_rate",
        "mcp__shop__convert",
    ],
    max_turns=10,
)


async def main():
    async with ClaudeSDKClient(options) as client:
        await client.query("How much is the refund of order 4711 in USD?")
        async for message in client.receive_response():
            if isinstance(message, AssistantMessage):
                for b in message.content:
                    print(b.text if isinstance(b, TextBlock) else getattr(b, "name", b))
            elif isinstance(message, ResultMessage):
                print("turns", message.num_turns, "error", message.is_error)


asyncio.run(main())
