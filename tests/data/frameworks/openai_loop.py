import json

from openai import OpenAI
from shop import convert, get_exchange_rate, look_up_order

client = OpenAI()
TOOLS = {f.__name__: f for f in (look_up_order, get_exchange_rate, convert)}


def schema(name, props):
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": TOOLS[name].__doc__.strip().split("\n")[0],
            "parameters": {"type": "object", "properties": props, "required": list(props)},
        },
    }


tools = [
    schema("look_up_order", {"order_id": {"type": "string"}}),
    schema("get_exchange_rate", {"currency": {"type": "string"}}),
    schema("convert", {"amount": {"type": "number"}, "rate": {"type": "number"}}),
]
messages = [
    {"role": "system", "content": "You are a refund agent."},
    {"role": "user", "content": "How much is the refund of order 4711 in USD?"},
]
for _ in range(10):
    message = (
        client.chat.completions.create(model="gpt-4o-mini", messages=messages, tools=tools)
        .choices[0]
        .message
    )
    messages.append(message.model_dump(exclude_none=True))
    if not message.tool_calls:
        print(message.content)
        break
    for call in message.tool_calls:
        try:
            result = json.dumps(TOOLS[call.function.name](**json.loads(call.function.arguments)))
        except Exception as e:
            result = f"error: {e}"
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
