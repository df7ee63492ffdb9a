"""The central pass: no secret in clear reaches the journal.

The owner of a secret masks it (`vestige.mask`, record/redaction/masking.py); this is the backstop for
what slipped through. A record is encoded first and its line scanned once, cheaply;
only a suspicious line is taken apart:

    redactor = Redactor()
    line = encode((record,))
    if redactor.suspicious(line):
        line = render_line(redactor.record(record))

What surrounds a secret stays byte for byte, every hit is counted by its rule, and
redacting twice gives what redacting once gave. Of a JSON document only strings change, never keys or
structure (record/redaction/json_redaction.py).

Elsewhere: keys in record/redaction/masking.py and record/redaction/key_value_secrets.py, shapes in record/redaction/secret_patterns.py, forms of a
registered value in record/redaction/secret_encodings.py, the scanner in record/redaction/secret_scanner.py. All but the first load when they are needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from vestige.limits import BODY_CHUNK, NESTING_MAX, SECRET_LENGTH_MAX
from vestige.record.coercion import ask_before_cutting
from vestige.record.json_render import json_text
from vestige.record.redaction.masking import (
    MARK,
    STEMS,
    KeyRule,
    doubtful_word,
    mask,
    mask_escaped,
    masks_numbers,
    unused_key,
    words_of,
)
from vestige.record.redaction.secret_encodings import REGISTERED_MIN, encoded, forms_of
from vestige.record.redaction.secret_scanner import Scanner
from vestige.record.types import Attributes, KnownRecord, Link, Scalar

if TYPE_CHECKING:
    from pathlib import Path

    from vestige.record.redaction.secret_patterns import Hit

Counts = dict[str, int]

_REGISTERED = "registered"
_TEXT_MIN = 4
"""Characters. No rule matches less, and most attributes' values are short."""

_WINDOW = 2 * SECRET_LENGTH_MAX
_ROUNDS_MAX = 8
_STRETCH = 50
"""Short texts that are looked at together."""
_HELD_MAX = 4 * BODY_CHUNK
_SAFE_CUTS = "\n ,;{}"
_JSON_STARTS = ("{", "[", " ", "\n", "\t", "\r")
_TEXTS = ("component", "type", "name", "message", "level", "status", "conversation_id")


