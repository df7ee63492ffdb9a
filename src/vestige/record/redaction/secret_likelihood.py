r"""Grade a value: how much it looks like a secret.

Whether the value of a secret's key is a secret depends on the value and its context:
`password = hunter` is a password in a configuration file and a variable in source code.

    grade("encrypted_token")      CODE     an identifier, a dotted name, a call
    grade("hunter")               WORD     a word, or several
    grade("hunter2")              WEAK     a word and a number, as people choose passwords
    grade("Tr0ub4dor&3")          STRONG   random characters

The grade that each context requires is in key_value_secrets.py.
"""

from __future__ import annotations

from functools import cache
from itertools import islice, pairwise
from typing import Final

from vestige._runtime.re_compat import re

CODE: Final = 0
WORD: Final = 1
WEAK: Final = 2
STRONG: Final = 3


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    # Not at import: most processes never grade a value.
    return re.compile(expression)


_VENDOR: Final = (
    r"(?:sk|pk|rk|hf|gh[pos]|xox[abp]|tvly|gsk|pplx)[-_]"
    r"(?:(?:ant|proj|or|v1|api03|live|test|jwt|pat)[-_]){0,3}"
)
"""The beginning of a vendor's keys: `sk-`, `hf_`, `sk-ant-`."""
_SAMPLE: Final = "secret|token|test|fake|dummy|example|sample|mock|demo|your|my|api|key|here"

_PLACEHOLDER: Final = (
    r"(?i:none|null|nil|true|false|yes|no|on|off|undefined|\*+|\.{2,}|…|x{3,}|-+|_+"
    r"|\[?_*redacted_*\]?|n/a"
    r"|\[?filtered\]?|\.[a-z_]{6,}|(?:os\.)?environ/\w+"
    r"|(?:none|null|true|false)[.]|(?:bearer|basic|token)(?:%20|\+)"
    rf"|(?:{_VENDOR}|[a-z]{{0,5}})(?:\.{{3}}|…|\*{{3,}})|[\w-]{{0,4}}\*{{4,}}[\w-]{{0,4}}"
    rf"|\*{{3,}}[a-z]+\*{{3,}}|[0-9a-f]{{0,2}}x{{6,}}|{_VENDOR}x{{6,16}}"
    rf"|{_VENDOR}(?:[a-z0-9]{{1,4}}|(?:(?:{_SAMPLE})[-_]?){{1,5}}[0-9]{{0,4}})"
    r"|[0-9]{4}[-.][0-9]{2}[-.][0-9]{2}T[0-9:.]{5,18}Z?|[\w-]{0,8}\$\([^()]{1,80}\)"
    r"|(?:[<>]=?|[~^])?[0-9]{1,3}\.[0-9]{1,4}\.[0-9]{1,6}"
    r"|(?:[0-9]{1,7}\.){3,}[0-9]{1,7}|\+ ?[a-z_$][\w$.()]{0,80} ?\+"
    r"|0x[0-9a-f]{1,8}|__[a-z_]{1,40}__|eyJ[\w-]{0,24}\.{3,}|(?-i:[A-Z]{3,}(?:\.[A-Z]{3,}){2})"
    r"|(?:my[-_])?(?:fake|dummy|mock|sample|example|placeholder)[-_][a-z_-]{0,40}"
    r"|(?:insert|enter|put|replace|change)[-_ ](?:me|with|your|the|in|it)\b.{0,60}|your[-_ ].{0,60}"
    r"|base64[a-z]{0,12}={0,3}|my[-_]key/?"
    r"|(?:my|your)(?:token|api_?key|secret|password)[0-9]?|my[-_ ](?:api[-_ ]?key|secret|token"
    r"|password)|(?:env|vault|op|ssm|secretsmanager|sops|keyring|fileb?)://?\S*"
    r"|arn:aws[a-z-]*:\S*|\[[a-z][a-z _-]{0,40}\]|#[0-9a-f]{3,8}|![01])"
    r"|(?-i:[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_(?:KEY|TOKEN|SECRET|PASSWORD|PASS|PAT|CREDENTIALS?))"
    r"|\$\{[^}]*\}|\$\{\{.*\}\}|\$\([^)]*\)|\$[A-Za-z_]\w*|%[A-Z_]\w*%|#\{[^}]*\}|@@?\w+@@?"
    r"|\{\{?(?![0-9a-f]{32})[^{}]{0,80}\}?\}|\{\{[^{}]{0,400}\}\}|<%?[^<>]{0,80}>|%\(?\w*\)?"
    r"[sdr]|`[^`]*`|:\w+"
)
_INTERPOLATION: Final = (
    r"\$\([^()\s][^()]{0,80}\)|\{\}|\$?\{[A-Za-z_$][^{}\s]{0,80}\}|\$\{\{[^{}]{0,80}\}\}"
    r"|\$[A-Z_]{3,}|%(?:\(\w+\))?[srdxi]"
)

