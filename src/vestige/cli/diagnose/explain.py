"""`vestige explain`: why a run failed, by the checks and, if named, a model."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from vestige.cli.options import DURATION, Examples, Home
from vestige.cli.print_answer import answer_options, open_debugger, print_answer
from vestige.errors import UsageError, VestigeError
from vestige.limits import (
    EXPLAIN_COST_USD,
    EXPLAIN_TIMEOUT_S,
    EXPLAIN_TOKENS,
    EXPLAIN_TOKENS_MIN,
)

if TYPE_CHECKING:
    from vestige.explain.model_endpoint import Endpoint
    from vestige.explain.readable_runs import Scope
    from vestige.explain.report import ExplainAnswer
    from vestige.explain.spending import Spending
    from vestige.query.debugger import Debugger

AUTHOR = "vestige explain"


@click.command(
    "explain",
    cls=Examples,
    examples="""
  vestige explain r7                                   the findings of the checks, as a report
  vestige explain r7 --model openai/gpt-5-mini         also let a model find and prove the cause
  vestige explain r7 --model anthropic/claude-sonnet-4-5 --max-cost 0.10
  vestige explain r7 --model http://127.0.0.1:11434/v1/qwen3      a model on this machine
  vestige explain r7 --model https://llm.example/v1/name --api anthropic
""",
    exits="0 explained, 1 the model failed or proved nothing, 2 usage or run not found,"
    " 3 store unreadable",
)
@click.argument("run", required=False)
@click.option("--model", metavar="URL/NAME", help="openai/NAME, anthropic/NAME or URL/NAME.")
@click.option(
    "--api",
    type=click.Choice(["openai", "anthropic"]),
    help="API of the model (default: by its address).",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(EXPLAIN_TOKENS_MIN, 1_000_000),
    default=EXPLAIN_TOKENS,
    show_default=True,
    metavar="N",
    help="Tokens of all requests and answers.",
)
@click.option(
    "--max-cost",
    type=click.FloatRange(0, min_open=True),
    metavar="USD",
    help=f"Highest cost (default: {EXPLAIN_COST_USD:g} if the price is known).",
)
@click.option(
    "--timeout",
    type=DURATION,
    default=EXPLAIN_TIMEOUT_S,
    show_default="2m",
    metavar="TIME",
    help="Longest time for one answer of the model.",
)
@click.option("--no-note", is_flag=True, help="Do not store the report as a note.")
@click.option("--plain-http", is_flag=True, help="Allow http:// to another machine.")
@answer_options
def explain(
    run: str | None,
    model: str | None,
    api: str | None,
    max_tokens: int,
    max_cost: float | None,
    timeout: float,
    no_note: bool,
    plain_http: bool,
    home: Home,
    as_json: bool,
    budget: int | None,
) -> None:
    """Explain why a run failed.

    Without --model, the report has the findings of the checks and their causal chain; nothing is
    sent. With --model, the findings and the parts of the run that the model asks for are sent to
    it, redacted. It can only read this run. Every claim in the report cites a span and quotes text
    that occurs in it; other claims are rejected.

    The API key is $OPENAI_API_KEY or $ANTHROPIC_API_KEY, for these providers only, or
    $VESTIGE_MODEL_KEY. The report is stored as a note of the run.
    """
    from vestige.explain.model_endpoint import parse_endpoint
    from vestige.explain.readable_runs import Scope
    from vestige.explain.report import build_report
    from vestige.transfer import is_source

    endpoint = None
    if model is not None:
        endpoint = parse_endpoint(
            model,
            api,  # type: ignore[arg-type]  # checked by click
            plain_http=plain_http,
            environ=os.environ,
        )
    with open_debugger(home, run) as (debugger, id_to_query):
        # The model and the note get commands without the path of the data directory.
        at, debugger.at = debugger.at, ""
        scope = Scope(debugger, debugger.resolve(id_to_query, "run").run.id)
        answer = build_report(debugger, scope)
        if endpoint is not None:
            spending = _make_spending(debugger, endpoint, max_tokens, max_cost)
            _investigate(answer, scope, endpoint, spending, timeout)
        if not no_note and (run is None or not is_source(run)):
            _store_note(home, debugger, answer)
        answer.at = at
        print_answer(answer, as_json, budget)


def _make_spending(
    debugger: Debugger, endpoint: Endpoint, max_tokens: int, max_cost: float | None
) -> Spending:
    from vestige.explain.spending import Spending
    from vestige.providers.prices import price
    from vestige.query.stats.user_prices import load_user_prices

    prices = load_user_prices(debugger.store)
    spending = Spending(
        max_tokens,
        EXPLAIN_COST_USD if max_cost is None else max_cost,
        lambda usage: price(endpoint.model, endpoint.api, usage, own=prices),
    )
    if spending.cost_usd is None:
        if max_cost is not None:
            raise UsageError(
                f"--max-cost: the price of {endpoint.model} is unknown, so its cost cannot be"
                " limited. Add it to [prices] in config.toml, or use --max-tokens."
            )
        spending.cost_max = None
    return spending


def _investigate(
    answer: ExplainAnswer, scope: Scope, endpoint: Endpoint, spending: Spending, timeout: float
) -> None:
    from vestige.explain.chat_client import ChatClient
    from vestige.explain.investigation import investigate

    is_terminal = sys.stderr.isatty()

    def observe(query: str) -> None:
        if is_terminal:
            click.echo(f"{endpoint.model}: {query}", err=True)

    client = ChatClient(endpoint, timeout)
    answer.investigation = investigate(scope, answer.findings_text(), client, spending, observe)
    answer.exit_code = 0 if answer.investigation.claims else 1


def _store_note(home: Home, debugger: Debugger, answer: ExplainAnswer) -> None:
    """Store the report, unless the run has an equal one."""
    from vestige.transfer import add_note

    run_id, text = answer.run.info.id, answer.note_text()
    for note in debugger.store.notes(run_id):
        if note.author == AUTHOR and note.text == text:
            answer.note_id = note.id
            return
    try:
        answer.note_id = add_note(home, debugger, run_id, text, author=AUTHOR).id
    except VestigeError as error:
        click.echo(f"vestige: the report was not stored ({error})", err=True)