class Redactor:
    """Finds secrets in records and masks them. Shared by all threads of a recorder."""

    def __init__(
        self,
        *,
        scanner: str | None = None,
        extra_keys: Iterable[str] = (),
        key_rules: bool = True,
        kept_in: Path | None = None,
    ) -> None:
        """`scanner`: the engine to use, for tests. `key_rules=False`: only shapes and registered values.
        `kept_in`: where the compiled scanner is kept for the next process (record/redaction/scanner_cache.py)."""
        self.whole = False
        """Build the whole scanner at once: nothing of it while a program runs (set before it is asked)."""
        self._kept_in = kept_in
        self._engine = scanner
        self._extra_keys = extra_keys = tuple(extra_keys)
        self._scanner: Scanner | None = None
        self._word = KeyRule(extra_keys).find if key_rules else None
        self._extra = tuple(words[-1] for words in map(words_of, extra_keys) if words)
        self._needles: tuple[str, ...] = ()
        self.learned = 0
        """Counts up with each lesson: what was clean before may not be any more."""
        # Reentrant: a signal's handler may register a secret, or emit, while this very thread holds it.
        self._learning = threading.RLock()
        self._hits_in: Callable[[str], list[Hit]] | None = None
        ask_before_cutting(self)

    @property
    def suspicious(self) -> Callable[[bytes], bool]:
        """Whether an encoded line might hold a secret. Never wrong when it says no."""
        if self._scanner is None:
            with self._learning:
                # Not before it is asked for: the quickest engine takes its time to be built.
                if self._scanner is None:
                    scanner = Scanner(self._engine, self._extra_keys, self.whole, self._kept_in)
                    if self._needles:
                        scanner.learn(map(encoded, self._needles))
                    self._scanner = scanner
        return self._scanner.suspicious

    def add_secret(self, value: str) -> None:
        """Mask this value wherever it appears, in every form that escaping gives it."""
        self.add_secrets((value,))

    def add_secrets(self, values: Iterable[str]) -> None:
        """Several at once: the scanner learns them together."""
        known = (value for value in values if len(value) >= REGISTERED_MIN)
        forms = {form for value in known for form in forms_of(value)}
        if not forms:
            return
        with self._learning:
            self.learned += 1
            # Longest first: a form may be the beginning of another.
            self._needles = tuple(sorted({*self._needles, *forms}, key=len, reverse=True))
            if self._scanner is not None:
                self._scanner.learn(map(encoded, forms))

    def add_keys(self, keys: Iterable[str]) -> None:
        """From now on, what stands under these keys is a secret too."""
        with self._learning:
            self.learned += 1
            self._extra_keys = tuple(dict.fromkeys((*self._extra_keys, *keys)))
            self._extra = tuple(words[-1] for words in map(words_of, self._extra_keys) if words)
            if self._scanner is not None:
                self._scanner.learn_keys(self._extra_keys)
            if self._word is not None:
                self._word = KeyRule(self._extra_keys).find
            self._hits_in = None  # made anew, with the new keys, when next needed

    def without_key_rules(self) -> Redactor:
        """Another one that knows the same shapes and the values registered so far, but no keys."""
        import copy  # here, as base64: what few need is not loaded by `import vestige`

        other = copy.copy(self)
        other._word, other._hits_in, other._learning = None, None, threading.RLock()
        return other

    def forked(self) -> None:
        """In a forked child: the lock may have been held by a thread that does not exist here."""
        self._learning = threading.RLock()

    @property
    def engine(self) -> str:
        """What the scanner works with; empty where none was needed yet."""
        return "" if self._scanner is None else self._scanner.engine

    @property
    def registered(self) -> int:
        """How many forms of registered values there are."""
        return len(self._needles)

    def learn_from(self, other: Redactor) -> None:
        """Mask all that another one was told to."""
        if not other._needles:
            return
        with self._learning:
            self.learned += 1
            needles = {*self._needles, *other._needles}
            self._needles = tuple(sorted(needles, key=len, reverse=True))
            if self._scanner is not None:
                self._scanner.learn(map(encoded, other._needles))

    # --- records ------------------------------------------------------------------------

    def record(self, record: KnownRecord) -> KnownRecord:
        """The record with every secret in it masked, and what was done counted in `redacted`."""
        counts: Counts = dict(record.redacted or {})
        changes: dict[str, Any] = {
            field: self.text(value, counts)
            for field in _TEXTS
            if isinstance(value := getattr(record, field, None), str)
        }
        changes["attributes"] = self._attributes(record.attributes, counts)
        if links := getattr(record, "links", None):
            changes["links"] = [self._link(link, counts) for link in links]
        if body := getattr(record, "body", None):
            info = getattr(record, "body_info", None)
            encoded = info is not None and info.encoding == "base64"
            changes["body"] = self._base64(body, counts) if encoded else self.text(body, counts)
        if record.extra:
            changes["extra"] = self._nested(record.extra, counts, NESTING_MAX)
        return msgspec.structs.replace(record, **changes, redacted=counts or None)

    def _attributes(self, attributes: Attributes, counts: Counts) -> Attributes:
        cleaned: Attributes = {}
        numbers: dict[str, int] = {}
        for key, value in attributes.items():
            # Two keys may become one mask; the later value must not replace the earlier.
            new_key = unused_key(self.text(key, counts), cleaned, numbers)
            cleaned[new_key] = self._scalar(key, value, counts)
        return cleaned

    def _scalar(self, key: str, value: Scalar, counts: Counts) -> Scalar:
        if isinstance(value, str):
            word = self._word_for(key, value) if self._word and value else None
            return self.text(value, counts) if word is None else self._masked(word, value, counts)
        if type(value) is int and self._word:
            word = self._word(key)
            if word is not None and masks_numbers(word):
                return self._masked(word, str(value), counts)
        return value

    def _word_for(self, key: str, value: str) -> str | None:
        """The word of a key that makes this value a secret."""
        assert self._word is not None
        if word := self._word(key):
            return word
        if doubtful := doubtful_word(key):
            from vestige.record.redaction.key_value_secrets import is_doubtful_secret

            return doubtful if is_doubtful_secret(doubtful, value) else None
        return None

    def _masked(self, word: str, value: str, counts: Counts) -> str:
        from vestige.record.redaction.key_value_secrets import is_secret_value
        from vestige.record.redaction.secret_values import is_placeholder

        masked = mask(value)
        is_path = word == "pwd" and value[0] in "/~"
        if masked == value or is_placeholder(value) or is_path or not is_secret_value(word, value):
            return self.text(value, counts)
        _count(counts, f"key:{word}")
        # The ends that a mask shows may themselves be a short registered secret.
        return self.text(masked, counts)

    def _link(self, link: Link, counts: Counts) -> Link:
        if link.reason is None:
            return link
        return msgspec.structs.replace(link, reason=self.text(link.reason, counts))

    def nested(self, value: dict[str, Any]) -> dict[str, Any]:
        """Any JSON object, keys and all: for a record of a kind that is not known here."""
        cleaned: dict[str, Any] = self._nested(value, {}, NESTING_MAX)
        return cleaned

    def _nested(self, value: Any, counts: Counts, depth: int) -> Any:
        if isinstance(value, str):
            return self.text(value, counts)
        if not isinstance(value, (dict, list)):
            return value
        if depth == 0:
            return self.text(json_text(value), counts)
        if isinstance(value, list):
            return [self._nested(item, counts, depth - 1) for item in value]
        cleaned: dict[str, Any] = {}
        numbers: dict[str, int] = {}
        for key, item in value.items():
            if isinstance(item, (dict, list)):
                new: Any = self._nested(item, counts, depth - 1)
            else:
                new = self._scalar(key, item, counts)
            cleaned[unused_key(self.text(key, counts), cleaned, numbers)] = new
        return cleaned

    def value(self, value: Any, counts: Counts | None = None) -> Any:
        """A JSON value with every secret in it masked: in keys, and by them."""
        return self._nested(value, {} if counts is None else counts, NESTING_MAX)

    def _base64(self, body: str, counts: Counts) -> str:
        import base64

        try:
            raw = base64.b64decode(body, validate=True)
        except ValueError:  # binascii.Error is one
            return self._plain(body, counts)
        text = raw.decode(errors="surrogateescape")
        cleaned = self.text(text, counts)
        if cleaned is text:
            return body
        return base64.b64encode(cleaned.encode(errors="surrogateescape")).decode()

    # --- text ---------------------------------------------------------------------------

    def text(self, text: str, counts: Counts | None = None) -> str:
        """One text with its secrets masked; the same object if it has none."""
        if text.startswith("base64:"):
            # What record/coercion.py makes of bytes that are no text.
            inner = self._base64(text[7:], counts if counts is not None else {})
            if inner != text[7:]:
                return "base64:" + inner
            if not any(needle in text for needle in self._needles):
                return text  # else it is a secret that is written so itself
        return self._plain(text, counts)

    def _plain(self, text: str, counts: Counts | None) -> str:
        if len(text) < _TEXT_MIN:
            return text
        if len(text) > _WINDOW:
            # The scanner says which parts of a long text are worth the exact look.
            windows = (text[at : at + _WINDOW] for at in range(0, len(text), _WINDOW))
            cleaned = "".join(self.stream(windows, counts))
            return text if cleaned == text else cleaned
        return text if self.is_clean(text) else self._exact(text, counts)

    @property
    def find_word(self) -> Callable[[str], str | None] | None:
        """The rule of keys; None if keys do not count."""
        return self._word

    @staticmethod
    def count(counts: Counts | None, rule: str) -> None:
        """Count one hit of a rule."""
        if counts is not None:
            _count(counts, rule)

    def shaped(self, text: str, counts: Counts | None) -> str:
        """A text with what is a secret by its own shape, or registered, masked."""
        if len(text) < _TEXT_MIN:
            return text
        from vestige.record.redaction.secret_patterns import find_shaped

        hits = [*find_shaped(text), *_registered(text, self._needles)]
        return _replace(text, hits, counts) if hits else text

    def _exact(self, text: str, counts: Counts | None) -> str:
        if text.startswith(_JSON_STARTS):
            from vestige.record.redaction.json_redaction import is_json, redact_json

            if is_json(text):
                return redact_json(text, self, counts)
        return self._exact_text(text, counts)

    def _exact_text(self, text: str, counts: Counts | None) -> str:
        # Again until nothing changes: where two hits overlap, their union may end elsewhere
        # than either did, and a second look must not find more than the first masked.
        for _ in range(_ROUNDS_MAX):
            hits = [hit for hit in self._find(text) if hit.new is not None]
            if not hits:
                break
            text = _replace(text, hits, counts)
        return text

    def stream(self, pieces: Iterable[str], counts: Counts | None = None) -> Iterator[str]:
        """A long text that arrives in pieces, redacted as one: a secret may lie across two."""
        held = ""
        is_json: bool | None = None
        tried = 0
        for piece in pieces:
            held += piece
            if len(held) <= _WINDOW or len(held) - tried < _WINDOW // 2:
                continue
            tried = 0
            if is_json is None:
                is_json = _begins_json(held)
            if is_json:
                cut = _json_cut(held)
                if cut > 0:
                    yield self._json_part(held[:cut], counts)
                    held = held[cut:]
                    continue
                # One long string: wait for its end, as far as memory allows.
                is_json = cut == 0 and len(held) <= _HELD_MAX
                if is_json:
                    tried = len(held)
                    continue
            hits = self._find(held) if self._may_hold_secrets(held) else []
            cut = _safe_cut(held, hits)
            if not any(hit.new for hit in hits):
                if cut == 0 and len(held) > _HELD_MAX:
                    cut = len(held) - SECRET_LENGTH_MAX  # "****" of megabytes, as below
                # All but a tail, in which a secret may begin, can go as it is.
                yield held[:cut]
                held = held[cut:]
                continue
            if cut == 0 and len(held) > _HELD_MAX:
                cut = len(held)  # a "secret" of megabytes: mask what is there, keep memory bounded
            if cut:
                yield self._exact(held[:cut], counts)
                held = held[cut:]
        if held and is_json:
            cut = max(0, _json_cut(held))
            yield self._json_part(held[:cut], counts)
            held = held[cut:]
            if held:
                yield self._exact_text(held, counts)
        elif held:
            yield self._exact(held, counts)

    def streamed(self, body: bytes | bytearray, *, is_partial: bool = False) -> bytes | bytearray:
        """A streamed answer without secrets that are split over its events; the same if it has none.
        `is_partial`: more follows, so each text ends where no secret can have begun."""
        from vestige.record.redaction.stream_redaction import (
            redact_stream,  # few programs record streams
        )

        return redact_stream(body, self, is_partial=is_partial)

    def safe_end(self, text: str) -> int:
        """How much of a text that goes on can be written now: whatever follows, no secret lies
        across that place. Its last word may be the beginning of one."""
        end = len(text.rstrip()) and max(text.rfind(blank) for blank in " \t\r\n") + 1
        for needle in self._needles:
            if any(blank in needle for blank in " \t\r\n"):
                at = text.find(needle[0], max(0, len(text) - len(needle) + 1))
                while at >= 0 and not needle.startswith(text[at:]):
                    at = text.find(needle[0], at + 1)
                end = min(end, at) if at >= 0 else end
        block = text.rfind("-----BEGIN", max(0, end - SECRET_LENGTH_MAX), end)
        if block >= 0 and "-----END" not in text[block:end]:
            end = block
        return min(end, self.across(text, end)[0])

    def _json_part(self, text: str, counts: Counts | None) -> str:
        """Whole tokens of a document."""
        if not text or not self._may_hold_secrets(text):
            return text
        from vestige.record.redaction.json_redaction import redact_json

        return redact_json(text, self, counts)

    def across(self, text: str, place: int) -> tuple[int, int]:
        """Where a secret that lies across this place begins, its key included, and ends."""
        first = max(0, place - SECRET_LENGTH_MAX)
        window = text[first : place + SECRET_LENGTH_MAX]
        if self._scanner is not None and not self._may_hold_secrets(window):
            return place, place
        low = high = place - first
        hits = [hit for hit in self._find(window) if hit.new is not None]
        for _ in range(_ROUNDS_MAX):  # hits may overlap
            for hit in hits:
                if hit.start < high and low < hit.high:
                    low, high = min(low, hit.start), max(high, hit.high)
        return first + low, first + high

    def argv(self, arguments: Sequence[str]) -> list[str]:
        """A command line: `--token x`, `--token=x`, `KEY=x`, and text in each argument."""
        cleaned: list[str] = []
        previous = ""
        for argument in arguments:
            cleaned.append(self._argument(argument, previous))
            previous = argument
        return cleaned

    def _argument(self, argument: str, previous: str) -> str:
        if self._word is None or not argument:
            return self.text(argument)
        is_value = previous.startswith("-") and "=" not in previous and argument[0] != "-"
        if is_value and self._word(previous.lstrip("-")) is not None:
            return mask(argument)
        name, equals, value = argument.partition("=")
        if equals and value and " " not in name and ":" not in name and self._word(name):
            return f"{name}={mask(value)}"
        return self.text(argument)

    # --- finding ------------------------------------------------------------------------

    def _find(self, text: str) -> list[Hit]:
        if self._hits_in is None:
            self._hits_in = _finder(self._word, self._extra)
        hits = self._hits_in(text)
        if "%" in text:
            hits += _percent_encoded(text, self._hits_in)
        hits += _base64_encoded(text, self._hits_in)
        if self._needles:
            hits += _registered(text, self._needles)
        return hits

    def is_clean(self, text: str) -> bool:
        """Of a suspicious record most texts are not: the scanner knows them fifty times quicker.
        Of a text that is short and not in base64: True, where `text` would give it back as it is."""
        if self._scanner is None:
            return False  # not worth building one for a text
        try:
            return not self._scanner.suspicious(msgspec.json.encode(text))
        except UnicodeEncodeError:  # lone surrogates
            return False

    def are_clean(self, texts: Sequence[str]) -> bool:
        """Is each of many? Asked of all at once: of one that is not, nothing is said.

        Without a scanner they are looked at exactly, in stretches: a line's end is where any text may be
        cut (`_SAFE_CUTS`), so what one holds by itself, it holds there too."""
        if not all(map(str.isprintable, texts)):
            return False  # what is no text is judged by what is around it
        if self._scanner is not None:
            return not self._scanner.suspicious(msgspec.json.encode(texts))
        stretches = ("\n".join(texts[at : at + _STRETCH]) for at in range(0, len(texts), _STRETCH))
        return not any(map(self._find, stretches))

    def _may_hold_secrets(self, text: str) -> bool:
        """The scanner's quick question, asked of a stretch of a long text."""
        # Halves of characters at the ends of a stretch are no part of a secret.
        clean = text.encode(errors="replace").decode()
        return self.suspicious(msgspec.json.encode(clean))