_SCHEME: Final = (
    r"(?i:bearer|basic|token|digest|apikey|api-key|key|negotiate|bot|ssws|geniekey|oauth"
    r"|splunk)(?:[ \t]+|%20|\+)"
)


def is_placeholder(value: str) -> bool:
    """Return whether a value is a placeholder: empty, `${NAME}`, `<token>`, `****`, `sk-...`.

    A version (`^9.0.3`), a time, and a few characters without letters and digits count too."""
    if not value or value.isspace() or (len(value) < 4 and not any(map(str.isalnum, value))):
        return True
    if _compiled(_PLACEHOLDER).fullmatch(value) is not None:
        return True
    scheme = _compiled(_SCHEME).match(value)
    return scheme is not None and _compiled(_PLACEHOLDER).fullmatch(value, scheme.end()) is not None


_SIGNS: Final = ":/-_.$\\\"'|,; "
"""Signs between the parts of a template."""


def is_template(value: str) -> bool:
    """Return whether a value is a template: `Bearer {token}`, `{id}-auth-token`."""
    found = _compiled(_INTERPOLATION).search(value)
    if found is None:
        return False
    rest = _compiled(_INTERPOLATION).sub("", value).removeprefix("0x").strip(_SIGNS)
    return grade(rest) < WEAK if rest else True


_EXPRESSION: Final = (
    r"[&*!]?[A-Za-z_$][\w$]*(?:(?:\.|::|->|\?\.)#?[A-Za-z_$][\w$]*)+[!?]?"  # a dotted name
    r"|[&*!]?[A-Za-z_$][\w$.:?]*[(\[{].*"  # a call, a subscript, a generic type
    r"|[A-Za-z_$][\w$.]*(?:\|\||&&).*"  # `a||b`
    r"|[A-Za-z_$][\w$.?]*\?\?.*"  # the default of JavaScript: `a?.b ?? null`
    r"|\$[A-Za-z_]\w*.*|[\[({].*|[A-Za-z_][\w.]*<.*|(?:null|undefined|string|number|None)\|.*"
)
_IDENTIFIER: Final = r"[A-Za-z_$][\w$]*"
_PIECE: Final = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+"
_DIGIT_INSIDE: Final = r"[A-Za-z][0-9]+[A-Za-z]"
_CLASS_NAME: Final = (
    r"(?:V[0-9]{1,2}(?:alpha|beta)?[0-9]?)?(?:[A-Z][a-z]{3,}[0-9]?){2,}"  # V1SecretReference
)
_KNOWN_NUMBERED: Final = (
    r"(?i)(?:sha|md|utf|base|oauth|http|ipv|v|x|s|ec|k|es|rs|hs|ps|p|i|u|int|uint|float|aes|rsa"
    r"|ed|log|id)"
    r"-?[0-9]{1,4}"
)


def grade(value: str) -> int:
    """Return how much a value looks like a secret."""
    value = value.strip()
    if not value.isascii():
        return WORD if value.replace(" ", "").isalpha() else STRONG
    if " " in value or "\t" in value:
        return max((grade(each) for each in value.split()[:8]), default=WORD) and _prose(value)
    if _compiled(_EXPRESSION).fullmatch(value):
        return STRONG if _ends_in_random_part(value) else CODE
    if _compiled(_CLASS_NAME).fullmatch(value):
        return CODE
    if _compiled(_IDENTIFIER).fullmatch(value):
        return STRONG if len(value) >= 12 and _is_mixed(value) else _grade_identifier(value)
    if len(value) >= 20 and _is_mixed(value):
        return STRONG
    pieces = _compiled(r"[-_./:,;@+=~]+").split(value)
    if all(piece.isalpha() or not piece for piece in pieces):
        # Words joined by dashes, slashes, dots: a name, a path, a passphrase.
        letters = max((_grade_letters(piece) for piece in pieces if piece), default=WORD)
        return STRONG if any(map(is_mixed_letters, pieces)) else letters
    if value.replace(".", "").replace("-", "").replace(":", "").isdigit():
        return WEAK
    grades = [_grade_identifier(piece) for piece in pieces if piece and not piece.isdigit()]
    if "".join(pieces).isalnum() and max(grades, default=WORD) < STRONG:
        return WEAK if any(piece.isdigit() for piece in pieces) else max(WORD, *grades)
    return STRONG if len(value) >= 6 else WEAK


