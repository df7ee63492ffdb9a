"""Redact records and texts, so that no secret reaches the journal in clear.

Programs can mask their own secrets (`vestige.mask`); the redactor masks all others. A record
is encoded first, and its line is scanned once, which is cheap. Only a suspicious line is
searched:

    redactor = Redactor()
    line = encode((record,))
    if redactor.suspicious(line):
        line = render_line(redactor.record(record))

The text around a secret stays unchanged, hits are counted by rule, and redaction is idempotent.
In a JSON document only strings change, never the structure (json_redaction.py).

Modules of this folder: keys in masking.py and key_value_secrets.py, shapes in
secret_patterns.py, forms of registered values in secret_encodings.py, the search itself in
secret_search.py, the scanner in secret_scanner.py. Most are imported on first use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige.limits import NESTING_MAX, SECRET_LENGTH_MAX
from vestige.record.coercion import register_finder
from vestige.record.json_render import json_text
from vestige.record.redaction.masking import (
    KeyRule,
    doubtful_word,
    is_token_choice,
    mask,
    masks_numbers,
    unused_key,
    words_of,
)
from vestige.record.redaction.secret_encodings import REGISTERED_MIN, encoded, forms_of
from vestige.record.redaction.secret_scanner import Scanner
from vestige.record.redaction.secret_search import (
    Counts,
    count_rule,
    find_base64,
    find_percent_encoded,
    find_registered,
    make_finder,
    replace_hits,
)
from vestige.record.types import Attributes, KnownRecord, Link, Scalar

if TYPE_CHECKING:
    from pathlib import Path

    from vestige.record.redaction.secret_patterns import Hit

_TEXT_MIN = 4
"""Characters. No rule matches a shorter text, and most attribute values are short."""

_WINDOW = 2 * SECRET_LENGTH_MAX
_ROUNDS_MAX = 8
_GROUP = 50
"""Short texts that are searched together."""
_CLEAN_MIN = 256
_CLEAN_MAX = 512
"""Hashes of searched texts that are remembered: arguments of a tool are also in the answer."""

_JSON_STARTS = ("{", "[", " ", "\n", "\t", "\r")
_TEXTS = ("component", "type", "name", "message", "level", "status", "conversation_id")


class Redactor:
    """Find secrets in records and mask them. Shared by all threads of a recorder."""

    def __init__(
        self,
        *,
        scanner: str | None = None,
        extra_keys: Iterable[str] = (),
        key_rules: bool = True,
        cache_folder: Path | None = None,
    ) -> None:
        """`scanner`: the engine to use, for tests. `key_rules=False`: only shapes and registered
        values. `cache_folder`: a folder for the compiled scanner, for the next process."""
        self._cache_folder = cache_folder
        self._engine = scanner
        self._extra_keys = extra_keys = tuple(extra_keys)
        self._scanner: Scanner | None = None
        self._word = KeyRule(extra_keys).find if key_rules else None
        self._extra = tuple(words[-1] for words in map(words_of, extra_keys) if words)
        self._needles: tuple[str, ...] = ()
        self.learned = 0
        """Increases with each new secret or key: a text that was clean may not be clean now."""
        # Reentrant: a signal handler may register a secret, or emit, while its thread has the lock.
        self._learning = threading.RLock()
        self._find_secrets: Callable[[str], list[Hit]] | None = None
        self._clean: dict[int, int] = {}
        """Hashes of texts without secrets, with the value of `learned` at that time."""
        register_finder(self)

    @property
    def scanner(self) -> Scanner:
        """The scanner, created when first needed: loading its engine takes some milliseconds."""
        if self._scanner is None:
            with self._learning:
                if self._scanner is None:
                    scanner = Scanner(self._engine, self._extra_keys, self._cache_folder)
                    if self._needles:
                        scanner.learn(map(encoded, self._needles))
                    self._scanner = scanner
        return self._scanner

    @property
    def suspicious(self) -> Callable[[bytes], bool]:
        """A function: whether an encoded line may contain a secret. False is always right."""
        return self.scanner.suspicious

    def complete_scanner(self) -> None:
        """Compile the scanner's second stage, if enough was scanned. Call this off the hot path."""
        scanner = self._scanner
        if scanner is not None and scanner.should_complete:
            compiled = scanner.compile()
            with self._learning:
                scanner.complete(compiled)

    def add_secret(self, value: str) -> None:
        """Mask this value wherever it appears, in every form that escaping gives it."""
        self.add_secrets((value,))

    def add_secrets(self, values: Iterable[str]) -> None:
        """Mask several values; the scanner is rebuilt once."""
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
        """Treat the values of these keys as secrets from now on."""
        with self._learning:
            self.learned += 1
            self._extra_keys = tuple(dict.fromkeys((*self._extra_keys, *keys)))
            self._extra = tuple(words[-1] for words in map(words_of, self._extra_keys) if words)
            if self._scanner is not None:
                self._scanner.learn_keys(self._extra_keys)
            if self._word is not None:
                self._word = KeyRule(self._extra_keys).find
            self._find_secrets = None  # rebuilt with the new keys on next use

    def without_key_rules(self) -> Redactor:
        """Return a redactor with the same shapes and registered values, but without keys."""
        import copy  # not at the top: few programs need it

        other = copy.copy(self)
        other._word, other._find_secrets, other._learning = None, None, threading.RLock()
        other._clean = {}
        return other

    def forked(self) -> None:
        """Replace the lock in a forked child: a thread that no longer exists may hold it."""
        self._learning = threading.RLock()

    @property
    def engine(self) -> str:
        """The name of the scanner's engine; empty if no scanner was needed yet."""
        return "" if self._scanner is None else self._scanner.engine

    @property
    def registered(self) -> int:
        """The number of forms of registered values."""
        return len(self._needles)

    def learn_from(self, other: Redactor) -> None:
        """Mask the values that are registered with another redactor too."""
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
        """Return the record with its secrets masked, and the hits counted in `redacted`."""
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
            # Two keys may have the same mask; the second must not replace the first.
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
        """Return the word of a key that makes this value a secret, or None."""
        assert self._word is not None
        if word := self._word(key):
            return word
        if doubtful := doubtful_word(key):
            from vestige.record.redaction.keyed.key_context import is_doubtful_secret

            return doubtful if is_doubtful_secret(doubtful, value) else None
        return None

    def _masked(self, word: str, value: str, counts: Counts) -> str:
        from vestige.record.redaction.keyed.key_context import is_secret_value
        from vestige.record.redaction.secret_likelihood import is_placeholder

        masked = mask(value)
        is_path = word == "pwd" and value[0] in "/~"
        if masked == value or is_placeholder(value) or is_path or not is_secret_value(word, value):
            return self.text(value, counts)
        count_rule(counts, f"key:{word}")
        # The ends that a mask shows may themselves be a short registered secret.
        return self.text(masked, counts)

    def _link(self, link: Link, counts: Counts) -> Link:
        if link.reason is None:
            return link
        return msgspec.structs.replace(link, reason=self.text(link.reason, counts))

    def nested(self, value: dict[str, Any]) -> dict[str, Any]:
        """Redact a JSON object and its keys, for a record of an unknown kind."""
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
            elif key == "token" and isinstance(item, str) and is_token_choice(value):
                new = self.text(item, counts)
            else:
                new = self._scalar(key, item, counts)
            cleaned[unused_key(self.text(key, counts), cleaned, numbers)] = new
        return cleaned

    def value(self, value: Any, counts: Counts | None = None) -> Any:
        """Redact a JSON value: secrets in its strings, in its keys, and under secret keys."""
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
        """Return the text with its secrets masked; the same object if it has none."""
        if text.startswith("base64:"):
            # Bytes that are not UTF-8, as record/coercion.py writes them.
            inner = self._base64(text[7:], counts if counts is not None else {})
            if inner != text[7:]:
                return "base64:" + inner
            if not any(needle in text for needle in self._needles):
                return text  # otherwise a registered secret begins with "base64:"
        return self._plain(text, counts)

    def _plain(self, text: str, counts: Counts | None) -> str:
        if len(text) < _TEXT_MIN:
            return text
        if len(text) > _WINDOW:
            # The scanner selects the parts of a long text that need the exact search.
            windows = (text[at : at + _WINDOW] for at in range(0, len(text), _WINDOW))
            cleaned = "".join(self.stream(windows, counts))
            return text if cleaned == text else cleaned
        return text if self.is_clean(text) else self.redact_exactly(text, counts)

    @property
    def find_word(self) -> Callable[[str], str | None] | None:
        """The function that finds a secret's word in a key; None without key rules."""
        return self._word

    @staticmethod
    def count(counts: Counts | None, rule: str) -> None:
        """Count one hit of a rule."""
        if counts is not None:
            count_rule(counts, rule)

    def shaped(self, text: str, counts: Counts | None) -> str:
        """Return the text with secrets masked by shape or registration, not by key."""
        if len(text) < _TEXT_MIN:
            return text
        from vestige.record.redaction.secret_patterns import find_shaped

        hits = [*find_shaped(text), *find_registered(text, self._needles)]
        return replace_hits(text, hits, counts) if hits else text

    def redact_exactly(self, text: str, counts: Counts | None) -> str:
        if text.startswith(_JSON_STARTS):
            from vestige.record.redaction.json_redaction import is_json, redact_json

            if is_json(text):
                return redact_json(text, self, counts)
        return self.redact_text(text, counts)

    def redact_text(self, text: str, counts: Counts | None) -> str:
        learned = self.learned
        if len(text) >= _CLEAN_MIN and self._clean.get(hash(text)) == learned:
            return text
        # Repeat until nothing changes: the union of two overlapping hits may end elsewhere than
        # either hit, and redacting twice must give the same result as redacting once.
        for _ in range(_ROUNDS_MAX):
            hits = [hit for hit in self.find(text) if hit.new is not None]
            if not hits:
                self._remember_clean(text, learned)
                break
            text = replace_hits(text, hits, counts)
        return text

    def _remember_clean(self, text: str, learned: int) -> None:
        if len(text) < _CLEAN_MIN:
            return
        if len(self._clean) >= _CLEAN_MAX:
            self._clean = {}  # replaced, not changed: another thread may read it
        self._clean[hash(text)] = learned

    def stream(self, chunks: Iterable[str], counts: Counts | None = None) -> Iterator[str]:
        """Redact a long text that arrives in chunks (chunked_text.py)."""
        from vestige.record.redaction.chunked_text import redact_chunks

        return redact_chunks(self, chunks, counts)

    def streamed(self, body: bytes | bytearray, *, is_partial: bool = False) -> bytes | bytearray:
        """Redact secrets that are split over the events of a streamed response.

        Returns the same object if there are none. `is_partial`: more follows, so each text ends
        where no secret can have begun."""
        # Imported here: few programs record streams.
        from vestige.record.redaction.stream_redaction import redact_stream

        return redact_stream(body, self, is_partial=is_partial)

    def safe_end(self, text: str) -> int:
        """Return the length of an unfinished text that can be written now.

        No secret can span that offset, whatever follows. The last word may begin one."""
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
        return min(end, self.find_across(text, end)[0])

    def find_across(self, text: str, offset: int) -> tuple[int, int]:
        """Return the range of a secret, with its key, that spans this offset."""
        first = max(0, offset - SECRET_LENGTH_MAX)
        window = text[first : offset + SECRET_LENGTH_MAX]
        if self._scanner is not None and not self.may_have_secrets(window):
            return offset, offset
        low = high = offset - first
        hits = [hit for hit in self.find(window) if hit.new is not None]
        for _ in range(_ROUNDS_MAX):  # hits may overlap
            for hit in hits:
                if hit.start < high and low < hit.high:
                    low, high = min(low, hit.start), max(high, hit.high)
        return first + low, first + high

    def argv(self, arguments: Sequence[str]) -> list[str]:
        """Redact a command line: `--token x`, `--token=x`, `KEY=x`, and text in arguments."""
        cleaned: list[str] = []
        previous = ""
        for argument, by_others in zip(arguments, self.command(arguments), strict=True):
            redacted = self._argument(argument, previous)
            cleaned.append(by_others if redacted == argument else redacted)
            previous = argument
        return cleaned

    def command(self, arguments: Sequence[str], counts: Counts | None = None) -> list[str]:
        """Redact the arguments whose secrets the other arguments show: `curl -u me:x`."""

        return self._redact_joined(arguments, " ", counts)

    def lines(self, lines: Sequence[str], counts: Counts | None = None) -> list[str]:
        """Redact the lines of a text whose secrets the other lines show: a private key."""
        joined = "\n".join(lines)
        if len(joined) > _WINDOW or self.is_clean(joined):
            return list(lines)
        return self._redact_joined(lines, "\n", counts)

    def _redact_joined(
        self, parts: Sequence[str], gap: str, counts: Counts | None = None
    ) -> list[str]:
        from vestige.record.redaction.secret_patterns import Hit

        hits = [hit for hit in self.find(gap.join(parts)) if hit.new is not None]
        if not hits:
            return list(parts)
        cleaned: list[str] = []
        start = 0
        for part in parts:
            end = start + len(part)
            inside: list[Hit] = []
            for hit in hits:
                low, high = max(hit.low, start), min(hit.high, end)
                if low < high and (gap == "\n" or (low, high) == (hit.low, hit.high)):
                    # Of a secret over several lines, each has its own mask.
                    new = (
                        hit.new
                        if high - low == hit.high - hit.low
                        else mask(part[low - start : high - start])
                    )
                    inside.append(Hit(0, low - start, high - start, new, hit.rule))
            cleaned.append(replace_hits(part, inside, counts) if inside else part)
            start = end + len(gap)
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

    def find(self, text: str) -> list[Hit]:
        if self._find_secrets is None:
            self._find_secrets = make_finder(self._word, self._extra)
        hits = self._find_decoded(text)
        if "%" in text:
            hits += find_percent_encoded(text, self._find_decoded)
        hits += find_base64(text, self._find_decoded)
        if self._needles:
            hits += find_registered(text, self._needles)
        return hits

    def _find_decoded(self, text: str) -> list[Hit]:
        """Return the secrets of a text, and of JSON documents inside it: `failed: {"key": ...`."""
        assert self._find_secrets is not None
        hits = self._find_secrets(text)
        if '{"' in text:
            from vestige.record.redaction.json_redaction import find_in_documents

            hits += find_in_documents(text, self)
        return hits

    def is_clean(self, text: str) -> bool:
        """Return whether the scanner finds nothing in a text, which takes a 50th of a search.

        Most texts of a suspicious record are clean. For a short text that is not base64, True
        means that `text` would return it unchanged."""
        if self._scanner is None:
            return False  # not worth building a scanner for one text
        try:
            return not self._scanner.suspicious(msgspec.json.encode(text))
        except UnicodeEncodeError:  # lone surrogates
            return False

    def are_clean(self, texts: Sequence[str]) -> bool:
        """Return whether all of these texts are clean, with one scan.

        Without a scanner they are searched exactly, in groups joined by newlines: no secret
        spans a newline, so each text has the same hits as it has by itself."""
        if not all(map(str.isprintable, texts)):
            return False  # binary data is judged by its surroundings, so joining changes it
        if self._scanner is not None:
            return not self._scanner.suspicious(msgspec.json.encode(texts))
        groups = ("\n".join(texts[at : at + _GROUP]) for at in range(0, len(texts), _GROUP))
        return not any(map(self.find, groups))

    def may_have_secrets(self, text: str) -> bool:
        """Return whether the scanner finds a marker in a part of a long text."""
        # Half characters at the ends of a part do not belong to a secret.
        clean = text.encode(errors="replace").decode()
        return self.suspicious(msgspec.json.encode(clean))
