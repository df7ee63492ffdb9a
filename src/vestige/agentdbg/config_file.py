"""Read AgentDbg's config.yaml: the few shapes of YAML that such a file has.

    redact_keys:            max_field_bytes: 5000           guardrails:
      - ssn                 redact_keys: [ssn, iban]          max_llm_calls: 50

Keys with a scalar, a list or one level of keys. Every value is returned as text or as a list of
texts; settings.py validates them. Any other line is returned as a complaint, and the rest of the
file is still used.
"""

from __future__ import annotations

from vestige.limits import MIB

Value = str | list[str] | dict[str, str]

SIZE_MAX = MIB
"""A config file is about a page long. A longer file is not one."""


def parse_config(text: str) -> tuple[dict[str, Value], list[str]]:
    """Parse a file. Return its settings, and the lines that are invalid."""
    found: dict[str, Value] = {}
    complaints: list[str] = []
    under = ""
    for number, line in enumerate(text.splitlines(), 1):
        bare = _without_comment(line).rstrip()
        if not bare.strip() or bare.strip() in ("---", "..."):
            continue
        word = bare.strip()
        key, colon, rest = word.partition(":")
        if word.startswith("- ") and under:
            known = found.get(under)
            items = known if isinstance(known, list) else []
            found[under] = [*items, _scalar(word[2:])]
        elif not colon or (rest and not rest.startswith((" ", "\t"))):
            complaints.append(f"line {number}: is not understood (expected `name: value`)")
        elif bare[0] in " \t" and under:
            known = found.get(under)
            members = known if isinstance(known, dict) else {}
            found[under] = {**members, _scalar(key): _scalar(rest)}
        else:
            under = "" if rest.strip() else _scalar(key)
            found[_scalar(key)] = _value(rest.strip())
    return found, complaints


def _value(text: str) -> Value:
    if text.startswith("[") and text.endswith("]"):
        return [_scalar(item) for item in text[1:-1].split(",") if item.strip()]
    return _scalar(text)


def _scalar(text: str) -> str:
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return "" if text in ("null", "~") else text


def _without_comment(line: str) -> str:
    quote = ""
    for place, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "#" and (place == 0 or line[place - 1] in " \t"):
            return line[:place]
    return line
