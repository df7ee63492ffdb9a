import json

from anthropic import Anthropic
from shop import convert, get_exchange_rate, look_up_order

client = Anthropic()
TOOLS = {f.__name__: f for f in (look_up_order, get_exchange_rate, convert)}


def schema(name, props):
    return {
        "name": name,
        "description": TOOLS[name].__doc__.strip().split("\n")[0],
        "input_schema": {"type": "object", "properties": props, "required": list(props)},
    }


tools = [
    schema("look_up_order", {"order_id": {"type": "string"}}),
    schema("get_exchange_rate", {"currency": {"type": "string"}}),
    schema("convert", {"amount": {"type": "number"}, "rate": {"type": "number"}}),
]
messages = [{"role": "user", "content": "How much is the refund of order 4711 in USD?"}]
for _ in range(10):
    with client.messages.stream(
        model="claude-sonnet-4-5",
        max_tokens=500,
        system="You are a refund agent.",
        messages=messages,
        tools=tools,
    ) as stream:
        message = stream.get_final_message()
    messages.append(
        {
            "role": "assistant",
            "content": [
                b.model_dump(include={"type", "text", "id", "name", "input"}, exclude_none=True)
                for b in message.content
            ],
        }
    )
    if message.stop_reason != "tool_use":
        print(message.content[0].text)
        break
    results = []
    for block in message.content:
        if block.type == "tool_use":
            try:
                results.append(
                    {
                        "type": "tool_result",
                        "tool_use_id": block.id,
                        "content": json.dumps(TOOLS[block.name](**block.input)),
                    }
                )
            except Exception as e:
                results.append(
                    {
                        "type": "tool_result",
                        "tool_use_id": block.id,
                        "content": f"error: {e}",
                        "is_error": True,
                    }
                )
    messages.append({"role": "user", "content": results})
