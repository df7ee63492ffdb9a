"""Find secrets in any text by their shape.

Each rule has a name (reports count by it), the literals without which it cannot
match (a text without them is not searched), and an expression. Its group `secret`
is masked; the text around that group stays.

Every expression takes linear time: a repetition either cannot fail after it
began, or starts only where the previous one ended, or has a small upper limit.
Tests run each rule on a megabyte of adversarial text.

The table of providers is in shapes/service_key_patterns.py; secrets with a known key are found by
key_value_secrets.py. secret_scanner.py searches journal lines for the literals of all rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige._runtime.re_compat import re
from vestige.limits import SECRET_LENGTH_MAX
from vestige.record.redaction.keyed.secrets_in_commands import COMMAND_MARKERS, COMMANDS, MNEMONIC
from vestige.record.redaction.masking import mask_escaped
from vestige.record.redaction.secret_likelihood import (
    STRONG,
    WEAK,
    grade,
    is_code_around,
    is_example,
    is_password_like,
    is_placeholder,
    is_template,
)
from vestige.record.redaction.shapes.model_key_patterns import START
from vestige.record.redaction.shapes.prefixed_key_patterns import PREFIXED, prefixed_rows
from vestige.record.redaction.shapes.service_key_patterns import PROVIDERS

if TYPE_CHECKING:
    from vestige.record.redaction.scan_engines import LiteralSearch


class Hit(msgspec.Struct, frozen=True, gc=False):
    """A secret in a text."""

    start: int
    """The start of the key or scheme before it. A text must not be split between the two."""
    low: int
    high: int
    """The secret itself is `text[low:high]`."""
    new: str | None
    """The replacement. None: the value is harmless."""
    rule: str


class Rule(msgspec.Struct, frozen=True, gc=False):
    name: str
    hints: tuple[str, ...]
    """Every match contains one of these, also when the text is written as JSON. Without hints, the
    rule searches every text, and the scanner searches every line for the marker."""
    expression: str
    """Compiled when a text has a hint: most programs need few, and importing must be fast."""
    marker: str | None = None
    """For the scanner: an expression on encoded bytes in every match. None: use the hints."""
    check: Callable[[re.Match[str]], bool] | None = None
    """A function that decides whether a match is a secret, if the expression cannot."""
    common: str = ""
    """For a rule without hints: a literal of the marker, which is in most lines."""

    def find(self, text: str) -> Iterator[Hit]:
        """Yield the rule's hits in a text that has one of its hints."""
        for match in _compiled(self.expression).finditer(text):
            low, high = match.span("secret")
            secret = text[low:high]
            masked = mask_escaped(secret)
            if masked == secret or is_placeholder(secret):
                continue
            if self.check is None or self.check(match):
                yield Hit(match.start(), low, high, masked, self.name)


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    # ASCII: \w and \s must mean the same here as on the scanner's bytes.
    return re.compile(expression, re.ASCII)


_GAP = r"(?:\s|\\+[nrt]|\\(?=\s)|[\"'+,|>#*]|\\+[\"'])"
_CHUNK = r"[A-Za-z0-9+/=]"
_BASE64_LINES = (
    # Headers (Proc-Type, Version), then lines of base64 until something else follows.
    rf"(?:{_GAP}{{0,32}}[A-Z][A-Za-z-]{{1,32}}: [^\n\\]{{1,128}})*+"
    rf"{_GAP}{{0,32}}+{_CHUNK}{{16,{SECRET_LENGTH_MAX}}}+"
    rf"(?:{_GAP}{{1,32}}+{_CHUNK}{{16,{SECRET_LENGTH_MAX}}}+)*+"
    rf"(?:{_GAP}{{1,32}}+{_CHUNK}{{1,15}}+(?![A-Za-z0-9_]))?+"
)
_PEM_BEGIN = (
    r"-----BEGIN[A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----|---- BEGIN SSH2 ENCRYPTED PRIVATE KEY "
    r"----"
    r"|-----BEGIN OpenVPN Static key V1-----"
)
_PEM = (
    rf"(?P<secret>(?:{_PEM_BEGIN}){_BASE64_LINES}"
    rf"(?:{_GAP}{{0,32}}+----[- ]END[^-\n]{{0,48}}----[- ]?)?)"
)
_PUTTY = (
    r"Private-Lines: [0-9]{1,4}(?:\r?\n|\\+r\\+n|\\+n)"
    rf"(?P<secret>{_CHUNK}{{16,128}}(?:(?:\r?\n|\\+r\\+n|\\+n){_CHUNK}{{4,128}}(?![\w-]))*+)"
)

