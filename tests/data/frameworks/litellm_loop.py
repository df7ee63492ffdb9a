import json

import litellm
import shop

TOOLS = {f.__name__: f for f in (shop.look_up_order, shop.get_exchange_rate, shop.convert)}
P = {
    "look_up_order": {"order_id": {"type": "string"}},
    "get_exchange_rate": {"currency": {"type": "string"}},
    "convert": {"amount": {"type": "number"}, "rate": {"type": "number"}},
}
tools = [
    {
        "type": "function",
        "function": {
            "name": n,
            "description": f.__doc__.split("\n")[0],
            "parameters": {"type": "object", "properties": P[n], "required": list(P[n])},
        },
    }
    for n, f in TOOLS.items()
]
messages = [{"role": "user", "content": "How much is the refund of order 4711 in USD?"}]
for _ in range(10):
    message = (
        litellm.completion("openai/gpt-4o-mini", messages=messages, tools=tools, num_retries=2)
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
            result = json.dumps({"status": "failed", "reason": str(e)})
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
