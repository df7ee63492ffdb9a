r"""Redact a JSON document: strings change, the structure never does.

    redact_json('{"workflow": "refresh-token", "status": "done"}', redactor, counts)   # unchanged

Each string is judged by itself and by its key, so a value that looks like a header's name does
not affect the next key, and a closing quote is never mistaken for an opening one. A string that
contains JSON is redacted by the same rules, at any depth. Everything else stays unchanged,
including white space.

A key is masked only if it is itself a secret, by its shape or because it was registered.

Other texts, and fragments of JSON, are handled in key_value_secrets.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige._runtime.re_compat import re
from vestige.limits import SECRET_LENGTH_MAX
from vestige.record.redaction.keyed.key_context import (
    CONTAINERS,
    DESCRIBING,
    is_doubtful_secret,
    is_header,
    is_header_name,
    is_secret_value,
)
from vestige.record.redaction.masking import (
    MARK,
    describes_secret,
    doubtful_word,
    mask,
    masks_numbers,
)
from vestige.record.redaction.secret_likelihood import (
    STRONG,
    WEAK,
    WORD,
    grade,
    is_mixed_letters,
    is_placeholder,
)
from vestige.record.redaction.secret_patterns import Hit, is_basic

if TYPE_CHECKING:
    from vestige.record.redaction.redactor import Redactor
    from vestige.record.redaction.secret_search import Counts

_TOKEN: Final = re.compile(
    r'"(?P<string>[^"\\]*+(?:\\.[^"\\]*+)*+)"(?P<colon>\s*+:)?|(?P<open>[\[{])|(?P<close>[\]}])|'
    r'(?P<scalar>[^\s",:\[\]{}]+)',
    re.DOTALL,
)
_TOKENS: Final = re.compile(
    r'(?:[\s,:\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"|[-+.0-9eE]++|true|false|null)*+', re.DOTALL
)
_TOKEN_CHOICE: Final = re.compile(r'\s{0,8},\s{0,8}"(?:log_?prob|tokenId|token_id)', re.IGNORECASE)
"""After a token of a response: `{"token": "Hi", "logprob": -0.1}`."""
_BEGINS: Final = re.compile(r'\s*+(?:\{\s*+["}]|\[\s*+(?:["\[\]{0-9-]|true|false|null))')
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
# A key without its value, or a string that may still become a key, with the key before it.
_SHORT: Final = r'(?<!\\)"(?:[^"\\]|\\.){0,256}+"\s*+'
_OPEN_ENTRY: Final = re.compile(rf"(?:{_SHORT}:\s*+)?{_SHORT}(?::\s*+)?\Z", re.DOTALL)
_DEPTH_MAX: Final = 1000
_PAIRED_LEVELS: Final = 4
_WORD_MAX: Final = 5
_ARGUMENT_MAX: Final = 1024
_KEY_TYPES: Final = ("RSA", "EC", "OKP", "oct")
_PRIVATE_MEMBERS: Final = ("d", "p", "q", "dp", "dq", "qi", "k")
_NAMES: Final = ("name", "key", "header", "field", "id", "variable", "parameterkey")
_FIELDS: Final = ("element", "selector", "label", "placeholder")
"""Members that name the field of a form into which a tool of a browser types."""
_USERS: Final = ("username", "user", "login", "account")
_KEY_SECTIONS: Final = ("api", "auth", "jwt", "crypt", "encryption", "signing")
_PASSWORDS: Final = ("password", "passwords", "passwd", "passphrase", "passcode")
_HOST: Final = re.compile(r"[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}(?::[0-9]{1,5})?")
_TOKEN_MIN: Final = 16
_LINE_SIGNS: Final = (" ", ":", "=", "<")
"""Signs of a line, unlike a name: `["password", "email"]` are fields."""
_DOCUMENTS_MAX: Final = 4
"""Documents inside a text that are read."""
_decoder = json.JSONDecoder()
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode


def begins_json(text: str) -> bool:
    """Return whether a text begins like an object or an array."""
    return _BEGINS.match(text) is not None


def is_json(text: str) -> bool:
    """Return whether a text is one complete object or array."""
    if not begins_json(text):
        return False
    try:
        _decode_raw(text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def last_gap(text: str, *, is_last: bool = False) -> int:
    """Return the last offset of a partial document that is between two tokens.

    It is not inside a string, and not between a key and its value. Zero: one string continues to
    the end. Below zero: the text is not JSON. `is_last`: nothing follows the text."""
    found = _TOKENS.match(text)
    end = found.end() if found else 0
    if not text.startswith('"', end) and len(text) - end > _WORD_MAX:
        return -1
    if is_last and end == len(text):
        return end
    if entry := _OPEN_ENTRY.search(text, max(0, end - 1200), end):
        end = entry.start()
    # A number or word may continue after the end.
    while end and text[end - 1] not in ',[]{}" \t\n\r':
        end -= 1
    return end


class _Frame:
    """An object or array that is being read."""

    __slots__ = (
        *("field", "has_user", "is_jwk", "is_list", "item", "key", "named", "owner", "previous"),
        *("private", "strings", "typed", "value", "word"),
    )

    def __init__(self, is_list: bool, word: str | None, owner: str = "") -> None:
        self.is_list = is_list
        self.word = word
        """The secret's word in the key of this container, or of one around it."""
        self.owner = owner
        """The key of this container, in lower case."""
        self.has_user = False
        """True after a member `username`, beside which a `key` is a secret."""
        self.key = ""
        self.previous = ""
        """The previous string, in a list."""
        self.strings: list[tuple[int, int, str]] = []
        """The ranges and texts of the strings of a list, which may be a command line."""
        self.item = 0
        self.is_jwk = False
        """True for a JSON Web Key: an object with the member `kty`."""
        self.private: list[tuple[int, int, str]] = []
        """The ranges and texts of the members that are private in such a key."""
        self.named: str | None = None
        """The value of `name`, in an object with a name and a value."""
        self.field: str | None = None
        """The name of the field of a form into which something is typed."""
        self.value: tuple[int, int, str] | None = None
        """The range and text of its `value`."""
        self.typed: tuple[int, int, str] | None = None
        """The range and text of its `text`: what is typed into a field."""