# A word after "Basic" or "Bearer" is a secret only if it does not look like a word.
_LOOKS_ENCODED = r"(?=[A-Za-z._~+/=-]{0,64}(?:[0-9=]|(?<=[a-z])[A-Z])|[\w.~+/=-]{32})"

_URL_MARKER = r':(?://|\\+/\\*/|/\\+/)[^\s/"]*@'


def _is_credential(match: re.Match[str]) -> bool:
    """Return whether the text after `Bearer` or `Basic` is a credential, not a name in code."""
    secret = match["secret"]
    if match[0][:5].lower() == "basic" and (len(secret) < 12 or "." in secret or "-" in secret):
        return len(secret) % 4 == 0 and grade(secret) == STRONG and "." not in secret
    return grade(secret) >= WEAK and not is_template(secret) and not is_example(secret)


_URL_MARKS = frozenset(("x-oauth-basic",))
"""Passwords that say that the user's name is the secret."""
_URL_WORDS = frozenset(("tiger", "pass", "password", "passwd", "pwd", "pw", "secret", "mypassword"))
_URL_USERS = frozenset(
    ("scott", "user", "username", "usr", "name", "u", "foo", "login", "me", "joe")
)


def _is_url_password(match: re.Match[str]) -> bool:
    """Return whether a URL's password is real, unlike `user:pass@host` in documentation."""
    secret, user = match["secret"], match["user"]
    if secret in _URL_MARKS or (secret.endswith("]") and secret.rstrip("]") in _URL_WORDS):
        return False  # `ftp://[user[:pass]]@host`
    if is_template(secret) or (secret.lower() in _URL_WORDS and user.lower() in _URL_USERS):
        return False
    if grade(secret) < WEAK and (is_example(secret) or len(secret) < 4):
        return not is_code_around(match.string, match.start())
    return True


def is_sql_password(match: re.Match[str]) -> bool:
    """Return whether `identified by "x"` is a statement of SQL, and not an English sentence."""
    words = match.group().split(None, 2)
    if words[0] == "IDENTIFIED":
        return True
    before = match.string[max(0, match.start() - 400) : match.start()]
    return re.search(r"(?i)\b(?:create|alter)\s+user\b|\bgrant\s", before) is not None


def is_basic(secret: str) -> bool:
    """Return whether a text is the base64 of `user:password`, as in Docker's `auth`."""
    import base64

    try:
        return b":" in base64.b64decode(secret + "=" * (-len(secret) % 4), validate=True)
    except ValueError:
        return False


_ORDERS = (
    r"(?i)(?:order|invoice|item|product|ticket|article|sku|number|nr|no|ref|batch|serial)\W{0,3}\Z"
)


def _is_no_order(match: re.Match[str]) -> bool:
    """Return whether SK and 32 digits are a key, not an order number."""
    before = match.string[max(0, match.start() - 16) : match.start()]
    return re.search(_ORDERS, before) is None


def _is_graded(match: re.Match[str]) -> bool:
    return grade(match["secret"]) >= WEAK


def _is_strong(match: re.Match[str]) -> bool:
    return grade(match["secret"]) == STRONG and not is_template(match["secret"])


def _is_random(match: re.Match[str]) -> bool:
    """Return whether the longest part of a key is random: not a word, and not one letter."""
    longest = max(re.split(r"[^A-Za-z0-9]+", match["secret"]), key=len)
    is_mixed = any(map(str.isdigit, longest)) and any(map(str.isalpha, longest))
    return is_mixed and grade(longest) == STRONG and not is_template(match["secret"])


def _is_password(match: re.Match[str]) -> bool:
    secret = match["secret"]
    if is_template(secret) or is_example(secret):
        return False
    return is_password_like(secret)


def _is_chosen(match: re.Match[str]) -> bool:
    """Return whether a value in source code is random, or a password that a person chose."""
    secret = match["secret"]
    if is_template(secret) or is_example(secret):
        return False
    chosen = r"(?=.{10})(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])"
    return grade(secret) >= (WEAK if re.match(chosen, secret) else STRONG)


_CODE_CONTEXTS: Final = ("call-argument", "url-key")
"""Rules of commands whose context is common in source code."""

_QUOTE = r"""\\*["']"""

