"""Send requests to a chat API: bounded in time and size, with retries.

    client = ChatClient(endpoint, timeout_s=120)
    data = client.send(body)         # ModelError: no usable answer

Standard library only. Redirects are not followed: they would send the key and the run to another
server. Certificates are verified. Proxies of the environment are used, but not for this machine.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from vestige._runtime import clock
from vestige.errors import ModelError
from vestige.explain.model_endpoint import KEY_VARIABLE, Endpoint
from vestige.limits import EXPLAIN_REPLY_MAX, EXPLAIN_RETRY_MAX_S, EXPLAIN_TRIES
from vestige.query import formatting
from vestige.record.redaction.output_redaction import redact_text

BUSY: Final = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
"""Statuses after which a request is sent again: it was not answered, and is not charged."""

_CHUNK: Final = 65_536
_ANTHROPIC_VERSION: Final = "2023-06-01"


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **options: Any) -> None:
        return None  # urllib then raises HTTPError with the status


class ReplyLostError(ModelError):
    """A request was sent, and its answer did not arrive. It may be charged."""


class ChatClient:
    """Requests to one model."""

    def __init__(
        self,
        endpoint: Endpoint,
        timeout_s: float,
        *,
        sleep: Callable[[float], None] = clock.sleep,
        monotonic: Callable[[], float] = clock.monotonic,
    ) -> None:
        self.endpoint = endpoint
        self._timeout_s = timeout_s
        self._sleep, self._monotonic = sleep, monotonic
        handlers = [ProxyHandler({})] if endpoint.is_loopback else []
        self._opener = build_opener(_NoRedirects, *handlers)

    def send(self, body: bytes) -> dict[str, Any]:
        """Send one request, again if the provider is busy. Return the JSON object."""
        for attempt in range(1, EXPLAIN_TRIES + 1):
            try:
                return _parse_object(self._exchange(body))
            except HTTPError as error:
                with error:
                    problem = self._describe(error)
                    pause = _parse_pause(error.headers)
                if error.code not in BUSY:
                    raise ModelError(problem, status=error.code) from None
                if attempt == EXPLAIN_TRIES:
                    problem += f" It was tried {EXPLAIN_TRIES} times."
                    raise ModelError(problem, status=error.code) from None
            except URLError as error:
                if isinstance(error.reason, TimeoutError):
                    raise self._timed_out() from None
                if attempt == EXPLAIN_TRIES:
                    problem = f"{self.endpoint.host}: not reachable ({error.reason})."
                    raise ModelError(problem) from None
                pause = None
            except TimeoutError:
                raise self._timed_out() from None
            except (OSError, http.client.HTTPException) as error:
                problem = f"the connection broke ({type(error).__name__})"
                raise ReplyLostError(f"{self.endpoint.host}: {problem}.") from None
            self._sleep(min(2.0 ** (attempt - 1) if pause is None else pause, EXPLAIN_RETRY_MAX_S))
        raise AssertionError("unreachable")

    def _exchange(self, body: bytes) -> bytes:
        deadline = self._monotonic() + self._timeout_s
        request = Request(self.endpoint.url, body, self._headers(), method="POST")
        with self._opener.open(request, timeout=self._timeout_s) as response:
            found = bytearray()
            # A server that sends a byte now and then never reaches the timeout of the socket.
            while chunk := response.read1(_CHUNK):
                found += chunk
                if len(found) > EXPLAIN_REPLY_MAX:
                    problem = f"the answer has over {EXPLAIN_REPLY_MAX} bytes"
                    raise ReplyLostError(f"{self.endpoint.host}: {problem}.")
                if self._monotonic() > deadline:
                    raise TimeoutError
            return bytes(found)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.endpoint.api == "anthropic":
            headers["anthropic-version"] = _ANTHROPIC_VERSION
        if self.endpoint.key is None:
            return headers
        if self.endpoint.api == "anthropic":
            return {**headers, "x-api-key": self.endpoint.key}
        return {**headers, "Authorization": f"Bearer {self.endpoint.key}"}

    def _timed_out(self) -> ReplyLostError:
        seconds = formatting.seconds(self._timeout_s)
        return ReplyLostError(
            f"{self.endpoint.host}: no complete answer within {seconds} s. Use --timeout."
        )

    def _describe(self, error: HTTPError) -> str:
        host, status = self.endpoint.host, error.code
        try:
            text = _error_message(error.read(_CHUNK))
        except (OSError, http.client.HTTPException):
            text = ""
        reason = f" ({formatting.single_line(redact_text(text), 300)})" if text else ""
        advice = ""
        if status in (401, 403):
            advice = f" Check the API key ({KEY_VARIABLE})."
        elif status == 404:
            advice = f" Check the address and the name {self.endpoint.model!r}."
        elif 300 <= status < 400:
            advice = " Redirects are not followed: use the final address."
        return f"{host}: answered with status {status}{reason}.{advice}"


def _error_message(body: bytes) -> str:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    error = data.get("error", data) if isinstance(data, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else ""


def _parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object; empty if the answer is not one."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _parse_pause(headers: Any) -> float | None:
    """Return the seconds that the provider asks to wait."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers.get(name))) * unit
        except (TypeError, ValueError):
            continue  # missing, or a date
    return None