def _begins_json(text: str) -> bool:
    if not text.startswith(_JSON_STARTS):
        return False
    from vestige.record.redaction.json_redaction import begins_json

    return begins_json(text)


def _json_cut(text: str) -> int:
    from vestige.record.redaction.json_redaction import last_gap

    return last_gap(text)


def _safe_cut(text: str, hits: list[Hit]) -> int:
    """A place at least SECRET_LENGTH_MAX from the end where no secret, nor its key, lies across."""
    # Where no rule looks at the character before: else a cut could make a word of half a one.
    best = _cut_before(text, len(text) - SECRET_LENGTH_MAX)
    for start, high in sorted(((hit.start, hit.high) for hit in hits), reverse=True):
        if start < best < high:
            best = max(text.rfind(mark, 0, start) for mark in _SAFE_CUTS) + 1
    return best


def _cut_before(text: str, place: int) -> int:
    """The last place up to `place` where a text may be cut without making a word of half a one."""
    return max(text.rfind(mark, 0, place) for mark in _SAFE_CUTS) + 1 or place


def _finder(
    word: Callable[[str], str | None] | None, extra: tuple[str, ...]
) -> Callable[[str], list[Hit]]:
    # Here, not above: compiling all this would double the time of `import vestige`.
    from vestige.record.redaction.secret_patterns import find_shaped

    stems = (*STEMS, *extra)

    def find(text: str) -> list[Hit]:
        lowered = text.lower()
        hits: list[Hit] = []
        if word and (any(stem in lowered for stem in stems) or _may_have_doubtful(lowered)):
            from vestige.record.redaction.key_value_secrets import (
                find_keyed,  # compiled once there is something to find
            )

            hits.extend(find_keyed(text, word, stems))
        hits.extend(find_shaped(text))
        return hits

    return find


