import dspy
import shop

dspy.configure(lm=dspy.LM("openai/gpt-4o-mini", cache=False))
agent = dspy.ReAct(
    "question -> answer",
    tools=[shop.look_up_order, shop.get_exchange_rate, shop.convert],
    max_iters=8,
)
print(agent(question="How much is the refund of order 4711 in USD?").answer)
