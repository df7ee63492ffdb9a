"""Tasks of Celery, with a broker in files below $SCRATCH."""

import os

from celery import Celery
from refund_loop import refund

SCRATCH = os.environ["SCRATCH"]
for name in ("queue", "control", "results"):
    os.makedirs(f"{SCRATCH}/{name}", exist_ok=True)
app = Celery("shop", broker="filesystem://", backend=f"file://{SCRATCH}/results")
app.conf.broker_transport_options = {
    "data_folder_in": f"{SCRATCH}/queue",
    "data_folder_out": f"{SCRATCH}/queue",
    "control_folder": f"{SCRATCH}/control",
}


@app.task(name="shop.refund")
def refund_task(order_id):
    return refund(order_id)


@app.task(name="shop.bad")
def bad_task(order_id):
    refund(order_id)
    raise ValueError("no such customer")


if __name__ == "__main__":
    sent = [refund_task.delay(f"A{number}") for number in range(3)] + [bad_task.delay("A8")]
    for result in sent:
        result.get(timeout=100, propagate=False)