_SHORTENED: Final = (
    *("sk-", "sk_live_", "rk_live_", "gho_", "ghp_", "ghs_", "ghu_", "ghr_", "github_pat_"),
    *("glpat-", "xoxa-", "xoxb-", "xoxe-", "xoxp-", "AIza", "hf_", "gsk_", "npm_", "pypi-", "eyJ"),
)
"""Beginnings of keys that test runners shorten in the middle: `sk-ant-api03...9Zz9Zz9`."""

_TEXTUAL: Final = (
    Rule("private-key", ("PRIVATE KEY", "Static key V1"), _PEM),
    Rule("putty-key", ("Private-Lines: ",), _PUTTY),
    Rule(
        "shortened-key",
        _SHORTENED,
        START + r"(?P<secret>(?:sk-|sk_live_|rk_live_|gh[opsur]_|github_pat_|glpat-|xox[abep]-|AIza"
        r"|hf_|gsk_|npm_|pypi-|eyJ)[\w-]{0,80}\.{3}[\w-]{6,80})",
        r"(?:sk-|_live_|gh[opsur]_|_pat_|glpat-|xox[abep]-|AIza|hf_|gsk_|npm_|pypi-|eyJ)"
        r"[\w-]{0,80}\.{3}[\w-]{6}",
        lambda match: any(each.isdigit() for each in match["secret"].rpartition(".")[2]),
    ),
    Rule(
        "bearer",
        ("earer", "EARER", "asic", "ASIC"),
        (
            rf"(?i:\b|(?<=\\[bfnrt]))(?i:bearer|basic)(?:[ \t]{{1,4}}|%20|\+){_LOOKS_ENCODED}"
            r"(?P<secret>[A-Za-z0-9._~+/=-]{8,})"
        ),
        r"(?i)(?:bearer|basic)(?:[ +]|\\t|%20){1,4}[\w.~+/=-]{8}",
        _is_credential,
    ),
    Rule(
        "jwt",
        ("eyJ",),
        START.replace("A-Za-z0-9]", r"\w-]", 1)
        + r"(?P<secret>eyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+){1,3})",
        r"eyJ[\w-]{8}",
    ),
    Rule(
        "url-password",
        ("//", "\\/"),
        r""":(?:\\*/){2}(?P<user>[^\s:/?#@"'\\<>]*+):(?P<secret>[^\s/?"'\\<>]+)@(?=[\w\[{$%.-])""",
        _URL_MARKER,
        _is_url_password,
    ),
    Rule(
        "url-user",
        ("//", "\\/"),
        r"(?<!ssh):(?:\\*/){2}(?P<secret>[\w-]{20,}+)@(?=[\w\[])",
        _URL_MARKER,
        _is_graded,
    ),
    Rule(
        "dsn-password",
        ("@tcp(", "@unix("),
        r""":(?P<secret>[^\s:@/"'\\]{1,256})@(?:tcp|unix)\(""",
    ),
    Rule(
        "signature",
        ("sig=", "ignature=", "ignature\\u003d", "sig%3D", "sig%3d"),
        (
            r"(?:[?&;]|u0026|%26)(?:sig|[Ss]ignature|X-(?:Amz|Goog)-Signature)(?:=|%3[Dd]|\\u003d)"
            r"(?P<secret>[\w%+/=.~-]{16,})"
        ),
    ),
    Rule(
        "discord",
        (),
        r"(?<![\w.-])(?P<secret>[MNO][\w-]{22,28}\.[\w-]{6}\.[\w-]{27,45})(?![\w.-])",
        r"\.[\w-]{6}\.[\w-]{27}",
        lambda match: any(each.isdigit() for each in match["secret"]),
        ".",
    ),
    Rule(
        "password-hash",
        (
            "$apr1$",
            "$2a$",
            "$2b$",
            "$2y$",
            "$6$",
            "$5$",
            "$1$",
            "$y$",
            "$argon2",
            "$7$",
            "$scrypt$",
        ),
        r"(?P<secret>\$(?:apr1|2[aby]|[1567y]|argon2i?d?|scrypt)\$[\w./$=,+-]{20,})",
    ),
    Rule(
        "pgpass",
        (":5432:", ":5433:", ":6432:", ":3306:", ":*:"),
        r"(?m)(?:^|(?<=\\n)|(?<=[\"' ]))[\w.*-]{1,253}:(?:5432|5433|6432|3306"
        r"|\*):[\w*.-]{1,64}:[\w*.-]{1,64}:"
        r"(?P<secret>[^\s:\"'\\]{4,128})(?=$|\s|\\|[\"'])",
        None,
        _is_password,
    ),
    Rule(
        "curl-user",
        (" -u", "--user", "--proxy-user", "-U", "-creds "),
        rf"(?<![\w-])(?:-u|-U|--user|--proxy-user|--(?:src-|dest-)?creds)(?:[ \t]{{1,4}}|=)?"
        rf"(?:{_QUOTE})?[\w.@+%-]{{1,128}}:"
        r"(?P<secret>[^\s\"'\\]{1,256})",
        r"(?:-u|-U|user|-creds)[ \t=]{0,4}[\\\"']{0,8}[\w.@+%-]{1,64}:[^\s\"'\\/]",
        lambda match: match["secret"][:1] != "$" and not match["secret"].isdigit(),
    ),
    Rule(
        "cli-password",
        (
            "sshpass",
            *("mysql ", "mysqldump ", "mysqladmin ", "mariadb ", "redis-cli ", " login "),
            *(
                "ldapsearch ",
                "ldapmodify ",
                "ldapadd ",
                "ldapdelete ",
                "ldappasswd ",
                "ldapwhoami ",
            ),
            *("mongo ", "mongosh ", "mongodump ", "mongorestore ", "mongoimport ", "mongoexport "),
        ),
        rf"\b(?:sshpass[ \t]{{1,4}}-p|(?:mysql|mysqldump|mysqladmin|mariadb)\b[^\n"
        rf"|;&\\]{{0,120}}?[ \t]-p(?=\S)"
        rf"|redis-cli\b[^\n|;&\\]{{0,80}}?[ \t](?:-a|--pass)[ \t]{{1,4}}"
        rf"|ldap(?:search|modify|add|delete|passwd|whoami)\b[^\n|;&\\]{{0,160}}?[ \t]-w[ \t]{{0,4}}"
        rf"|(?:docker|podman|nerdctl|skopeo|oras|helm registry)[ \t]{{1,4}}login\b"
        rf"[^\n|;&\\]{{0,120}}?[ \t]-p[ \t]{{0,4}}"
        rf"|mongo(?:sh|dump|restore|import|export)?\b[^\n|;&\\]{{0,120}}?[ \t]-p[ \t]{{1,4}})"
        rf"[ \t]{{0,4}}(?:{_QUOTE})?(?P<secret>[^\s\"'\\-][^\s\"'\\]{{2,128}})",
        None,
        lambda match: (
            match["secret"][:1] not in "$<{" and not match["secret"].startswith("assword")
        ),
    ),
    Rule(
        "cli-secret",
        ("az login ", "openssl ", "http -a ", "https -a ", "snmp-server community "),
        r"\b(?:az[ \t]{1,4}login\b[^\n|;&\\]{0,160}?[ \t]-p[ \t]{1,4}"
        r"|openssl[ \t]{1,4}[a-z0-9_-]{2,16}\b[^\n|;&\\]{0,120}?[ \t]-[kK][ \t]{1,4}"
        r"|https?[ \t]-a[ \t]{1,4}[\w.@-]{1,64}:"
        r"|snmp-server community[ \t]{1,4})"
        rf"(?:{_QUOTE})?(?P<secret>[^\s\"'\\$<{{-][^\s\"'\\]{{3,128}})",
        None,
        _is_password,
    ),
    Rule(
        "shell-variable",
        ("setenv ", "setx ", "set -", "ENV "),
        r"(?:(?<!\w)|(?<=\\[nrt]))(?:setenv|setx|set -[gUx]{1,3}|ENV)[ \t]{1,4}[A-Z0-9_]{0,60}"
        r"(?:TOKEN|SECRET|PASSWORD|PASSWD|PASS|API_?KEY|ACCESS_KEY|SECRET_KEY"
        r"|PRIVATE_KEY)[ \t]{1,4}"
        rf"(?:{_QUOTE})?(?P<secret>[^\s\"'\\$<{{=-][^\s\"'\\]{{3,512}})",
        r"(?:setenv|setx|set -[gUx]{1,3}|ENV)(?: |\\t){1,4}[A-Z0-9_]{4}",
        _is_password,
    ),
    Rule(
        "bundler",
        ("BUNDLE_",),
        r"\bBUNDLE_[A-Z0-9_]{3,120}[:=][ \t]{0,4}"
        rf"(?:{_QUOTE})?[\w.@+-]{{1,64}}:(?P<secret>[^\s\"'\\/]{{4,128}})",
        None,
        _is_graded,
    ),
    Rule(
        "sql-password",
        ("dentified", "DENTIFIED"),
        rf"(?i:identified[ \t]{{1,4}}(?:with[ \t]{{1,4}}\w{{1,64}}[ \t]{{1,4}})?(?:by|as)(?:[ "
        rf"\t]{{1,4}}password)?)[ \t]{{1,4}}"
        rf"{_QUOTE}(?P<secret>[^\"'\\\n]{{1,256}})",
        None,
        is_sql_password,
    ),
    Rule(
        "docker-auth",
        ("auth",),
        rf"(?:{_QUOTE}auth{_QUOTE}\s{{0,8}}:\s{{0,8}}{_QUOTE}|"
        rf"(?<![\w.])_auth\s{{0,4}}=\s{{0,4}}\"?)(?P<secret>[A-Za-z0-9+/]{{8,4096}}={{0,2}})",
        r"auth[\\\"']{0,8}\s{0,8}[:=]\s{0,8}[\\\"']{0,8}[A-Za-z0-9+/]{8}",
        lambda match: is_basic(match["secret"]),
    ),
    Rule(
        "wp-config",
        ("define(", "define ("),
        r"define ?\(\s{0,4}['\"][A-Z_]{2,40}(?:KEY|SALT)['\"]\s{0,4},\s{0,16}['\"]"
        r"(?P<secret>[^'\n]{16,256})['\"]",
    ),
    Rule(
        "directive",
        ("password ", "passphrase "),
        r"(?m)(?:^|(?<=\\n))[ \t]*(?:password|passphrase)[ \t]{1,8}"
        r"(?P<secret>[^\s\"'\\:=]{4,256})[ \t]*(?=$|\\)",
        None,
        _is_graded,
    ),
    Rule(
        "directive",
        ("requirepass", "masterauth", "bindpw", "bind_pw", "rootpw", "auth_pass"),
        r"(?:(?<![\w.])|(?<=\\[nrt]))(?:requirepass|masterauth|(?:olc)?rootpw|bind_?pw|auth_pass)"
        r"(?:[ \t]--(?:plaintext|iscrypted))?[ \t]{1,8}"
        rf"(?:{_QUOTE})?(?P<secret>[^\s\"'\\:=$<]{{4,256}})",
        None,
        _is_password,
    ),
    Rule(
        "auth-user-pass",
        ("<auth-user-pass>",),
        r"<auth-user-pass>(?:\s|\\[nr])*[^\s\\]{1,128}(?:\s|\\[nr])+(?P<secret>[^\s\\<]{1,128})",
    ),
    Rule(
        "pass-element",
        ("<pass", "<Pass", "<PASS"),
        r"(?i:<pass)(?:\s[^<>]{0,80})?>\s{0,8}(?P<secret>[^<>\s]{4,512})\s{0,8}</",
        r"(?i)<pass[\s>]",
    ),
)