def _ends_in_random_part(value: str) -> bool:
    """Return whether the second of two parts is random: `a1b2c3.qkp08xf...`."""
    first, _, last = value.partition(".")
    if not (first.isalnum() and last.isalnum() and len(last) >= 14 and not last.isalpha()):
        return False
    digits = sum(character.isdigit() for character in last)
    return digits >= 3 and (_is_mixed(last) or last.islower())


def _is_mixed(value: str) -> bool:
    """Return whether lower case, upper case and digits alternate as in base64."""
    changes = len(_compiled(r"[a-z]+|[A-Z]+|[0-9]+").findall(value))
    share = 0.4 if len(value) >= 20 else 0.65  # a short name changes often: s3Bucket2Key
    return changes >= share * len(value) and _compiled("[0-9]").search(value) is not None


_COMMON_PAIRS: Final = _set(
    "aa ab ac ad ag ai al am an ap ar as at ba bl ca ce ch ck cl co cr ct da de di do ds ea ec ed "
    "ee ef el em en ep er es et ev ex ff fi fo ge ha he hi ho ia ic id ie ig il im in io ip ir is "
    "it iv iz ke la le li ll lo ls lt ly ma me mi mo mp na nc nd ne nf ng ni no ns nt oc od ol om "
    "on oo op or os ot ou ow pa pe pi pl po pr pt ra rc re ri rm ro rr rs rt sc se sh si so sp ss "
    "st su ta tc te th ti to tr ts tt tu ty ub ul um un up ur us ut va ve wi xt ze"
)
"""The 150 most frequent pairs of letters in words: four of five pairs of a name are among them,
and one of five of random letters."""
_MIXED_MIN: Final = 8
_NAME_MAX: Final = 14
"""Letters of a name like `newDbCfgPass`. Of longer texts the changes of case say enough."""


def is_mixed_letters(value: str) -> bool:
    """Return whether letters change between upper and lower case as in a random text.

    Names in camel case consist of words, which have common pairs of letters."""
    parts = _compiled(_PIECE).findall(value) if value.isalpha() and value.isascii() else []
    if len(value) < _MIXED_MIN or len(parts) < 3 or len(value) > 4 * len(parts):
        return False
    if len(value) >= _NAME_MAX:
        return True
    lowered = value.lower()
    common = sum(first + second in _COMMON_PAIRS for first, second in pairwise(lowered))
    return common <= 0.35 * (len(value) - 1)


def is_password_like(value: str) -> bool:
    """Return whether a value is a word with a number, or random characters."""
    return grade(value) >= WEAK or is_mixed_letters(value)


def _prose(value: str) -> int:
    """Grade several words: a sentence, or a passphrase with a random word."""
    words = value.split()
    if len(words) == 2 and _compiled(_SCHEME).match(value):
        return grade(words[1])
    random = sum(grade(word) == STRONG for word in words)
    return STRONG if random and len(words) <= 4 else WORD


def _grade_identifier(value: str) -> int:
    plain = value.strip("_$")
    if not plain:
        return CODE
    if plain.isalpha():
        if plain.islower() or plain.isupper() or plain.istitle():
            return _grade_letters(plain)
        parts = _compiled(_PIECE).findall(plain)
        # Upper and lower case mixed as in base64: parts of two letters, or without vowels.
        if len(plain) >= 10 and len(parts) * (3 if len(plain) >= 16 else 2.5) > len(plain):
            return STRONG
        if len(plain) >= 12 and not all(part.isupper() or _is_wordlike(part) for part in parts):
            return STRONG
        return CODE
    if not any(character.isdigit() for character in plain):
        parts = [part for part in plain.split("_") if part]
        return CODE if all(map(_is_wordlike, parts)) or len(plain) < 20 else STRONG
    if plain.isdigit():
        return WEAK
    return _grade_numbered(plain)


