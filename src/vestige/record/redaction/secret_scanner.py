"""The hot path's question: might this encoded journal line hold a secret?

    scanner = Scanner()
    scanner.suspicious(line)            # True: look closely (record/redaction/redactor.py)

A yes may be wrong and costs a slow look; a no must never be wrong. The scanner
knows literals ("traces") without which no rule can match, with a stricter
expression where the literal alone would meet ordinary words: usage counters such
as `prompt_tokens` stand in every line about a model, and must not make it slow.

Three engines give the same answers: hyperscan (compiled expressions, by far the
quickest), ahocorasick (literals, each hit confirmed by its expression), and the
standard library (the same, literal by literal). None is imported before a
Scanner is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from vestige.errors import UsageError
from vestige.record.redaction.masking import KEY_OWNERS, PAIR_GAPS, TOKEN_OWNERS, WORDS, words_of

if TYPE_CHECKING:
    from pathlib import Path

Suspicious = Callable[[bytes], bool]

ENGINES = ("hyperscan", "ahocorasick", "re")

APART_MAX = 128
"""Learned needles in an engine of their own: the forms of some thirty secrets, learned in 5 ms or less."""

NEEDLE_MAX = 64
"""Bytes of a needle that are looked for: its beginning is trace enough, and engines refuse a long one."""


class Trace(msgspec.Struct, frozen=True, gc=False):
    """What a secret leaves in an encoded line."""

    literal: bytes
    """Lower case. Without it the expression cannot match. Empty: it is searched for by itself."""
    expression: bytes
    spelled: bytes = b""
    """The literal as it must be spelled, where case matters: random ids are full of `acca`."""
    plain: bool = False
    """The expression is the literal, and no more."""


def make_scanner(prefer: str | None = None) -> Suspicious:
    """A function that says whether an encoded line might hold a secret."""
    return Scanner(prefer).suspicious


class Scanner:
    """Finds traces of secrets in encoded lines, and learns new ones while it is in use.

    `suspicious` is a plain function, the same one for the scanner's whole life: whoever
    keeps it sees what is learned later. Any thread may call it, at any time.
    """

    suspicious: Suspicious

    def __init__(
        self,
        prefer: str | None = None,
        extra_keys: Iterable[str] = (),
        whole: bool = False,
        kept_in: Path | None = None,
    ) -> None:
        """`whole`: build now what can be built when a line first asks for it. `kept_in`: where what was
        built is kept for the next process, as long as no secret was learned."""
        self._traces = (*all_traces(), *map(_trace_of_key, filter(words_of, extra_keys)))
        self._needles: tuple[bytes, ...] = ()
        self._kept_in = kept_in
        self.engine, self._load = _engine(prefer)
        self._whole = whole
        scan: Suspicious
        learned: Suspicious | None = None

        def suspicious(line: bytes) -> bool:
            second = learned  # before the first is asked: what leaves it is in the first by then
            return scan(line) or (second is not None and second(line))

        def use(first: Suspicious, instead_of: Suspicious | None = None) -> None:
            nonlocal scan
            if instead_of is None or scan is instead_of:
                scan = first

        def use_too(second: Suspicious | None, instead_of: Suspicious | None = None) -> None:
            nonlocal learned
            learned = second

        self.suspicious, self._use, self._use_too = suspicious, use, use_too
        self._load(self._traces, use, whole, kept_in)

    def learn(self, needles: Iterable[bytes]) -> None:
        """From now on, lines with these bytes are suspicious. Returns when that is so.

        They have an engine of their own until they are many: building the one of all traces takes
        a tenth of a second, and it is the program's thread that waits."""
        self._needles = tuple(dict.fromkeys((*self._needles, *_shortest(needles))))
        if not self._needles:
            return
        # Any case is good enough here: a yes only asks for a closer look.
        traces = tuple(map(_literal, self._needles))
        if len(traces) <= APART_MAX:
            self._load(traces, self._use_too, True, None)
        else:
            self._needles, self._traces = (), self._traces + traces
            self._kept_in = None  # what is built from here on holds secrets
            self._load(self._traces, self._use, self._whole, None)
            self._use_too(None)  # only now: a scan in another thread must not miss them

    def learn_keys(self, keys: Iterable[str]) -> None:
        """The same for lines in which one of these keys may stand."""
        new = tuple(map(_trace_of_key, filter(words_of, keys)))
        self._traces += tuple(trace for trace in new if trace not in self._traces)
        self._load(self._traces, self._use, self._whole, self._kept_in)