_CHECKS: Final = {
    "twilio": _is_no_order,
    "facebook-app": _is_strong,
    "square": _is_strong,
    "lob": _is_strong,
    "crates": _is_strong,
    "resend": _is_strong,
    "voyage": _is_strong,
    "mem0": _is_strong,
    "brave": _is_strong,
    "dify": _is_strong,
    "composio": _is_strong,
    "modal": _is_strong,
    "gocardless": _is_strong,
    "yandex-static": _is_strong,
    **dict.fromkeys(("predibase", "upstage", "statsig", "mollie"), _is_strong),
    **dict.fromkeys((PREFIXED, "databento", "resend-older", "chromatic", "lambda"), _is_random),
    **dict.fromkeys(("novita", "phabricator", "sanity", "trigger"), _is_strong),
}

_UNHINTED_NAMES: Final = ("vault-legacy",)
"""Rules whose literal is in most lines, so that it cannot be a hint."""


_LITERAL: Final = r"[A-Za-z0-9_-]+(?![*+?{])"


def move_start(expression: str) -> str:
    """Return an expression that matches the same, with its START behind the literal after it.

    An expression that begins with a literal is searched for much faster.
    """
    if not expression.startswith(START):
        return expression
    rest = expression.removeprefix(START)
    found = re.match(_LITERAL, rest)
    if found is None:
        return expression
    # START has one lookbehind in each pair of parentheses: each now spans the literal, too.
    behind = START[:-1].replace(")|(", f"{found[0]})|(")[:-1] + f"{found[0]}))"
    return found[0] + behind + rest[found.end() :]


