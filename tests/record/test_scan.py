"""The scanner: quick, and never wrong when it says no."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

import pytest
from test_patterns import PEM, SHAPES

from vestige.errors import UsageError
from vestige.record.codec import encode
from vestige.record.redaction import scan_engines
from vestige.record.redaction.prefilter_markers import all_markers, literals
from vestige.record.redaction.scan_engines import ENGINES
from vestige.record.redaction.secret_scanner import SEPARATE_MAX, Scanner
from vestige.record.types import BodyInfo, Log


def line_of(message: str, **attributes: str | int) -> bytes:
    return encode((Log(1, "w", 1, 1, "r", "c", "info", message, attributes=dict(attributes)),))


@pytest.fixture(scope="module", params=ENGINES)
def scanner(request: pytest.FixtureRequest) -> Scanner:
    return Scanner(request.param)


@pytest.mark.parametrize(
    "text",
    [
        '"prompt_tokens":12,"max_tokens":100,"input_tokens":5,"tokens":1,"maxTokens":3',
        "the tokenizer made 5 tokens; MAX_TOKENS=5 TOKENS",
        "task-management risk-averse https://example.com/a?b=c mail me@example.com",
        "a monkey on the keyboard; a basic idea; the first key of keys",
    ],
)
def test_lines_with_counters_and_ordinary_words_pass(scanner: Scanner, text: str) -> None:
    """Every line about a model has usage counters: they must stay on the quick path."""
    assert not scanner.suspicious(line_of(text, prompt_tokens=12, max_tokens=100))


@pytest.mark.parametrize("secret", [*SHAPES.values(), PEM])
def test_every_known_shape_is_suspicious(scanner: Scanner, secret: str) -> None:
    assert scanner.suspicious(line_of(f"see\n{secret}\nthere"))


@pytest.mark.parametrize("secret", [*SHAPES.values(), PEM])
def test_every_known_shape_has_one_of_the_literals_that_are_looked_for_first(secret: str) -> None:
    """Until a line has one, nothing else is asked: also what case they are spelled in."""
    line = line_of(f"see\n{secret}\nthere")

    assert any(
        literal in (line.lower() if ignores_case else line)
        for literal, ignores_case in literals(marker for marker in all_markers())
    ) or any(re.search(marker.expression, line) for marker in all_markers() if not marker.literal)


@pytest.mark.slow
@pytest.mark.parametrize("is_complete", [False, True])
def test_both_stages_give_the_same_answers(is_complete: bool) -> None:
    """Until the expressions are compiled, literals are confirmed one by one."""
    lines = [
        (line_of("an id: acca26e005e70772"), False),
        (line_of("m", prompt_tokens=12), False),
        (line_of("m", token="v"), True),
        (line_of("AKIAIOSFODNN7EXAMPLE"), True),
        (line_of("an id: acca26e005e70772"), False),
        *((line_of(f"see\n{secret}\nthere"), True) for secret in SHAPES.values()),
    ]
    scanner = Scanner()
    if is_complete:
        scanner.complete(scanner.compile())

    assert [scanner.suspicious(line) for line, _ in lines] == [expected for _, expected in lines]


@pytest.mark.parametrize("key", ["token", "Token", "accessToken", "TOKEN", "api key", "x-Api-Key"])
def test_a_secrets_key_is_suspicious(scanner: Scanner, key: str) -> None:
    assert scanner.suspicious(line_of("m", **{key: "v"}))


def test_a_body_in_base64_is_always_looked_at(scanner: Scanner) -> None:
    """What it holds cannot be seen in the line."""
    record = Log(1, "w", 1, 1, "r", "c", "info", "m", body="AAAA", body_info=BodyInfo("base64"))

    assert scanner.suspicious(encode((record,)))


def test_a_learned_value_is_suspicious_from_then_on(scanner: Scanner) -> None:
    before = scanner.suspicious(line_of("the walrus"))

    scanner.learn([b"walrus"])

    assert (before, scanner.suspicious(line_of("the walrus"))) == (False, True)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_everything_learned_stays_known_however_much_it_is(engine: str) -> None:
    """Beyond a number the learned ones move into the engine of all traces."""
    scanner = Scanner(engine)
    names = [b"walrus-%03d" % number for number in range(SEPARATE_MAX + 3)]
    scanner.learn(names[:2])
    scanner.learn([])
    scanner.learn(names[:-2])
    scanner.learn(names[-2:])

    assert all(scanner.suspicious(line_of(name.decode())) for name in names)
    assert not scanner.suspicious(line_of("walrus-9"))


@pytest.mark.slow
def test_many_threads_scan_at_once_while_another_teaches(scanner: Scanner) -> None:
    """An engine's working memory serves one scan at a time; each scan must have its own."""
    wrong: list[bool] = []
    quiet, loud = line_of("x" * 2000), line_of("x" * 2000 + " password")

    def scan() -> None:
        answers = {(scanner.suspicious(quiet), scanner.suspicious(loud)) for _ in range(300)}
        wrong.append(answers != {(False, True)})

    threads = [threading.Thread(target=scan) for _ in range(6)]
    for thread in threads:
        thread.start()
    for number in range(3):
        scanner.learn([b"learned-%d" % number])
    for thread in threads:
        thread.join()

    assert wrong == [False] * 6


def test_an_unknown_engine_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no engine 'grep'"):
        Scanner("grep")


def test_no_engine_is_imported_before_a_scanner_is_made() -> None:
    code = (
        "import sys, vestige.record.redaction.redactor;"
        "engines = 'hyperscan', 'ahocorasick_rs', 'vestige.record.redaction.secret_patterns'; "
        "print([m for m in engines if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_a_search_that_interrupts_the_build_of_a_literal_search_does_not_build_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A signal handler that logs searches in the middle of the build, as the next one does."""
    search = scan_engines.LiteralSearch(["sk-ant-", "ghp_"], long_text=10)
    build, builds, interrupted = scan_engines._build_literal_search, 0, []

    def build_interrupted(literals: Sequence[str]) -> Callable[[str], list[int]] | None:
        nonlocal builds
        builds += 1
        if builds <= 2:
            interrupted.append(search.find("a long text with ghp_"))
        return build(literals)

    monkeypatch.setattr(scan_engines, "_build_literal_search", build_interrupted)

    assert search.find("a long text with sk-ant-") == [0]
    assert (builds, interrupted) == (1, [[1]])
    assert search.find("both: sk-ant- and ghp_") == [0, 1]