# --- the traces ---------------------------------------------------------------------------

# Plain literals are what all engines are quickest at, so nearly everything is one.
_WORDS = (
    *("passw", "passphrase", "passcode", "secret", "credential", "authorization", "cookie"),
    *("bearer", "connstr"),
    *sorted(word for word in WORDS if word.endswith("token") and word != "token"),
    "passwort",
)

# Where a whole word may end, in the spellings that record/redaction/masking.py splits. `tokens` goes on, and is counted.
# What may stand before a word, or before a whole stretch of letters and digits: none of these,
# unless it ends an escape (\\n, \\u001b).
_ESCAPE = rb"\\[bfnrt]|\\u[0-9A-Fa-f]{4}"
_WORD = rb"(?:^|[^A-Za-z]|" + _ESCAPE + rb")"
_STRETCH = rb"(?:^|[^A-Za-z0-9]|" + _ESCAPE + rb")"

_JWT = (
    _WORD + rb"jwt[^a-z]",
    rb"Jwt[^a-z]",
    rb"(?:^|[^A-Z])JWT[^A-Za-z]",
    rb"JWT[A-Z][a-z]",
    _STRETCH + rb"[Jj][Ww][Tt][0-9]*[^A-Za-z0-9]",
)
_PWD = (
    # The last word of its key, or all of a stretch: only then it holds a password.
    rb"(?:" + _WORD + rb"pwd|(?:^|[^A-Z])PWD|Pwd)[^A-Za-z]*(?:[\"'\\:=\s]|$)",
    _STRETCH + rb"[Pp][Ww][Dd][0-9]*[^A-Za-z0-9]",
    # The end of a word that is several: dbpwd.
    rb"(?i)[a-z]pwd[0-9]*[\"'\\:=\s]",
)
_PSK = (rb"(?i)psk[\"'\\\s]{0,8}[:=]",)
# Keys that hold a secret only if their value looks like one (mask.doubtful_word).
_DOUBTFUL = (
    rb"(?i)(?:pass|[_.-]pw|[_.-]pat|[_.-]key)(?:[_.-]data)?[0-9]{0,4}[\\\"']{0,8}[ \t]{0,8}[:=][ \t]{0,8}[\\\"']{0,8}"
    rb"[^\s\"'\\,;&<>(){}]{4}"
)
_DOUBTFUL_LITERALS = ("pass", "_pw", "-pw", ".pw", "_pat", "-pat", ".pat", "_key", "-key", ".key")
_TOKEN = (rb"token[^a-z]", rb"Token[^a-z]", rb"TOKEN[^A-Za-z]", rb"TOKEN[A-Z][a-z]")