class _Edits:
    """Replacements for parts of a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.found: list[tuple[int, int, str]] = []

    def put(self, low: int, high: int, new: str) -> None:
        self.found.append((low, high, new))

    def apply(self) -> str:
        if not self.found:
            return self.text
        parts: list[str] = []
        done = 0
        for low, high, new in sorted(self.found):
            parts += (self.text[done:low], new)
            done = high
        return "".join((*parts, self.text[done:]))


def redact_json(text: str, redactor: Redactor, counts: Counts | None) -> str:
    """Return a document, redacted; the same object if it is clean."""
    return DocumentRedaction(redactor, counts).redact(text)


def find_in_documents(text: str, redactor: Redactor) -> Iterator[Hit]:
    """Yield the secrets of the JSON documents inside a text, such as the message of an error."""
    from vestige.record.redaction.streams.text_edits import find_edits

    at = 0
    for _ in range(_DOCUMENTS_MAX):
        low = text.find('{"', at)
        if low < 0:
            return
        try:
            _, high = _decoder.raw_decode(text, low)
        except (ValueError, RecursionError):
            at = low + 2
            continue
        document = text[low:high]
        cleaned = redact_json(document, redactor, None)
        if cleaned is not document and cleaned != document:
            for begin, end, new in find_edits(document, cleaned):
                yield Hit(low + begin, low + begin, low + end, new, "json")
        at = high


class DocumentRedaction:
    """Redact a document that arrives in parts, each of complete tokens.

    The keys that enclose a part are in earlier parts, so the open containers are remembered."""

    def __init__(self, redactor: Redactor, counts: Counts | None) -> None:
        self._redactor = redactor
        self._counts = counts
        self._frames = [_Frame(True, None)]
        self._deeper = 0
        """Open containers beyond _DEPTH_MAX, which have no frames of their own."""

    def redact(self, text: str) -> str:
        """Return the next part, redacted; the same object if it is clean."""
        edits = _Edits(text)
        for token in _TOKEN.finditer(text):
            frame = self._frames[-1]
            if token["string"] is not None:
                low, high = token.span("string")
                if token["colon"]:
                    frame.key = _decoded(token["string"])
                    _redact_key(edits, low, high, frame.key, self._redactor, self._counts)
                    continue
                _redact_string(edits, low, high, frame, self._redactor, self._counts)
            elif token["open"]:
                owner = "" if frame.is_list else frame.key.lower()
                self._open(token["open"], _word_inside(frame, self._redactor.find_word), owner)
            elif token["close"]:
                closed = self._close()
                if closed is not None:
                    _redact_named(edits, closed, self._redactor, self._counts)
                    _redact_web_key(edits, closed, self._redactor, self._counts)
                    _redact_command(edits, closed, self._redactor, self._counts)
            else:
                _redact_number(edits, token, frame, self._redactor, self._counts)
        for frame in self._frames:
            _redact_named(edits, frame, self._redactor, self._counts)
            _redact_web_key(edits, frame, self._redactor, self._counts)
            frame.private = []
            frame.value = frame.typed = None  # Their offsets are valid in this part only.
            _redact_command(edits, frame, self._redactor, self._counts)
        return edits.apply()

    def skip(self, text: str) -> None:
        """Follow the containers of a part that needs no redaction."""
        for bracket in _brackets(text):
            if bracket in "[{":
                self._open(bracket, None)
            else:
                self._close()
        self._frames[-1].key = self._frames[-1].previous = ""

    def expects_secret(self) -> bool:
        """Return whether a key in an earlier part may make the next value a secret."""
        find_word = self._redactor.find_word
        return find_word is not None and any(
            frame.word is not None
            or (frame.named is not None and find_word(frame.named) is not None)
            or (0 < len(frame.previous) <= 64 and find_word(frame.previous.lstrip("-")) is not None)
            for frame in self._frames
        )

    def _open(self, bracket: str, word: str | None, owner: str = "") -> None:
        if len(self._frames) > _DEPTH_MAX:
            self._deeper += 1
        else:
            self._frames.append(_Frame(bracket == "[", word, owner))

    def _close(self) -> _Frame | None:
        if self._deeper:
            self._deeper -= 1
            return None
        if len(self._frames) == 1:
            return None
        closed = self._frames.pop()
        self._frames[-1].item += 1
        self._frames[-1].previous = ""
        return closed


def _brackets(text: str) -> str:
    """Return the brackets outside strings, without most pairs of them."""
    if "\\" in text:
        text = text.replace("\\\\", "").replace('\\"', "")
    outside = "".join(text.split('"')[::2])
    found = outside.encode("ascii", "ignore").translate(None, _NOT_BRACKETS)
    for _ in range(_PAIRED_LEVELS):
        found = found.replace(b"[]", b"").replace(b"{}", b"")
    return found.decode()


def _word_inside(frame: _Frame, find_word: object) -> str | None:
    if frame.is_list or not callable(find_word):
        return frame.word
    found = find_word(frame.key)
    if found is not None:
        return found  # type: ignore[no-any-return]
    return frame.word if frame.key.lower().strip("$") not in DESCRIBING else None


def _redact_key(
    edits: _Edits, low: int, high: int, key: str, redactor: Redactor, counts: Counts | None
) -> None:
    new = redactor.shaped(key, counts)
    if new != key:
        edits.put(low, high, _encoded(edits.text[low:high], key, new))


def _redact_string(
    edits: _Edits, low: int, high: int, frame: _Frame, redactor: Redactor, counts: Counts | None
) -> None:
    raw = edits.text[low:high]
    value = _decoded(raw)
    previous, frame.previous = frame.previous, value
    frame.item += 1
    if frame.is_list and len(value) <= _ARGUMENT_MAX:
        frame.strings.append((low, high, value))
    elif not frame.is_list:
        lowered = frame.key.lower()
        if lowered in _NAMES and len(value) <= 128:
            frame.named = value
        elif lowered in _FIELDS and len(value) <= 128:
            frame.field = value
        elif lowered in ("value", "parametervalue"):
            frame.value = (low, high, value)
        elif lowered == "text" and len(value) <= 128:
            frame.typed = (low, high, value)
        elif lowered in _USERS:
            frame.has_user = True
        elif frame.key in _PRIVATE_MEMBERS:
            frame.private.append((low, high, value))
        elif frame.key == "kty":
            frame.is_jwk = value in _KEY_TYPES
    word = redactor.find_word and _secret_under(
        edits.text, high, frame, previous, value, redactor.find_word
    )
    new = None
    if word:
        masked = mask(value)
        if masked != value:
            redactor.count(counts, f"key:{word}")
            new = redactor.shaped(masked, None)
    if new is None:
        new = redactor.text(value, counts)
    if new != value:
        edits.put(low, high, _encoded(raw, value, new))
        frame.value = None if frame.value and frame.value[0] == low else frame.value
        frame.typed = None if frame.typed and frame.typed[0] == low else frame.typed


def _secret_under(
    text: str, high: int, frame: _Frame, previous: str, value: str, find_word: object
) -> str | None:
    """Return the word that makes a string a secret by its position, or None."""
    assert callable(find_word)
    if is_placeholder(value):
        return None
    if frame.is_list:
        if frame.word is not None:
            # A list directly under a secret's key: passwords, cookies.
            is_direct = not frame.owner or find_word(frame.owner) is not None
            is_secret = _fits(frame.word, value) and (is_direct or grade(value) >= WEAK)
            return frame.word if is_secret else None
        return _second_word(text, high, frame, previous, value, find_word)
    key = frame.key
    word: str | None = find_word(key)
    if word is not None:
        if word == "pwd" and value[0] in "/~":
            return None
        if word == "token" and len(value) <= 64 and _TOKEN_CHOICE.match(text, high + 1):
            return None
        return word if is_secret_value(word, value) else None
    if key == "auth" and is_basic(value):
        return "auth"
    if key in ("value", "key") and frame.word is not None and _fits(frame.word, value):
        # Outputs of Terraform: {"db_password": {"value": "x", "type": "string"}}. The value of a
        # design token is a size or a colour, the key in a reference to a secret is a name.
        is_password = key == "value" and frame.word in ("password", "secret", "passphrase")
        least = WEAK if is_password else STRONG
        if grade(value) >= least:
            return frame.word
    doubtful = doubtful_word(key)
    if doubtful and is_doubtful_secret(doubtful, value):
        return doubtful
    lowered = key.lower()
    if lowered == "key" and (frame.owner in _KEY_SECTIONS or frame.has_user):
        return "key" if is_doubtful_secret("api_key", value) else None
    if (frame.owner.endswith("oauth") or frame.word in ("token", "bearer")) and _HOST.fullmatch(
        key
    ):
        return "token" if len(value) >= _TOKEN_MIN and grade(value) == STRONG else None
    if frame.word in CONTAINERS and lowered.strip("$") not in DESCRIBING:
        if describes_secret(key):
            return None
        least = WORD if "cookie" in frame.word else WEAK
        is_likely = grade(value) >= least or is_mixed_letters(value)
        return frame.word if is_likely and _fits(frame.word, value) else None
    return None


def _fits(word: str, value: str) -> bool:
    return is_secret_value(word, value) and len(value) <= SECRET_LENGTH_MAX


def _second_word(
    text: str, high: int, frame: _Frame, previous: str, value: str, find_word: object
) -> str | None:
    """Return the word if a string is the second of a pair: `["authorization", "x"]`."""
    assert callable(find_word)
    if not previous or len(previous) > 64 or previous.startswith("----"):
        return None  # `-----END PRIVATE KEY-----` is not an option
    word: str | None = find_word(previous.lstrip("-"))
    if word is None:
        return None
    if previous.startswith("-"):
        return None if value.startswith("-") else word
    if not is_header(previous) or is_header_name(value):
        return None
    is_pair = frame.item == 2 and text[high + 1 : high + 80].lstrip().startswith("]")
    return word if is_pair or grade(value) >= WEAK else None


def _redact_named(edits: _Edits, frame: _Frame, redactor: Redactor, counts: Counts | None) -> None:
    """Redact the value of `{"name": "API_KEY", "value": "x"}`, in either order.

    Also what is typed into a field: `{"element": "Password field", "text": "x"}`."""
    found = frame.value if frame.named or frame.value else frame.typed
    frame.value = frame.typed = None
    name = frame.named or frame.field
    if name is None or found is None or redactor.find_word is None:
        return
    word = redactor.find_word(name)
    low, high, value = found
    if word is None or is_placeholder(value) or not is_secret_value(word, value):
        return
    if frame.named is None and (word not in _PASSWORDS or " " in value or grade(value) < WEAK):
        return
    new = mask(value)
    if new != value:
        redactor.count(counts, f"key:{word}")
        edits.put(low, high, _encoded(edits.text[low:high], value, redactor.shaped(new, None)))


def _redact_web_key(
    edits: _Edits, frame: _Frame, redactor: Redactor, counts: Counts | None
) -> None:
    """Redact the private members of a JSON Web Key (RFC 7517)."""
    if not frame.is_jwk or redactor.find_word is None:
        return
    edited = {low for low, _, _ in edits.found}
    for low, high, value in frame.private:
        new = mask(value)
        if low not in edited and new != value and not is_placeholder(value):
            redactor.count(counts, "key:jwk")
            edits.put(low, high, _encoded(edits.text[low:high], value, new))


def _redact_command(
    edits: _Edits, frame: _Frame, redactor: Redactor, counts: Counts | None
) -> None:
    """Redact a list that is a command line, `["curl", "-u", "me:x"]`, or the lines of a text."""
    strings, frame.strings = frame.strings, []
    values = [value for _, _, value in strings]
    if len(strings) < 2:
        return
    if any(value.startswith("-") and not value.startswith("----") for value in values):
        redacted = redactor.command(values, counts)
    elif any(sign in value for value in values for sign in _LINE_SIGNS):
        redacted = redactor.lines(values, counts)
    else:
        return
    edited = {low for low, _, _ in edits.found}
    for (low, high, value), new in zip(strings, redacted, strict=True):
        if new != value and low not in edited:
            edits.put(low, high, _encoded(edits.text[low:high], value, new))


def _redact_number(
    edits: _Edits, token: re.Match[str], frame: _Frame, redactor: Redactor, counts: Counts | None
) -> None:
    scalar = token["scalar"]
    frame.item += 1
    frame.previous = ""
    if frame.is_list or redactor.find_word is None or not scalar.lstrip("-").isdigit():
        return
    word = redactor.find_word(frame.key)
    if word is not None and masks_numbers(word):
        redactor.count(counts, f"key:{word}")
        edits.put(*token.span("scalar"), f'"{MARK}"')


def _decoded(raw: str) -> str:
    if "\\" not in raw:
        return raw
    try:
        return str(json.loads(f'"{raw}"', strict=False))
    except ValueError:
        return raw


def _encoded(raw: str, value: str, new: str) -> str:
    """Return the new content of a string, with the same escapes as the old content."""
    for ascii_only in (False, True):
        for slash in ("/", "\\/"):
            if _spelled(value, ascii_only, slash) == raw:
                return _spelled(new, ascii_only, slash)
    return _spelled(new, True, "/")


_MARK_ESCAPED: Final = json.dumps(MARK)[1:-1]


def _spelled(value: str, ascii_only: bool, slash: str) -> str:
    text = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
    text = text.replace(_MARK_ESCAPED, MARK)  # readers look for the mark itself
    return text if slash == "/" else text.replace("/", slash)
