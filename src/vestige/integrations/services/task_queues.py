"""Tasks of Celery, RQ and Dramatiq, one run each, linked to the span that sent them."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from vestige.emit import context
from vestige.emit.pending_run import PendingRun
from vestige.integrations.failure_counts import guarded

_CALLER_HEADER = "vestige_caller"
_running: dict[str, tuple[PendingRun, Any]] = {}


def install_celery(module: ModuleType) -> None:
    """Connect to the signals of tasks. `module` is celery.signals."""
    module.before_task_publish.connect(_name_caller, weak=False)
    module.task_prerun.connect(_begin_task, weak=False)
    module.task_postrun.connect(_end_task, weak=False)


@guarded
def _name_caller(headers: Any = None, **_: Any) -> None:
    """Add the sender's span to the headers of a task, which its function does not see."""
    span = context.SPAN.get()
    if span is not None and isinstance(headers, dict) and not span.muted:
        headers.setdefault(_CALLER_HEADER, f"{span.run_id}/{span.id}")


@guarded
def _begin_task(task_id: Any = None, task: Any = None, **_: Any) -> None:
    request = getattr(task, "request", None)
    headers = getattr(request, "headers", None) or {}
    caller = headers.get(_CALLER_HEADER) or getattr(request, _CALLER_HEADER, None)
    name = str(getattr(task, "name", "task"))
    pending = PendingRun(lambda: name, {"task_id": str(task_id)}, caller)
    active = pending.active()
    active.__enter__()
    _running[str(task_id)] = (pending, active)


@guarded
def _end_task(task_id: Any = None, retval: Any = None, state: Any = None, **_: Any) -> None:
    pending, active = _running.pop(str(task_id))
    active.__exit__(None, None, None)
    failed = retval if isinstance(retval, BaseException) and state == "FAILURE" else None
    pending.end(failed)


def install_rq(module: ModuleType) -> None:
    """Wrap jobs of RQ. `module` is rq.job."""
    _wrap(module.Job, "perform", lambda job: str(job.func_name), lambda job: str(job.id))


def install_dramatiq(module: ModuleType) -> None:
    """Wrap actors of Dramatiq. `module` is dramatiq.actor."""
    _wrap(module.Actor, "__call__", lambda actor: str(actor.actor_name), lambda actor: None)


def _wrap(owner: Any, method: str, get_name: Any, get_id: Any) -> None:
    original = getattr(owner, method)

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if context.PENDING.get() is not None or context.SPAN.get() is not None:
            return original(self, *args, **kwargs)  # called by the program, not by a worker
        task_id = guarded(get_id)(self)
        attributes = None if task_id is None else {"task_id": task_id}
        pending = PendingRun(lambda: get_name(self), attributes)
        try:
            with pending.active():
                result = original(self, *args, **kwargs)
        except BaseException as error:
            pending.end(error)
            raise
        pending.end()
        return result

    setattr(owner, method, call)
