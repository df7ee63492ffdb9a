"""A run for each request, task and notebook cell of a service.

    POST /refund/{order_id}        incoming_requests.py: Starlette, FastAPI, Flask, Django
    shop.refund                    task_queues.py: Celery, RQ, Dramatiq
    cell 3                         notebooks.py: Jupyter

The run opens when the first model call, tool or agent inside is recorded (emit/pending_run.py). It
ends where the work ends: after the last chunk of a streamed response and its background tasks.
"""
