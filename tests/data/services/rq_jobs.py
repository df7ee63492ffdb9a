"""Jobs of RQ, with Redis on the port $REDIS_PORT."""

import os

from refund_loop import refund


def refund_job(order_id):
    return refund(order_id)


def bad_job(order_id):
    refund(order_id)
    raise ValueError("no such customer")


if __name__ == "__main__":
    import rq_jobs  # the worker imports it by this name
    from redis import Redis
    from rq import Queue

    queue = Queue(connection=Redis(port=int(os.environ["REDIS_PORT"])))
    for number in range(3):
        queue.enqueue(rq_jobs.refund_job, f"A{number}")
    queue.enqueue(rq_jobs.bad_job, "A8")
