"""Decide for each HTTP call whether it is recorded, and as what.

    exchange = begin(OutgoingRequest(...))        # None: the call is not recorded

All hooks of HTTP clients call `begin`, and it never raises.
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
from vestige.wire.header_redaction import find_header, header_secrets
from vestige.wire.http_exchange import Exchange, fault
from vestige.wire.outgoing_request import OutgoingRequest, SpanContext
from vestige.wire.retry_attempts import Attempts

if TYPE_CHECKING:
    from vestige.wire.replaying.response_player import Answer, Player

player: Player | None = None
"""Answers requests instead of the network, in a child process of `vestige replay`."""

_attempts = Attempts()

_OFF: ContextVar[bool] = ContextVar("vestige_wire_off", default=False)

_SHAPES = (b'"messages"', b'"contents"', b'"input"', b'"inputs"')
"""A body without any of these members is not a model request and need not be parsed."""


@contextmanager
def unrecorded() -> Iterator[None]:
    """Do not record calls made inside: they are Vestige's own."""
    token = _OFF.set(True)
    try:
        yield
    finally:
        _OFF.reset(token)


def begin(request: OutgoingRequest, within: SpanContext | None = None) -> Exchange | None:
    """Start recording a call. None: the call is not recorded.

    `within`: the parent of the call, instead of the ambient span.
    """
    policy = capture.active()
    if policy is None or _OFF.get():
        return None
    emitter: Emitter | None = None
    try:
        endpoint = find_recorded_endpoint(policy, request)
        if endpoint is None:
            return None
        # It may open the run of a request.
        span_context = within or find_span_context(policy)
        if span_context is None:
            return None
        emitter = span_context.emitter
        for secret in header_secrets(request.headers, request.url):
            emitter.register_secret(secret)
        if player is not None and request.body is not None:
            _decide(player, request, emitter)
        return Exchange(span_context, request, endpoint, _attempts, warm=capture.WARM.get())
    except Exception as error:  # noqa: BLE001  # the call itself must not fail
        if emitter is not None:
            fault(emitter, error)
        return None


def _decide(player: Player, request: OutgoingRequest, emitter: Emitter) -> None:
    """Find the recorded answer of a request, or let a fork change and send it."""
    coding = find_header(request.headers, "content-encoding") or ""
    if is_coded(coding) and not request.plain:
        return  # `play` answers it, once it is decoded.
    try:
        request.answer = player.answer(request, emitter.redact, can_send=True)
    except Exception as error:  # noqa: BLE001  # The request must not reach the network.
        request.answer = player.fail(error)
    request.is_sent = request.answer is None


def play(exchange: Exchange) -> Answer | None:
    """Return the recorded answer in a replay. None: not in a replay, or a fork sends it."""
    request = exchange.request
    if player is None or request.is_sent or request.answer is not None:
        return request.answer
    return player.answer(request, exchange.context.emitter.redact)


def find_span_context(policy: Policy) -> SpanContext | None:
    """Return the ambient span, or else the process. None: recording is off or not sampled."""
    parent = context.current()
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


def find_recorded_endpoint(policy: Policy, request: OutgoingRequest) -> Endpoint | None:
    """Return the endpoint to record the request as. None: it is not recorded."""
    if not policy.allows(request.host, request.path):
        return None
    endpoint = find_endpoint(request.method, request.host, request.path)
    if endpoint is None and _is_request(request):
        endpoint = find_endpoint(request.method, request.host, request.path, is_request=True)
        endpoint = endpoint or Endpoint(provider_of(request.host) or "", "model")
    if endpoint is not None and endpoint.is_model_call:
        return endpoint
    return (endpoint or Endpoint(provider_of(request.host) or "", OTHER)) if policy.http else None


def _is_request(request: OutgoingRequest) -> bool:
    """Return whether the body has the shape of a model request."""
    body = request.body
    if not body or len(body) > TEXT_MAX:
        return False
    coding = find_header(request.headers, "content-encoding") or ""
    if is_coded(coding):
        plain = decode(body, coding, TEXT_MAX)
        body = bytes(plain.data) if plain is not None else body
    if not any(shape in body for shape in _SHAPES):
        return False
    return parse_request(body) is not None
