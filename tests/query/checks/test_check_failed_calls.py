"""Model calls that failed for good: planted, and the same without the fault."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.planted_bugs import all_findings, findings, recording, span_named
from vestige.emit.span import Span
from vestige.home import Home
from vestige.query.checks.model import failed_calls
from vestige.query.failures.check import find_chains
from vestige.record.run import Run
from vestige.store.protocol import RunFilter
from vestige.store.sqlite.sqlite_store import SqliteStore

KEY = "Incorrect API key provided: sk-proj-abcd1234567890abcdef1234567890abcdef"


def ask(run: Span, text: str, status: str = "ok", **attributes: Any) -> None:
    """One call, as the wire records it; its name is its text, so that it is found."""
    body = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": text}]})
    with run.span(text, type="llm", body=body) as span:
        fields = {name.replace("__", "."): value for name, value in attributes.items()}
        span.end(status=status, attributes=fields)  # type: ignore[arg-type]  # as the wire gives it


def refused(run: Span, text: str, code: int, message: str) -> None:
    ask(run, text, "error", status_code=code, error__type=f"HTTP {code}", error__message=message)


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ({"status_code": 401, "error__type": "HTTP 401"}, "call/not-allowed"),
        ({"status_code": 429, "error__type": "HTTP 429"}, "call/rate-limited"),
        ({"status_code": 404, "error__type": "HTTP 404"}, "call/refused"),
        ({"status_code": 503, "error__type": "HTTP 503"}, "call/server-error"),
        ({"status_code": 200, "response__partial": True}, "call/broken-stream"),
        ({"error__type": "httpx.ConnectError"}, "call/not-reached"),
    ],
)
def test_a_call_that_failed_for_good_is_named_in_a_run_that_failed(
    home: Home, how: dict[str, Any], kind: str
) -> None:
    """The program caught the exception and left by an exit code: no other check speaks of it."""
    with recording(home) as run:
        ask(run, "plan")
        ask(run, "answer", "error", error__message="no such luck", **how)
        run.end(status="error")

    (found,) = findings(home, failed_calls.failed_call)

    assert (found.kind, found.severity) == (kind, "error")
    assert found.cause == span_named(home, "answer").id
    assert "no such luck" in found.message


def test_the_providers_message_comes_before_the_classes_of_the_client(home: Home) -> None:
    body = '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    with recording(home) as run:
        message = f"litellm.InternalServerError: AnthropicError - {body}"
        ask(run, "plan", "error", error__type="InternalServerError", error__message=message)
        run.end(status="error")

    (found,) = findings(home, failed_calls.failed_call)

    assert found.kind == "call/overloaded"
    assert found.message == "The provider was overloaded: Overloaded (InternalServerError)"


@pytest.mark.parametrize(
    ("again", "found"), [("answer", []), ("other", ["hint"]), (None, ["warning"])]
)
def test_a_failed_call_is_made_good_by_the_same_request(
    home: Home, again: str | None, found: list[str]
) -> None:
    """A retry that is answered is nothing to tell; an agent that goes on otherwise is a hint."""
    with recording(home) as run:
        refused(run, "answer", 500, "try later")
        if again:
            ask(run, again)

    assert [each.severity for each in findings(home, failed_calls.failed_call)] == found


@pytest.mark.parametrize(("code", "kinds"), [(None, ["call/given-up"]), (200, [])])
def test_a_call_that_was_given_up_without_an_answer_is_a_hint(
    home: Home, code: int | None, kinds: list[str]
) -> None:
    """As by `asyncio.wait_for`. Who closes a stream early has had his answer."""
    fields = {"status_code": code} if code else {"error__type": "asyncio.exceptions.CancelledError"}
    with recording(home) as run:
        ask(run, "answer", "cancelled", **fields)

    found = findings(home, failed_calls.failed_call)

    assert [each.kind for each in found] == kinds
    assert {each.severity for each in found} <= {"hint"}


def test_what_other_checks_explain_is_not_told_twice(home: Home) -> None:
    """A request sent again and again, and one that is too long."""
    with recording(home) as run:
        for _ in range(3):
            refused(run, "storm", 500, "try later")
        refused(run, "long", 400, "This model's maximum context length is 8192 tokens.")
        run.end(status="error")

    kinds = {finding.kind for finding in all_findings(home)}

    assert kinds == {"retry-storm/same-request", "context/exceeded"}


def test_what_is_said_about_the_record_leads_no_chain(home: Home) -> None:
    """A key in an error's text is masked, and that is reported; why the run failed comes first."""
    with recording(home) as run:
        with run.span("look around") as span:
            span.set_attributes(note=KEY)
        refused(run, "answer", 401, KEY)
        run.end(status="error")
    found = all_findings(home)
    with SqliteStore.open(home.store, readonly=True) as store:
        loaded: Run = store.load_run(store.list_runs(RunFilter())[0].id)

    leads = [chain[0].kind for chain in find_chains(loaded, found)]

    assert leads == ["call/not-allowed", "health/secret"]


def test_a_fallback_that_stays_is_named(home: Home) -> None:
    with recording(home) as run:
        ask(run, "a", "error", status_code=529, error__type="HTTP 529", model="large")
        ask(run, "b", model="small")
        ask(run, "c", model="small")

    (found,) = findings(home, failed_calls.failed_call)

    assert "all 2 later calls used small instead of large" in found.message


@pytest.mark.parametrize("models", [("small", "large"), ("large", "large"), ("small",)])
def test_a_model_that_is_used_again_is_not_named(home: Home, models: tuple[str, ...]) -> None:
    with recording(home) as run:
        ask(run, "a", "error", status_code=529, error__type="HTTP 529", model="large")
        for index, model in enumerate(models):
            ask(run, f"later {index}", model=model)

    (found,) = findings(home, failed_calls.failed_call)

    assert "instead of" not in found.message


def retry(home: Home, code: int, first: dict[str, Any], second: dict[str, Any]) -> None:
    messages = [{"role": "user", "content": "Is it spam?"}]
    with recording(home) as run:
        for fields, status, status_code in ((first, "error", code), (second, "ok", 200)):
            body = json.dumps({"model": "gpt-4o", "messages": messages, **fields})
            with run.span(f"call {status_code}", type="llm", body=body) as span:
                span.end(status=status, attributes={"status_code": status_code})


def test_a_retry_with_other_settings_is_a_warning(home: Home) -> None:
    retry(home, 500, {"temperature": 0, "seed": 7}, {"temperature": 1.0})

    (found,) = findings(home, failed_calls.changed_retry)

    assert (found.kind, found.severity) == ("call/changed-retry", "warning")
    assert found.cause == span_named(home, "call 200").id
    assert "temperature 0 → 1.0, seed 7 → not set" in found.message


@pytest.mark.parametrize(
    ("code", "second"),
    [
        (500, {"temperature": 0}),
        (400, {}),
        (500, {"model": "gpt-4o-mini"}),
        (500, {"messages": [{"role": "user", "content": "Is it ham?"}]}),
        (429, {"temperature": 0, "user": "a"}),
    ],
    ids=["the same", "a refused request", "another model", "another request", "another field"],
)
def test_a_retry_that_may_differ_is_silent(home: Home, code: int, second: dict[str, Any]) -> None:
    retry(home, code, {"temperature": 0}, second)

    assert findings(home, failed_calls.changed_retry) == []
