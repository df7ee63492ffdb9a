"""Quoted values beside a key, and the strings of a list or object beside it."""

from __future__ import annotations

from collections.abc import Iterator

from vestige._runtime.re_compat import re
from vestige.limits import SECRET_LENGTH_MAX
from vestige.record.redaction.keyed.key_context import DESCRIBING, KeyContext
from vestige.record.redaction.masking import describes_secret
from vestige.record.redaction.secret_likelihood import WEAK, WORD
from vestige.record.redaction.secret_patterns import Hit

OPENS = re.compile(r"""[bfruBFRU]{0,2}(?P<q>\\*["'`])""")
_CLOSING = re.compile(r"""\s{0,8}(?:[,}\]:;)\n\\]|%\}|\+\(|\Z)|\s{1,8}\+\s""")
_QUOTE_OR_LINE = re.compile(r"""(\\*)(["'`\n])""")
_TOKEN_CHOICE = re.compile(r"""\\*["'],\s{0,8}\\*["'](?i:log_?prob|tokenId|token_id)""")
_CONTAINER_PART = re.compile(r"""(\\*)(["'])|[\[\](){}]""")
_COLON = re.compile(r"\s{0,8}:")


def is_closing_quote(text: str, opens: re.Match[str]) -> bool:
    """Return whether a quote after `password:` ends the key's string: `"Password: ", "next"`."""
    if opens["q"] == "`":
        # Markdown: "pass `token=` to the client". A value hardly begins with a space or a sign.
        return text[opens.end() : opens.end() + 1] in " \t\n.,;:)"
    return _CLOSING.match(text, opens.end()) is not None


def find_quoted(context: KeyContext, at: int, lowest: int) -> Iterator[Hit]:
    text = context.text
    opens = OPENS.match(text, at)
    if opens is None:
        return
    low = opens.end()
    if text.startswith(opens["q"] * 2, low):
        low += 2 * len(opens["q"])  # """x""" in Python and TOML
    yield context.hit(low, end_of_quoted(text, low, opens["q"]), lowest, True)


def end_of_quoted(text: str, low: int, quote: str) -> int:
    """Return the end of a quoted value: its closing quote, or the end of the line or text.

    In JSON that is nested k times, a closing quote has 2**k - 1 backslashes, and a quote
    inside the value has 2**(k+1) - 1. Both may follow backslashes of the value, which are
    2**(k+1) each. With fewer backslashes, the text around the value ends here, and the
    value is incomplete.
    """
    depth = len(quote) - 1
    for match in _QUOTE_OR_LINE.finditer(text, low):
        if match[2] == "\n":
            return match.start()
        if match[2] == quote[-1] or (match[2] == '"' and depth):
            slashes = len(match[1])
            if slashes < depth:
                return match.start()
            if match[2] == quote[-1] and slashes % (2 * depth + 2) == depth:
                return match.end() - 1 - depth
    return len(text)


def is_token_choice(text: str, opens: re.Match[str]) -> bool:
    """Return whether this is a token of a response: `{"token": "Hi", "logprob": -0.1`."""
    high = end_of_quoted(text, opens.end(), opens["q"])
    return high - opens.end() <= 64 and _TOKEN_CHOICE.match(text, high) is not None


def find_in_container(context: KeyContext, at: int, lowest: int) -> Iterator[Hit]:
    """Yield the strings of a list or object, except the values of describing keys."""
    text = context.text
    depth, key, limit = 0, "", at + SECRET_LENGTH_MAX
    is_list = text[at] == "["
    while part := _CONTAINER_PART.search(text, at, limit):
        at = part.end()
        if part[2] is None:
            depth += 1 if part[0] in "[({" else -1
            if depth <= 0:
                break
            continue
        low, high = at, end_of_quoted(text, at, part[0])
        value = text[low:high]
        at = high + len(part[0])
        if _COLON.match(text, at):
            key = value.lower().strip("$")
        elif key not in DESCRIBING and not describes_secret(key):
            is_direct = is_list and depth == 1
            least = lowest if is_direct else max(lowest, WORD if "cookie" in context.word else WEAK)
            yield context.hit(low, high, least, True)
    # Skip what was read: searching nested containers again would take quadratic time.
    yield Hit(context.start, at, at, None, context.rule)