def _rules() -> Iterator[Rule]:
    yield from _TEXTUAL
    for name, literals, expression in COMMANDS:
        judge = _is_chosen if name in _CODE_CONTEXTS else _is_password
        marker = COMMAND_MARKERS.get(literals[0])
        yield Rule(name, literals, expression, marker, None if name == MNEMONIC else judge)
    for name, hints, expression, *markers in (*PROVIDERS, *prefixed_rows()):
        expression = move_start(expression)
        if "(?P<secret>" not in expression:
            expression = f"(?P<secret>{expression})"
        marker, check = next(iter(markers), None), _CHECKS.get(name)
        if name in _UNHINTED_NAMES:
            yield Rule(name, (), expression, marker, check, hints)
        else:
            yield Rule(name, tuple(hints.replace("||", "|").split()), expression, marker, check)


RULES: Final = tuple(_rules())
"""All rules, in the order in which they are applied."""

_BY_HINT: Final = tuple((hint, rule) for rule in RULES for hint in rule.hints)
_UNHINTED: Final = tuple(rule for rule in RULES if not rule.hints)


LONG_TEXT: Final = 2_048
"""Characters from which one pass for all literals is worth building its database."""


def find_shaped(text: str) -> Iterator[Hit]:
    """Yield every secret in a text that has a known shape."""
    hinted = _find_hinted(text)
    # For a rule without hints, the marker is the faster search.
    unhinted = [rule for rule in _UNHINTED if _compiled(rule.marker or "").search(text)]
    hits = [hit for rule in dict.fromkeys((*hinted, *unhinted)) for hit in rule.find(text)]
    if not hits or len(text) < DATA_MIN:
        yield from hits
        return
    # A picture in base64 has the shape of a key by chance. What it encodes is searched decoded.
    data = [run.span() for run in _DATA.finditer(text) if "+" in run[0] and "/" in run[0]]
    for hit in hits:
        if not any(begin < hit.low < end for begin, end in data):
            yield hit