def _grade_numbered(plain: str) -> int:
    """Grade letters and digits: `hunter2`, `aes256_key`, `8f7a6b5c4d3e`."""
    if _compiled(_KNOWN_NUMBERED).fullmatch(plain):
        return CODE
    parts = [part for part in plain.split("_") if part]
    inside = any(
        _compiled(_DIGIT_INSIDE).search(part) and not _compiled(_KNOWN_NUMBERED).match(part)
        for part in parts
    )
    if inside and len(plain) >= 6:
        words = [part for part in _compiled(_PIECE).findall(plain) if part.isalpha()]
        if len(words) <= 3 and all(len(word) >= 4 and _is_wordlike(word) for word in words):
            return WEAK if len(parts) == 1 else CODE  # `oauth2client`, `s3Bucket2Key`
        return STRONG
    if len(parts) > 1:
        return CODE if all(_is_plain_part(part) for part in parts) else STRONG
    digits = sum(character.isdigit() for character in plain)
    if plain[0].isdigit() or digits >= 4 or len(plain) >= 20:
        return STRONG if len(plain) >= 8 else WEAK
    return WEAK if len(plain) >= 5 else CODE


def _is_plain_part(part: str) -> bool:
    letters = part.rstrip("0123456789")
    return (letters.isalpha() and _is_wordlike(letters)) or (part.isdigit() and len(part) <= 4)


def _grade_letters(value: str) -> int:
    return WORD if _is_wordlike(value) or len(value) < 12 else STRONG


def _is_wordlike(value: str) -> bool:
    """Return whether letters may be a word: enough vowels, no long run of consonants."""
    if len(value) <= 4:
        return True
    lowered = value.lower()
    vowels = sum(letter in "aeiouy" for letter in lowered)
    return vowels * 6 >= len(lowered) and _compiled("[^aeiouy]{6}").search(lowered) is None


_WORD_NAMES: Final = _set(
    "test tests testing fake dummy example examples sample mock my your some any the a an key "
    "keys api "
    "token tokens secret secrets password passwd pass user username name here value string foo "
    "bar baz "
    "custom default placeholder change changeme me insert replace invalid wrong bad good valid "
    "new old "
    "access auth refresh client server service account private public session cookie id basic "
    "bearer "
    "not needed required none empty unused local dev development hello world demo stub"
)


def is_example(value: str) -> bool:
    """Return whether a value consists of words of documentation and tests: `test-api-key`."""
    words = [word.lower() for word in _compiled(r"[A-Za-z]+").findall(value)]
    return bool(words) and all(word in _WORD_NAMES for word in words) and len(value) <= 48


# --- source code ---------------------------------------------------------------------------

_LINE = r"(?:^|\n|\\n)[ \t]*"
_CODE_MARKS: Final = (
    rf"{_LINE}(?:def |class \w+[:({{]|import [\w{{*]|from [\w.]+ import|async def|return\b|if "
    rf".{{1,80}}:\s*$"
    r"|for \w+.{0,40} in |while |elif |else:|try:|except\b|raise |assert |@\w+[\n(]|const |let "
    r"|var |function\b"
    r"|export (?:default|const|function|class|type|interface)|(?:public|private|protected|static) "
    r"\w+"
    r"|fn \w|pub |impl |func |package \w|\#include|\#define|\#ifn?def|struct |typedef |namespace "
    r"|using \w|>>> |\"\"\"|///? )"
    r"|=>\s{0,2}[{(\w]|\bself\.|\bthis\.|\) ?\{|\);|\)\:|\)\s?->|===|!==|function ?\(|&&|\|\|"
    r"|\"\"\"|: (?:str|int|bool|Any)\b"
    r"|\.\.\. |\breturn |\.[a-z]\w*\("
)
_AROUND = 1200
_MARKS_MIN = 4


def is_code_around(text: str, offset: int) -> bool:
    """Return whether the text around an offset has several signs of source code."""
    window = text[max(0, offset - _AROUND) : offset + _AROUND]
    marks = islice(_compiled(_CODE_MARKS).finditer(window), _MARKS_MIN)
    return sum(1 for _ in marks) == _MARKS_MIN
