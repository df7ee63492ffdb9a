"""The edge: every hook asks here whether a call is recorded, and as what.

    exchange = begin(Ask(...))        # None: not recorded; hand the call on unchanged

The one seam between the clients' hooks and the rest. It never raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from vestige.emit import context
from vestige.emit.emitter import Emitter
from vestige.providers.endpoints import OTHER, Endpoint, find_endpoint, provider_of
from vestige.providers.parsing import TEXT_MAX, parse_request
from vestige.wire import capture
from vestige.wire.capture import Policy
from vestige.wire.content_encoding import decode, is_coded
from vestige.wire.exchange import Exchange, fault
from vestige.wire.headers import find_header, header_secrets
from vestige.wire.outgoing_request import OutgoingRequest, SpanContext
from vestige.wire.retry_attempts import Attempts

if TYPE_CHECKING:
    from vestige.wire.replay import Answer, Player

player: Player | None = None
"""Answers in the place of the network, in a child of `vestige replay`."""

_attempts = Attempts()

_OFF: ContextVar[bool] = ContextVar("vestige_wire_off", default=False)

_SHAPES = (b'"messages"', b'"contents"', b'"input"')
"""Without one of these members no body is a model request: no need to parse it."""


@contextmanager
def unrecorded() -> Iterator[None]:
    """Calls made inside are our own, and not recorded."""
    token = _OFF.set(True)
    try:
        yield
    finally:
        _OFF.reset(token)


def begin(ask: OutgoingRequest) -> Exchange | None:
    """A call is about to be made."""
    policy = capture.active()
    if policy is None or _OFF.get():
        return None
    emitter: Emitter | None = None
    try:
        place = find_place(policy)
        if place is None:
            return None
        emitter = place.emitter
        endpoint = _find_endpoint(policy, ask)
        if endpoint is None:
            return None
        for secret in header_secrets(ask.headers, ask.url):
            emitter.register_secret(secret)
        return Exchange(place, ask, endpoint, _attempts, warm=capture.WARM.get())
    except Exception as error:  # noqa: BLE001  # the call is made all the same
        if emitter is not None:
            fault(emitter, error)
        return None


def play(exchange: Exchange) -> Answer | None:
    """The recorded answer to a request that is known by now; None: ask the network."""
    if player is None:
        return None
    return player.answer(exchange.ask, exchange.place.emitter.redact)


def find_place(policy: Policy) -> SpanContext | None:
    """The ambient span, else this process; nothing where recording is off or the run is not sampled."""
    parent = context.SPAN.get()
    if policy.within is not None:
        parent = policy.within(parent)
    if parent is not None:
        if parent.muted:
            return None
        return SpanContext(parent._emitter, parent.run_id, parent.id, parent.component)
    recorder = policy.recorder
    if recorder is None:
        from vestige.process_recorder import default_recorder

        recorder = default_recorder()
    if recorder._closed:
        return None
    emitter = recorder._emitter
    return SpanContext(emitter, emitter.process_run_id, emitter.process_span_id, "agent")


def _find_endpoint(policy: Policy, ask: OutgoingRequest) -> Endpoint | None:
    """What to record it as; nothing if not at all."""
    if not policy.allows(ask.host, ask.path):
        return None
    endpoint = find_endpoint(ask.method, ask.host, ask.path)
    if endpoint is None and _is_request(ask):
        endpoint = Endpoint(provider_of(ask.host) or "", "model")
    if endpoint is not None and endpoint.is_model_call:
        return endpoint
    return (endpoint or Endpoint(provider_of(ask.host) or "", OTHER)) if policy.http else None


def _is_request(ask: OutgoingRequest) -> bool:
    """By the shape of its body."""
    body = ask.body
    if not body or len(body) > TEXT_MAX:
        return False
    coding = find_header(ask.headers, "content-encoding") or ""
    if is_coded(coding):
        plain = decode(body, coding, TEXT_MAX)
        body = bytes(plain.data) if plain is not None else body
    if not any(shape in body for shape in _SHAPES):
        return False
    return parse_request(body) is not None
