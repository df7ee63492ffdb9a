"""Secrets that are known by their own shape, wherever they stand in a text.

Each rule has a name (reports count by it), the literals without which it cannot
match (a text without them is not searched), and an expression whose group `secret`
is what gets masked; text around that group stays.

Every expression takes linear time: a repetition either cannot fail after it
began, or starts only where the one before it ended, or is bounded by a small
number. Tests feed each rule a megabyte made to hurt it.

Elsewhere: secrets known by the key beside them in record/redaction/key_value_secrets.py; the search of a
whole journal line for any of the literals in record/redaction/secret_scanner.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

import msgspec

from vestige.limits import SECRET_LENGTH_MAX
from vestige.record.redaction.masking import mask_escaped


class Hit(msgspec.Struct, frozen=True, gc=False):
    """A secret in a text."""

    start: int
    """Where what gives it away begins: a key, a scheme. A text must not be cut between."""
    low: int
    high: int
    """The secret itself is `text[low:high]`."""
    new: str | None
    """What stands there instead. None: it was judged to be no secret."""
    rule: str


class Rule(msgspec.Struct, frozen=True, gc=False):
    name: str
    hints: tuple[str, ...]
    """Every match holds one of these; none changes when the text is written as JSON."""
    expression: str
    """Compiled when a hint is first met: most programs meet few, and importing must be quick."""
    trace: str | None = None
    """For the scanner: an expression on encoded bytes that a match always meets. None: the hints."""

    def find(self, text: str) -> Iterator[Hit]:
        """The rule's hits in a text that has one of its hints."""
        for match in _compiled(self.expression).finditer(text):
            low, high = match.span("secret")
            secret = text[low:high]
            masked = mask_escaped(secret)
            if masked != secret and not is_placeholder(secret):
                yield Hit(match.start(), low, high, masked, self.name)


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    # ASCII: \w and \s must mean the same here as on the scanner's bytes.
    return re.compile(expression, re.ASCII)