DATA_MIN: Final = 2_048
"""Characters of base64 without a break that are data, and not a key."""
_DATA: Final = re.compile(rf"[A-Za-z0-9+/]{{{DATA_MIN},}}")


def _find_hinted(text: str) -> list[Rule]:
    """Return the rules that have a hint in a text."""
    return [_BY_HINT[number][1] for number in _hint_search().find(text)]


@cache
def _hint_search() -> LiteralSearch:
    from vestige.record.redaction.scan_engines import LiteralSearch

    return LiteralSearch([hint for hint, _ in _BY_HINT], LONG_TEXT)


_ENCODED_MIN: Final = 4
"""Characters of a literal, and of its base64, that do not occur by chance in every image."""

_ENCODED_STEMS: Final = (
    "password Password PASSWORD passwd secret SECRET token Token TOKEN api_key apikey Authorization"
    " _KEY _key Key PASS pass Pass cookie Cookie AccountKey AccessKey -Signature= eyJhbGciOi auth"
    " https:/ http:// redis:/ mongodb postgres mysql:/ sk-proj sk-svcacct sk-admin secret_id codes"
    ' psk= PWD PW= PAT= pwd pw= curl key: "key'
)
"""Besides the literals of all rules."""

_BEFORE_SHORT: Final = " \"':=\n"
"""Characters that often precede a secret. After them, three characters are enough."""


@cache
def base64_fragments() -> tuple[str, ...]:
    """Return the base64 of the stems of keys and shapes, at each of the three alignments."""
    import base64

    hints = [hint for rule in RULES for hint in rule.hints if len(hint) >= _ENCODED_MIN]
    for rule in RULES:
        short = [hint for hint in rule.hints if len(hint) == _ENCODED_MIN - 1 and "/" not in hint]
        hints += [before + hint for hint in short for before in _BEFORE_SHORT]
    found: list[str] = []
    for stem in dict.fromkeys((*_ENCODED_STEMS.split(), *hints)):
        for shift in (0, 1, 2):
            coded = base64.b64encode(bytes(shift) + stem.encode()).decode()
            complete = (shift + len(stem)) * 8 // 6
            found.append(coded[(shift * 8 + 5) // 6 : complete])
    return tuple(dict.fromkeys(each for each in found if len(each) >= _ENCODED_MIN))


@cache
def base64_search() -> LiteralSearch:
    """Return the search for these fragments."""
    from vestige.record.redaction.scan_engines import LiteralSearch

    return LiteralSearch(base64_fragments(), LONG_TEXT)
