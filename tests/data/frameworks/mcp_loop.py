"""An OpenAI loop whose tools come from an MCP server (stdio child, or an HTTP address)."""

import asyncio
import json
import os
import sys

from openai import AsyncOpenAI

from mcp import Client, StdioServerParameters

where = (
    sys.argv[1]
    if len(sys.argv) > 1
    else StdioServerParameters(command=sys.executable, args=["mcp_server.py"], env=dict(os.environ))
)


async def main():
    openai = AsyncOpenAI()
    async with Client(where) as client:
        listed = (await client.list_tools()).tools
        tools = [
            {
                "type": "function",
                "function": {
                    "name": t.name,
                    "description": t.description,
                    "parameters": t.input_schema,
                },
            }
            for t in listed
        ]
        messages = [{"role": "user", "content": "How much is the refund of order 4711 in USD?"}]
        for _ in range(10):
            message = (
                (
                    await openai.chat.completions.create(
                        model="gpt-4o-mini", messages=messages, tools=tools
                    )
                )
                .choices[0]
                .message
            )
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                print(message.content)
                return
            for call in message.tool_calls:
                result = await client.call_tool(
                    call.function.name, json.loads(call.function.arguments)
                )
                messages.append(
                    {
                        "role": "tool",
                        "tool_call_id": call.id,
                        "content": "\n".join(c.text for c in result.content),
                    }
                )


asyncio.run(main())
