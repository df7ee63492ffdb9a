"""Actors of Dramatiq, with Redis on the port $REDIS_PORT."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from refund_loop import refund

dramatiq.set_broker(RedisBroker(url=f"redis://127.0.0.1:{os.environ['REDIS_PORT']}"))


@dramatiq.actor(actor_name="shop.refund", max_retries=0)
def refund_task(order_id):
    refund(order_id)


@dramatiq.actor(actor_name="shop.bad", max_retries=0)
def bad_task(order_id):
    refund(order_id)
    raise ValueError("no such customer")


if __name__ == "__main__":
    for number in range(3):
        refund_task.send(f"A{number}")
    bad_task.send("A8")