# A secret may follow an escape that ends in a letter or digit (JSON's \n, %3D, an ANSI colour),
# and must still be seen as beginning there.
_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[bfnrt])|(?<=%[0-9A-Fa-f]{2})|(?<=\\u00[0-9a-f]{2})|(?<=\[\dm)|(?<=\[\d\dm))"


@cache
def _placeholder() -> re.Pattern[str]:
    # Not at import: most processes never ask.
    return re.compile(
        r"(?i:none|null|nil|true|false|undefined|\*+|\.{3}|…|\[?_*redacted_*\]?)|\$\{[^}]*\}|\$\([^)]*\)"
        r"|\{\{?[\w .:!$-]*\}?\}|<[\w .-]*>|%\(?\w*\)?s"
    )


def is_placeholder(value: str) -> bool:
    """Whether a value only stands for a secret: nothing, `${NAME}`, `<token>`, `****`."""
    return not value or value.isspace() or _placeholder().fullmatch(value) is not None


_PROVIDERS: Final = (
    # name, hints, expression. The more exact of two that share a beginning comes first.
    ("anthropic", "sk-ant-", r"sk-ant-[\w-]{8,}"),
    ("openrouter", "sk-or-", r"sk-or-[\w-]{16,}"),
    ("langfuse", "sk-lf-", r"sk-lf-[\w-]{16,}"),
    # The digit keeps CSS names such as sk-fading-circle apart; the bound keeps it linear.
    ("openai", "sk-", _START + r"sk-(?=[\w-]{0,64}[0-9])[\w-]{16,}"),
    ("google", "AIza", r"AIza[\w-]{30,}"),
    ("google-oauth", "ya29. GOCSPX- 1//0", r"(?:ya29\.|GOCSPX-|\b1//0)[\w-]{16,}"),
    ("aws", "AKIA ASIA ABIA ACCA", _START + r"A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("github", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{20,}"),
    ("github", "github_pat_", r"github_pat_\w{20,}"),
    (
        "gitlab",
        "glpat- glptt- gldt- glrt- glcbt- glsoat- glft- glimt- glagent- gloas-",
        r"gl(?:pat|ptt|dt|rt|cbt|soat|ft|imt|agent|oas)-[\w-]{16,}",
    ),
    ("slack", "xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs-", r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("slack", "xoxe.xox xapp-", r"(?:xoxe\.xox[bp]|xapp)-[A-Za-z0-9-]{10,}"),
    ("slack-webhook", "hooks.slack.com/", r"hooks\.slack\.com/\w{1,16}/(?P<secret>[\w/]{16,})"),
    ("stripe", "k_live_ k_test_", r"[sr]k_(?:live|test)_[A-Za-z0-9]{10,}"),
    ("stripe-webhook", "whsec_", r"whsec_[A-Za-z0-9+/=]{16,}"),
    ("huggingface", "hf_", _START + r"hf_[A-Za-z0-9]{20,}"),
    ("groq", "gsk_", r"gsk_[A-Za-z0-9]{20,}"),
    ("xai", "xai-", _START + r"xai-[A-Za-z0-9]{20,}"),
    ("replicate", "r8_", _START + r"r8_[A-Za-z0-9]{20,}"),
    ("perplexity", "pplx-", r"pplx-[A-Za-z0-9]{20,}"),
    ("tavily", "tvly-", r"tvly-[A-Za-z0-9-]{16,}"),
    ("fireworks", "fw_", _START + r"fw_[A-Za-z0-9]{20,}"),
    ("cerebras", "csk-", _START + r"csk-[a-z0-9]{20,}"),
    ("nvidia", "nvapi-", r"nvapi-[\w-]{20,}"),
    ("together", "tgp_v1_", r"tgp_v1_[\w-]{20,}"),
    ("langsmith", "lsv2_", r"lsv2_(?:pt|sk)_\w{20,}"),
    ("logfire", "pylf_v", r"pylf_v\d_\w{16,}"),
    ("pinecone", "pcsk_", r"pcsk_\w{20,}"),
    ("jina", "jina_", r"jina_[A-Za-z0-9]{20,}"),
    ("e2b", "e2b_", _START + r"e2b_[a-f0-9]{32,}"),
    ("firecrawl", "fc-", _START + r"fc-[a-f0-9]{32}"),
    ("elevenlabs", "sk_", _START + r"sk_[a-f0-9]{40,}"),
    ("supabase", "sbp_ sb_secret_", r"(?:sbp_[a-f0-9]{32,}|sb_secret_[\w-]{16,})"),
    ("npm", "npm_", r"npm_[A-Za-z0-9]{30,}"),
    ("pypi", "pypi-A", r"pypi-A[\w-]{30,}"),
    ("sendgrid", "SG.", _START + r"SG\.[\w-]{16,64}\.[\w-]{16,}"),
    ("twilio", "SK", _START + r"SK[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("telegram", ":AA", r"\b[0-9]{8,10}:AA[\w-]{32,}"),
    ("digitalocean", "_v1_", r"do[oprt]_v1_[a-f0-9]{32,}"),
    ("linear", "lin_", r"lin_(?:api|oauth)_[A-Za-z0-9]{20,}"),
    ("notion", "ntn_ secret_", _START + r"(?:ntn_[A-Za-z0-9]{20,}|secret_[A-Za-z0-9]{40,})"),
    ("databricks", "dapi", _START + r"dapi[a-f0-9]{32}(?:-\d)?"),
    ("docker", "dckr_", r"dckr_(?:pat|oat)_[\w-]{20,}"),
    ("vault", "hvs. hvb. hvr.", _START + r"hv[sbr]\.[\w-]{20,}"),
    ("doppler", "dp.", _START + r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.]{30,}"),
    ("atlassian", "ATATT3", r"ATATT3[\w=-]{20,}"),
    ("terraform", ".atlasv1.", r"\.atlasv1\.[\w-]{40,}"),
    ("grafana", "glc_ glsa_", r"gl(?:c|sa)_[\w=+/]{20,}"),
    ("sentry", "sntrys_ sntryu_", r"sntry[su]_[\w=+/]{20,}"),
    ("newrelic", "NRAK-", r"NRAK-[A-Z0-9]{20,}"),
    ("heroku", "HRKU-", r"HRKU-[\w-]{20,}"),
    ("postman", "PMAK-", r"PMAK-[a-f0-9-]{20,}"),
    ("planetscale", "pscale_", r"pscale_(?:tkn|pw|oauth)_[\w.-]{16,}"),
    ("shopify", "shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{20,}"),
    ("vestige", "vstg_", r"vstg_[\w-]{16,}"),
    ("age", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[A-Z0-9]{20,}"),
)

_PEM_GAP = r"(?:\s|\\+[nrt])"
_PEM_BEGIN = r"-----BEGIN[A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
_PEM = (
    rf"(?P<secret>{_PEM_BEGIN}(?:"
    # Whole: everything to END, stopping at another BEGIN, so that no stretch is read twice.
    rf"(?:[^-]|-(?!----(?:BEGIN|END))){{0,{SECRET_LENGTH_MAX}}}+-----END[^-\n]{{0,48}}-----"
    # Torn: headers and lines of base64, as far as they go.
    rf"|(?:{_PEM_GAP}*+[A-Za-z-]{{1,32}}: [^\n\\]{{1,128}})*+"
    rf"(?:{_PEM_GAP}*+[A-Za-z0-9+/=]{{16,{SECRET_LENGTH_MAX}}}+)*+"
    rf"(?:(?<=[A-Za-z0-9+/=]){_PEM_GAP}*+[A-Za-z0-9+/=]++)?))"
)

# A word after "Basic" or "Bearer" is a secret only if it does not look like a word.
_LOOKS_ENCODED = r"(?=[A-Za-z._~+/=-]{0,64}(?:[0-9=]|(?<=[a-z])[A-Z])|[\w.~+/=-]{32})"

_URL_TRACE = r':(?://|\\+/\\*/|/\\+/)[^\s/"]*@'

_TEXTUAL: Final = (
    Rule("private-key", ("PRIVATE KEY",), _PEM),
    Rule(
        "bearer",
        ("earer", "EARER", "asic", "ASIC"),
        (
            rf"(?i:\b|(?<=\\[bfnrt]))(?i:bearer|basic)(?:[ \t]{{1,4}}|%20|\+){_LOOKS_ENCODED}"
            r"(?P<secret>[A-Za-z0-9._~+/=-]{8,})"
        ),
        r"(?i)(?:bearer|basic)(?:[ +]|\\t|%20){1,4}[\w.~+/=-]{8}",
    ),
    Rule(
        "jwt",
        ("eyJ",),
        _START.replace("A-Za-z0-9]", r"\w-]", 1)
        + r"(?P<secret>eyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+){1,3})",
        r"eyJ[\w-]{8,}\.[\w-]{8}",
    ),
    Rule(
        "url-password",
        ("//", "\\/"),
        r""":(?:\\*/){2}[^\s:/?#@"'\\<>]*+:(?P<secret>[^\s/?"'\\<>]+)@(?=[\w\[{$%.-])""",
        _URL_TRACE,
    ),
    Rule(
        "url-user",
        ("//", "\\/"),
        r":(?:\\*/){2}(?P<secret>[\w-]{20,}+)@(?=[\w\[])",
        _URL_TRACE,
    ),
    Rule(
        "dsn-password",
        ("@tcp(", "@unix("),
        r""":(?P<secret>[^\s:@/"'\\]{1,256})@(?:tcp|unix)\(""",
    ),
    Rule(
        "signature",
        ("sig=", "ignature="),
        (
            r"(?:[?&;]|u0026)(?:sig|[Ss]ignature|X-(?:Amz|Goog)-Signature)="
            r"(?P<secret>[\w%+/=.~-]{16,})"
        ),
    ),
)

# One hint per family is enough for the scanner, but short ones would fire on words: these say more.
_TRACES: Final = {
    "openai": r"(?i)sk-[\w-]{16}",
    "elevenlabs": r"(?i)sk_[a-f0-9]{8}",
    "huggingface": r"(?i)hf_[a-z0-9]{8}",
    "replicate": r"(?i)r8_[a-z0-9]{8}",
    "fireworks": r"(?i)fw_[a-z0-9]{8}",
    "cerebras": r"(?i)csk-[a-z0-9]{8}",
    "xai": r"(?i)xai-[a-z0-9]{8}",
    "firecrawl": r"(?i)fc-[a-f0-9]{8}",
    "sendgrid": r"(?i)sg\.[\w-]{8}",
    "twilio": r"SK[0-9a-f]{8}",
    "telegram": r"[0-9]{8}:AA[\w-]{8}",
    "digitalocean": r"do[oprt]_v1_[a-f0-9]{8}",
    "databricks": r"dapi[a-f0-9]{8}",
    "doppler": r"dp\.(?:pt|st|ct|sa|scim|audit)\.",
    "google": r"AIza[\w-]{16}",
    "aws": r"A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{8}",
}


def _rules() -> Iterator[Rule]:
    yield from _TEXTUAL
    for name, hints, expression in _PROVIDERS:
        if "(?P<secret>" not in expression:
            expression = f"(?P<secret>{expression})"
        yield Rule(name, tuple(hints.split()), expression, _TRACES.get(name))


RULES: Final = tuple(_rules())
"""Every rule, in the order in which they are asked."""

_BY_HINT: Final = tuple((hint, rule) for rule in RULES for hint in rule.hints)


def find_shaped(text: str) -> Iterator[Hit]:
    """Every secret in a text that is known by its shape."""
    for rule in dict.fromkeys([rule for hint, rule in _BY_HINT if hint in text]):
        yield from rule.find(text)
