"""Find the secrets of a text by all rules, and replace them with masks.

    find = make_finder(find_word, extra_stems)
    text = replace_hits(text, find(text), counts)

Besides plain text this covers percent-encoded text, base64, and registered values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from vestige._runtime.re_compat import re
from vestige.record.redaction.masking import MARK, STEMS, mask_escaped

if TYPE_CHECKING:
    from vestige.record.redaction.secret_patterns import Hit

Counts = dict[str, int]

_REGISTERED = "registered"


def make_finder(
    word: Callable[[str], str | None] | None, extra: tuple[str, ...]
) -> Callable[[str], list[Hit]]:
    """Return a function that finds the secrets of a text by keys and shapes."""
    # Imported here: compiling the rules would double the time of `import vestige`.
    from vestige.record.redaction.secret_patterns import find_shaped

    stems = (*STEMS, *extra)

    def find(text: str) -> list[Hit]:
        lowered = text.lower()
        hits: list[Hit] = []
        if word and (any(stem in lowered for stem in stems) or _may_have_doubtful(lowered)):
            # Imported here: its expressions are compiled only if a text has a key.
            from vestige.record.redaction.key_value_secrets import find_keyed

            hits.extend(find_keyed(text, word, stems))
        hits.extend(find_shaped(text))
        return hits

    return find


def _may_have_doubtful(lowered: str) -> bool:
    return any(each in lowered for each in ("pass", "pw", "pat"))


def replace_hits(text: str, hits: list[Hit], counts: Counts | None) -> str:
    """Return the text with each hit masked. Overlapping hits become one mask."""
    hits.sort(key=lambda hit: (hit.low, -hit.high))
    parts: list[str] = []
    done = 0
    place = 0
    while place < len(hits):
        hit = hits[place]
        low, high, new = hit.low, hit.high, hit.new
        place += 1
        while place < len(hits) and hits[place].low < high:
            if hits[place].high > high:
                high = hits[place].high
                new = mask_escaped(text[low:high])
            place += 1
        parts += (text[done:low], new or MARK)
        done = high
        if counts is not None:
            count_rule(counts, hit.rule)
    return "".join((*parts, text[done:]))


def count_rule(counts: Counts, rule: str) -> None:
    counts[rule] = counts.get(rule, 0) + 1


_PERCENT_BEFORE = 512
_PERCENT_REST = r"""[^\s"'<>\\]{0,8192}"""
_BASE64_RUN = r"[A-Za-z0-9+/_-]{24,}={0,2}"


def find_percent_encoded(text: str, find: Callable[[str], list[Hit]]) -> list[Hit]:
    """Return the secrets in percent-encoded text, at their offsets in the encoded text."""
    hits: list[Hit] = []
    rest = re.compile(_PERCENT_REST)
    done = 0
    for escape in re.finditer(r"%[2-7][0-9A-Fa-f]", text):
        if escape.start() < done:
            continue
        before = text[max(done, escape.start() - _PERCENT_BEFORE) : escape.start()]
        begin = escape.start() - len(re.split(r"""[\s"'<>\\]""", before)[-1])
        found = rest.match(text, escape.start())
        done = found.end() if found else escape.end()
        # Also each parameter alone: some secrets are recognized at the start of a text only.
        values = re.finditer(r"=([^&=]{1,8192})", text[begin:done])
        ranges = [(begin + value.start(1), begin + value.end(1)) for value in values]
        for low, high in ((begin, done), *(each for each in ranges if "%" in text[slice(*each)])):
            hits += _find_decoded(text, low, high, find)
    return hits


def _find_decoded(
    text: str, begin: int, done: int, find: Callable[[str], list[Hit]]
) -> Iterator[Hit]:
    from vestige.record.redaction.secret_patterns import Hit

    places: list[int] = []
    characters: list[str] = []
    for part in re.finditer(r"%([0-7][0-9A-Fa-f])|.", text[begin:done], re.DOTALL):
        places.append(begin + part.start())
        characters.append(chr(int(part[1], 16)) if part[1] else part[0])
    places.append(done)
    for hit in find("".join(characters)):
        if hit.new is not None:
            yield Hit(places[hit.start], places[hit.low], places[hit.high], hit.new, hit.rule)


def find_base64(text: str, find: Callable[[str], list[Hit]]) -> list[Hit]:
    """Return the base64 texts that contain a secret. Each is masked completely."""
    import base64

    from vestige.record.redaction.secret_patterns import Hit, base64_fragments, base64_search

    runs = list(re.finditer(_BASE64_RUN, text))
    if not runs:
        return []
    fragments = [base64_fragments()[number] for number in base64_search().find(text)]
    hits: list[Hit] = []
    for run in runs:
        if not any(fragment in run[0] for fragment in fragments):
            continue
        raw = run[0].rstrip("=").replace("-", "+").replace("_", "/")
        decoded = base64.b64decode(raw[: len(raw) // 4 * 4] + _padded(raw)).decode(errors="replace")
        if any(hit.new is not None for hit in find(decoded)):
            hits.append(Hit(run.start(), *run.span(), mask_escaped(run[0]), "base64"))
    return hits


def _padded(raw: str) -> str:
    rest = raw[len(raw) // 4 * 4 :]
    return "" if len(rest) < 2 else rest + "=" * (4 - len(rest))


def find_registered(text: str, needles: tuple[str, ...]) -> list[Hit]:
    from vestige.record.redaction.secret_patterns import Hit

    hits: list[Hit] = []
    for needle in needles:
        low = text.find(needle)
        while low >= 0:
            high = low + len(needle)
            hits.append(Hit(low, low, high, mask_escaped(needle), _REGISTERED))
            low = text.find(needle, high)
    return hits