def all_traces() -> Iterable[Trace]:
    # Not at import: the table is only needed once a scanner is.
    from vestige.record.redaction.secret_patterns import RULES, base64_fragments

    for word in _WORDS:
        yield _literal(word)
    for gap in PAIR_GAPS:
        for owner in sorted(KEY_OWNERS):
            yield _literal(f"{owner}{gap}key")
        for owner in sorted(TOKEN_OWNERS):
            yield _literal(f"{owner}{gap}tokens")
        yield _literal(f"connection{gap}string")
    for expression in _TOKEN:
        yield Trace(b"token", expression)
    # Three letters stand in every image in base64: these say where whole words of a key may be.
    for expression in _JWT:
        yield Trace(b"jwt", expression)
    for expression in _PSK:
        yield Trace(b"psk", expression)
    for expression in _PWD:
        yield Trace(b"pwd", expression)
    # A body in base64 hides what it holds: always look.
    yield _literal('"encoding":"base64"')
    yield _literal('"base64:')
    for literal in _DOUBTFUL_LITERALS:
        yield Trace(literal.encode(), _DOUBTFUL)
    for fragment in base64_fragments():
        yield Trace(fragment.lower().encode(), re.escape(fragment.encode()), fragment.encode())
    for rule in RULES:
        if not rule.hints:
            yield Trace(b"", (rule.trace or rule.expression).encode())
        for hint in rule.hints:
            if rule.trace:
                spelled = "" if rule.trace.startswith("(?i)") else hint
                yield Trace(hint.lower().encode(), rule.trace.encode(), spelled.encode())
            else:
                yield _literal(hint)


def _literal(text: str | bytes) -> Trace:
    literal = (text.encode() if isinstance(text, str) else text).lower()
    return Trace(literal, _any_case(literal), plain=True)


def _any_case(literal: bytes) -> bytes:
    # Most are one word, and `escape` takes as long as all else together.
    return b"(?i)" + (literal if literal.isalnum() else re.escape(literal))


def _shortest(needles: Iterable[bytes]) -> tuple[bytes, ...]:
    """Without those that contain another one: where they stand, that one does."""
    kept: list[bytes] = []
    beginnings = {needle[:NEEDLE_MAX] for needle in needles}
    for needle in sorted(beginnings, key=lambda each: (len(each), each)):
        if not any(shorter in needle for shorter in kept):
            kept.append(needle)
    return tuple(kept)


def _trace_of_key(key: str) -> Trace:
    words = [re.escape(word.encode()) for word in words_of(key)]
    # Any distance: the words of an added key may be split by anything, and it is rare.
    return Trace(words_of(key)[0].encode(), b"(?i)" + b".*?".join(words))


# --- the engines --------------------------------------------------------------------------


class Use(Protocol):
    """From now on, ask this one; if given, only where that one is still asked."""

    def __call__(self, scan: Suspicious, instead_of: Suspicious | None = None, /) -> None: ...


Load = Callable[[tuple[Trace, ...], Use, bool, "Path | None"], None]
"""Look for these traces from now on, with what `Use` gets; the whole at once; kept there."""


def _engine(prefer: str | None) -> tuple[str, Load]:
    loaders = {"hyperscan": _hyperscan, "ahocorasick": _ahocorasick, "re": _standard}
    if prefer is not None and prefer not in loaders:
        raise UsageError(f"scanner: no engine {prefer!r} (one of {', '.join(ENGINES)}).")
    for name in (prefer,) if prefer else ENGINES:
        try:
            if name == "hyperscan":
                import hyperscan  # noqa: F401
            elif name == "ahocorasick":
                import ahocorasick_rs  # noqa: F401
        except ImportError:
            if prefer:
                raise
            continue
        return name, loaders[name]
    raise AssertionError("the standard library is always there")


def _hyperscan(traces: tuple[Trace, ...], use: Use, whole: bool, kept_in: Path | None) -> None:
    """Literals first: they compile ten times quicker than expressions, and most lines have none.
    The first line that only an expression can judge has them compiled; from then on they are asked alone."""
    expressions = list(dict.fromkeys(trace.expression for trace in traces))
    literals = hints(traces)
    if whole or expressions == literals:
        use(_compiled(expressions, kept_in))
        return
    has_literal = _compiled(literals, kept_in)
    loose = _loose(traces)

    def first(line: bytes) -> bool:
        if not has_literal(line) and not any(search(line) for search in loose):
            return False
        exact = _compiled(expressions, kept_in)
        use(exact, first)  # unless more was learned meanwhile, in another thread
        return exact(line)

    use(first)