def _may_have_doubtful(lowered: str) -> bool:
    return any(each in lowered for each in ("pass", "pw", "pat"))


def _replace(text: str, hits: list[Hit], counts: Counts | None) -> str:
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
            _count(counts, hit.rule)
    return "".join((*parts, text[done:]))


def _count(counts: Counts, rule: str) -> None:
    counts[rule] = counts.get(rule, 0) + 1


_PERCENT_BEFORE = 512
_PERCENT_REST = r"""[^\s"'<>\\]{0,8192}"""
_BASE64_RUN = r"[A-Za-z0-9+/_-]{24,}={0,2}"


def _percent_encoded(text: str, find: Callable[[str], list[Hit]]) -> list[Hit]:
    """The secrets in what a URL encodes, at the places where they are written."""
    import re

    from vestige.record.redaction.secret_patterns import Hit

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
        places: list[int] = []
        characters: list[str] = []
        for part in re.finditer(r"%([0-7][0-9A-Fa-f])|.", text[begin:done], re.DOTALL):
            places.append(begin + part.start())
            characters.append(chr(int(part[1], 16)) if part[1] else part[0])
        places.append(done)
        for hit in find("".join(characters)):
            if hit.new is not None:
                low, high = places[hit.low], places[hit.high]
                hits.append(Hit(places[hit.start], low, high, hit.new, hit.rule))
    return hits


def _base64_encoded(text: str, find: Callable[[str], list[Hit]]) -> list[Hit]:
    """Stretches of base64 that hold a secret: they are masked whole."""
    from vestige.record.redaction.secret_patterns import Hit, base64_fragments

    fragments = [fragment for fragment in base64_fragments() if fragment in text]
    if not fragments:
        return []
    import base64
    import re

    hits: list[Hit] = []
    for run in re.finditer(_BASE64_RUN, text):
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


def _registered(text: str, needles: tuple[str, ...]) -> list[Hit]:
    from vestige.record.redaction.secret_patterns import Hit

    hits: list[Hit] = []
    for needle in needles:
        low = text.find(needle)
        while low >= 0:
            high = low + len(needle)
            hits.append(Hit(low, low, high, mask_escaped(needle), _REGISTERED))
            low = text.find(needle, high)
    return hits