def hints(traces: Iterable[Trace]) -> list[bytes]:
    """Plain literals, as expressions: a line without any of them has no trace but a loose one."""
    return list(dict.fromkeys(_hint(trace) for trace in traces if trace.literal))


def _hint(trace: Trace) -> bytes:
    if trace.spelled:
        return re.escape(trace.spelled)
    return trace.expression if trace.plain else _any_case(trace.literal)


def _compiled(expressions: list[bytes], kept_in: Path | None) -> Suspicious:
    import hyperscan

    from vestige.record.redaction.scanner_cache import database as get_database

    database = get_database(expressions, kept_in)
    # A scratch serves one scan at a time. A pool, not one per thread: a signal handler
    # that emits in the middle of a scan is a second scan in the same thread.
    idle: list[Any] = [hyperscan.Scratch(database)]
    take, give, scan = idle.pop, idle.append, database.scan

    def suspicious(line: bytes) -> bool:
        try:
            scratch = take()
        except IndexError:
            scratch = hyperscan.Scratch(database)
        try:
            scan(line, _stop, 0, None, scratch)
        except Exception:  # noqa: BLE001  # a match ends the scan this way; an error must not pass as a no
            return True
        finally:
            give(scratch)
        return False

    return suspicious


def _stop(*_: object) -> bool:
    return True


def _ahocorasick(traces: tuple[Trace, ...], use: Use, whole: bool, kept_in: Path | None) -> None:
    import ahocorasick_rs

    by_literal, loose = _by_literal(traces), _loose(traces)
    find = ahocorasick_rs.BytesAhoCorasick(
        list(by_literal), implementation=ahocorasick_rs.Implementation.DFA
    ).find_matches_as_indexes
    confirm = list(by_literal.values())

    def suspicious(line: bytes) -> bool:
        for which, start, _ in find(line.lower(), overlapping=True):
            if confirm[which](line, start):
                return True
        return any(search(line) for search in loose)

    use(suspicious)


def _standard(traces: tuple[Trace, ...], use: Use, whole: bool, kept_in: Path | None) -> None:
    by_literal, loose = list(_by_literal(traces).items()), _loose(traces)

    def suspicious(line: bytes) -> bool:
        lowered = line.lower()
        for literal, confirm in by_literal:
            start = lowered.find(literal)
            while start >= 0:
                if confirm(line, start):
                    return True
                start = lowered.find(literal, start + 1)
        return any(search(line) for search in loose)

    use(suspicious)


Confirm = Callable[[bytes, int], bool]

_REACH_BEFORE = 48
_REACH_AFTER = 80
"""How far from its literal an expression without `*`, `+` or `{n,}` may match: a look there, not at the whole line."""


def _loose(traces: tuple[Trace, ...]) -> list[Callable[[bytes], object]]:
    """Searches for the traces that have no literal."""
    return [re.compile(trace.expression, re.DOTALL).search for trace in traces if not trace.literal]


def _by_literal(traces: tuple[Trace, ...]) -> dict[bytes, Confirm]:
    """For each literal, whether a place where it stands is really suspicious."""
    grouped: dict[bytes, list[bytes]] = {}
    for trace in filter(lambda trace: trace.literal, traces):
        grouped.setdefault(trace.literal, []).append(trace.expression)
    return {literal: _confirm(literal, found) for literal, found in grouped.items()}


def _confirm(literal: bytes, expressions: list[bytes]) -> Confirm:
    if any(expression == b"(?i)" + re.escape(literal) for expression in expressions):
        return lambda line, start: True
    bounded = not any(re.search(rb"[*+]|,\}", expression) for expression in expressions)
    searches = [re.compile(each, re.DOTALL).search for each in dict.fromkeys(expressions)]

    def confirm(line: bytes, start: int) -> bool:
        low = max(0, start - _REACH_BEFORE)
        high = start + _REACH_AFTER if bounded else len(line)
        return any(search(line, low, high) for search in searches)

    return confirm
