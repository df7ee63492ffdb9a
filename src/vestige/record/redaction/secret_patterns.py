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
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final

import msgspec

from vestige.limits import SECRET_LENGTH_MAX
from vestige.record.redaction.masking import mask_escaped
from vestige.record.redaction.secret_values import (
    STRONG,
    WEAK,
    grade,
    is_code_around,
    is_example,
    is_placeholder,
    is_template,
)


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
    """Every match holds one of these; none changes when the text is written as JSON. Without any,
    the rule is asked of every text, and its trace of every line."""
    expression: str
    """Compiled when a hint is first met: most programs meet few, and importing must be quick."""
    trace: str | None = None
    """For the scanner: an expression on encoded bytes that a match always meets. None: the hints."""
    check: Callable[[re.Match[str]], bool] | None = None
    """Whether a match is a secret: what an expression cannot say."""

    def find(self, text: str) -> Iterator[Hit]:
        """The rule's hits in a text that has one of its hints."""
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


# A secret may follow an escape that ends in a letter or digit (JSON's \n, %3D, an ANSI colour),
# and must still be seen as beginning there.
_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[bfnrt])|(?<=%[0-9A-Fa-f]{2})|(?<=\\u00[0-9a-f]{2})|(?<=\[\dm)|(?<=\[\d\dm))"


_HEX_ID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_END = r"(?![A-Za-z0-9])"

_ASANA_HINTS = " ".join(f"{first}/{digit}" for first in "012" for digit in "0123456789")

_PROVIDERS: Final = (
    # name, hints, expression. The more exact of two that share a beginning comes first.
    # Models
    ("anthropic", "sk-ant-", r"sk-ant-[\w-]{8,}"),
    ("openrouter", "sk-or-", r"sk-or-[\w-]{16,}"),
    ("langfuse", "sk-lf-", r"sk-lf-[\w-]{16,}"),
    # The digit keeps CSS names such as sk-fading-circle apart; the bound keeps it linear.
    # Key types of OpenSSH (sk-ecdsa-sha2-nistp256) have digits too, and only lower-case words.
    (
        "openai",
        "sk-",
        _START
        + r"sk-(?!(?:ecdsa|ssh|ed25519)-)(?=[A-Za-z_-]{0,64}[0-9])(?![a-z-]{4,40}-[a-z0-9]{1,8}\b)[\w-]{16,}",
    ),
    ("google", "AIza", r"AIza[\w-]{30,}"),
    ("google-oauth", "ya29. GOCSPX- 1//0", r"(?:ya29\.|GOCSPX-|\b1//0)[\w-]{16,}"),
    ("huggingface", "hf_ api_org_", _START + r"(?:hf_|api_org_)[A-Za-z0-9]{20,}"),
    ("groq", "gsk_", r"gsk_[A-Za-z0-9]{20,}"),
    ("xai", "xai-", _START + r"xai-[A-Za-z0-9]{20,}"),
    ("replicate", "r8_", _START + r"r8_[A-Za-z0-9]{20,}"),
    ("perplexity", "pplx-", r"pplx-[A-Za-z0-9]{20,}"),
    ("tavily", "tvly-", r"tvly-[A-Za-z0-9-]{16,}"),
    ("fireworks", "fw_", _START + r"fw_[A-Za-z0-9]{20,}"),
    ("cerebras", "csk-", _START + r"csk-[a-z0-9]{20,}"),
    ("nvidia", "nvapi-", r"nvapi-[\w-]{20,}"),
    ("together", "tgp_v1_", r"tgp_v1_[\w-]{20,}"),
    ("voyage", "pa-", _START + r"pa-(?=[\w-]{0,40}[0-9])(?=[\w-]{0,40}[A-Z])[\w-]{40,50}" + _END),
    ("langsmith", "lsv2_ ls__", r"(?:lsv2_(?:pt|sk)_|\bls__)\w{20,}"),
    ("logfire", "pylf_v", r"pylf_v\d_\w{16,}"),
    ("pinecone", "pcsk_", r"pcsk_\w{20,}"),
    ("jina", "jina_", r"jina_[A-Za-z0-9]{20,}"),
    ("e2b", "e2b_", _START + r"e2b_[a-f0-9]{32,}"),
    ("firecrawl", "fc-", _START + r"fc-[a-f0-9]{32}"),
    ("elevenlabs", "sk_", _START + r"sk_[a-f0-9]{40,}"),
    ("anyscale", "esecret_", r"esecret_[A-Za-z0-9]{20,}"),
    ("runpod", "rpa_", _START + r"rpa_[A-Z0-9]{30,}"),
    ("wandb", "wandb_v1_", r"wandb_v1_[\w-]{20,}"),
    # Clouds and hosts
    ("aws", "AKIA ASIA ABIA ACCA", _START + r"A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}" + _END),
    (
        "aws-secret",
        "AKIA ASIA",
        r"A(?:KIA|SIA)[A-Z0-9]{16}[\s,;:|\"'&\\]{1,8}(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
    ),
    ("bedrock", "ABSK", _START + r"ABSK[A-Za-z0-9+/]{60,}={0,2}"),
    ("azure-ad", "Q~", r"(?<![\w~.-])[\w~.-]{3}[0-9]Q~[\w~.-]{31,34}(?![\w~-])"),
    (
        "azure-key",
        "+ASt AzFu +AEh ACDb AzSe AZDO +ARm",
        r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{20,90}(?:\+ASt|AzFu|\+AEh|ACDb|AzSe|AZDO|\+ARm)[A-Za-z0-9+/_-]{4,8}={0,2}",
    ),
    ("alibaba", "LTAI", _START + r"LTAI[A-Za-z0-9]{12,24}" + _END),
    ("tencent", "AKID", _START + r"AKID[A-Za-z0-9]{28,40}" + _END),
    (
        "yandex",
        "AQVN t1.9eu",
        _START + r"(?:AQVN[\w-]{35,38}|t1\.9eu[\w-]{20,}={0,2}\.[\w-]{86}={0,2})",
    ),
    ("digitalocean", "_v1_", r"do[oprt]_v1_[a-f0-9]{32,}"),
    ("heroku", "HRKU-", r"HRKU-[\w-]{20,}"),
    ("render", "rnd_", _START + r"rnd_[A-Za-z0-9]{20,}"),
    (
        "vercel",
        "vcp_ vca_ vck_ vercel_blob_rw_",
        _START + r"(?:vc[pack]_[A-Za-z0-9]{24,}|vercel_blob_rw_\w{20,})",
    ),
    ("netlify", "nfp_ nfc_ nfo_ nfu_", _START + r"nf[pcou]_[A-Za-z0-9]{30,}"),
    ("fly", "fo1_ fm1 fm2_ FlyV1", r"(?:\bfo1_[\w-]{40,}|\bfm[12][ar]?_[A-Za-z0-9+/,_=-]{40,})"),
    (
        "cloudflare",
        "v1.0- cfut_ cfat_ cfk_",
        _START + r"(?:v1\.0-[a-f0-9]{24}-[a-f0-9]{140,}|cf(?:ut|at|k)_[\w-]{36,})",
    ),
    ("supabase", "sbp_ sb_secret_", r"(?:sbp_[a-f0-9]{32,}|sb_secret_[\w-]{16,})"),
    ("planetscale", "pscale_", r"pscale_(?:tkn|pw|oauth)_[\w.=-]{16,}"),
    ("neon", "napi_", _START + r"napi_[A-Za-z0-9]{40,}"),
    ("databricks", "dapi dkea dose", _START + r"d(?:api|kea|ose)[a-f0-9]{32}(?:-\d)?"),
    ("aiven", "aivenv1", r"aivenv1[\w+/=-]{40,}"),
    ("scalingo", "tk-us-", r"tk-us-[\w-]{40,}"),
    ("tailscale", "tskey-", r"tskey-[a-z]{1,16}-[\w-]{12,}"),
    ("vault", "hvs. hvb. hvr.", _START + r"hv[sbr]\.[\w-]{20,}"),
    (
        "vault-legacy",
        "s.",
        r"(?<![\w.-])s\.(?=[A-Za-z]{0,24}[0-9])(?=[a-z0-9]{0,24}[A-Z])[A-Za-z0-9]{24}(?![\w.(])",
    ),
    ("terraform", ".atlasv1.", r"[A-Za-z0-9]{0,20}\.atlasv1\.[\w-]{40,}"),
    ("pulumi", "pul-", _START + r"pul-[a-f0-9]{40}" + _END),
    ("doppler", "dp.", _START + r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{30,}"),
    ("infracost", "ico-", _START + r"ico-[A-Za-z0-9]{32}" + _END),
    ("prefect", "pnu_ pnb_", _START + r"pn[ub]_[A-Za-z0-9]{36}" + _END),
    (
        "1password",
        "ops_eyJ A3-",
        _START
        + r"(?:ops_eyJ[\w+/=-]{40,}|A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3})",
    ),
    # Code and packages
    ("github", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{20,}"),
    ("github", "github_pat_", r"github_pat_\w{20,}"),
    (
        "gitlab",
        "glpat- glptt- gldt- glrt- glcbt- glsoat- glft- glimt- glagent- gloas- glffct- GR1348941",
        r"(?:gl(?:pat|ptt|dt|rt|rtr|cbt|soat|ft|imt|agent|oas|ffct)-|GR1348941)[\w-]{16,}(?:\.[\w-]{2,}){0,3}",
    ),
    ("bitbucket", "ATBB ATCTT3", _START + r"(?:ATBB[A-Za-z0-9=]{20,}|ATCTT3[\w=-]{20,})"),
    ("atlassian", "ATATT3", r"ATATT3[\w=-]{20,}"),
    ("npm", "npm_", r"npm_[A-Za-z0-9]{30,}"),
    ("pypi", "pypi-A", r"pypi-A[\w-]{30,}"),
    ("rubygems", "rubygems_", r"rubygems_[a-f0-9]{40,}"),
    (
        "crates",
        "cio",
        _START + r"cio(?=[a-z]{0,32}[A-Z0-9])(?=[A-Za-z]{0,32}[0-9])[A-Za-z0-9]{32}" + _END,
    ),
    ("clojars", "CLOJARS_", r"CLOJARS_[A-Za-z0-9]{40,}"),
    ("nuget", "oy2", _START + r"oy2[a-z0-9]{43}" + _END),
    ("docker", "dckr_", r"dckr_(?:pat|oat)_[\w-]{20,}"),
    ("artifactory", "AKCp cmVmdGtu", _START + r"(?:AKCp[A-Za-z0-9]{40,}|cmVmdGtu[A-Za-z0-9]{40,})"),
    ("circleci", "CCIPAT_ CCIPRJ_", r"CCIP(?:AT|RJ)_[A-Za-z0-9]{10,}_[a-f0-9]{40}"),
    ("buildkite", "bkua_ bkpi_ bkct_ bkaj_", _START + r"bk(?:ua|pi|ct|aj)_[A-Za-z0-9]{20,}"),
    ("sonar", "squ_ sqp_ sqa_", _START + r"sq[upa]_[a-f0-9]{40}" + _END),
    ("snyk", "snyk_uat", r"snyk_uat\.[\w.-]{20,}"),
    ("postman", "PMAK-", r"PMAK-[a-f0-9-]{20,}"),
    ("readme", "rdme_", _START + r"rdme_[a-z0-9]{60,}"),
    ("harness", "pat.", _START + r"[ps]at\.[\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}" + _END),
    # Watching
    (
        "grafana",
        "glc_ glsa_ eyJrIjoi",
        r"(?:gl(?:c|sa)_[\w=+/]{20,}|\beyJrIjoi[A-Za-z0-9+/]{60,}={0,2})",
    ),
    ("sentry", "sntrys_ sntryu_", r"sntry[su]_[\w=+/]{20,}"),
    (
        "newrelic",
        "NRAK- NRII- NRJS- NRRA- NRBR- NRAL",
        r"(?:NR(?:AK|II|JS|RA|BR)-[\w-]{16,}|\b[a-f0-9]{36}NRAL\b)",
    ),
    (
        "honeycomb",
        "hcaik_ hcbik_ hcxik_ hcalk_ hcamk_",
        _START + r"hc(?:aik|bik|xik|alk|amk)_[a-z0-9]{20,}",
    ),
    ("dynatrace", "dt0", _START + r"dt0[a-z][0-9]{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    ("datadog", "ddapp_ ddpat_", _START + r"dd(?:app|pat)_[A-Za-z0-9]{30,}"),
    ("posthog", "phx_ phs_", _START + r"ph[xs]_[A-Za-z0-9]{30,}"),
    # Messages
    (
        "slack",
        "xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs-",
        r"xox[abcdeoprs]-[A-Za-z0-9%+/-]{10,}",
    ),
    ("slack", "xoxe.xox xapp- xwfp-", r"(?:xoxe\.xox[bp]|xapp|xwfp)-[A-Za-z0-9-]{10,}"),
    ("slack-webhook", "hooks.slack.com/", r"hooks\.slack\.com/\w{1,16}/(?P<secret>[\w/]{16,})"),
    ("discord-webhook", "/api/webhooks/", r"/api/webhooks/[0-9]{15,21}/(?P<secret>[\w-]{50,})"),
    ("teams-webhook", ".webhook.office.com/", r"\.webhook\.office\.com/(?P<secret>[\w@/-]{30,})"),
    (
        "zapier-webhook",
        "hooks.zapier.com/",
        r"hooks\.zapier\.com/hooks/catch/(?P<secret>[\w/]{8,})",
    ),
    ("telegram", ":AA", r"\b[0-9]{8,10}:AA[\w-]{32,}"),
    ("sendgrid", "SG.", _START + r"SG\.[\w-]{16,64}\.[\w-]{16,}"),
    ("brevo", "xkeysib- xsmtpsib-", r"x(?:key|smtp)sib-[a-f0-9]{40,}(?:-[A-Za-z0-9]{8,})?"),
    ("mailgun", "key-", _START + r"(?:pub)?key-[a-f0-9]{32}" + _END),
    ("mailchimp", "-us", r"(?<![\w-])[a-f0-9]{32}-us[0-9]{1,2}(?![\w-])"),
    ("mandrill", "md-", _START + r"md-[\w-]{22}(?![\w-])"),
    ("resend", "re_", _START + r"re_[A-Za-z0-9]{7,10}_[A-Za-z0-9]{20,30}" + _END),
    ("intercom", "dG9rO", _START + r"dG9rO[A-Za-z0-9+/]{20,}={0,2}"),
    ("hubspot", "pat-na pat-eu pat-ap", _START + rf"pat-(?:na|eu|ap)[0-9]-{_HEX_ID}"),
    ("facebook", "EAA", _START + r"EAA(?=[A-Za-z]{0,60}[0-9])[A-Za-z0-9]{40,}"),
    ("facebook-app", "||", r"(?<![\w|])[0-9]{13,17}\|(?=[\w-]{0,20}[A-Za-z])[\w-]{27}(?![\w|-])"),
    ("twitter", "AAAAAAAAAA", _START + r"A{18,24}[\w%]{30,}"),
    ("firebase", ":APA91b", r"AAAA[\w-]{7}:APA91b[\w-]{100,}"),
    # Money
    ("stripe", "k_live_ k_test_ k_prod_", r"[sr]k_(?:live|test|prod)_[A-Za-z0-9]{10,}"),
    ("stripe-webhook", "whsec_", r"whsec_[A-Za-z0-9+/=]{16,}"),
    (
        "square",
        "sq0atp- sq0csp- sq0idp- EAAA",
        _START + r"(?:sq0(?:atp|csp|idp)-[\w-]{20,}|EAAA[\w-]{56,})",
    ),
    (
        "braintree",
        "access_token$",
        r"access_token\$(?:production|sandbox)\$[a-z0-9]{16}\$[a-f0-9]{32}",
    ),
    (
        "plaid",
        "access-sandbox- access-production- access-development-",
        rf"access-(?:sandbox|production|development)-{_HEX_ID}",
    ),
    ("shopify", "shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{20,}"),
    ("flutterwave", "FLWSECK", r"FLWSECK(?:_TEST)?-[A-Za-z0-9]{12,}(?:-X)?"),
    ("razorpay", "rzp_live_ rzp_test_", r"rzp_(?:live|test)_[A-Za-z0-9]{14,}"),
    ("adyen", "AQE", _START + r"AQE(?=[A-Za-z]{0,40}[0-9])[\w+/-]{90,}={0,2}"),
    # Others
    ("twilio", "SK", _START + r"SK[0-9a-f]{32}(?![A-Za-z0-9])"),
    (
        "twilio-auth",
        " ".join(f"AC{digit}" for digit in "0123456789abcdef"),
        r"\bAC[0-9a-f]{32}[\s:,;\"'|\\]{1,6}(?P<secret>[0-9a-f]{32})(?![0-9a-f])",
    ),
    ("linear", "lin_", r"lin_(?:api|oauth|wh)_[A-Za-z0-9]{20,}"),
    ("notion", "ntn_ secret_", _START + r"(?:ntn_[A-Za-z0-9]{20,}|secret_[A-Za-z0-9]{40,})"),
    ("airtable", "pat", _START + r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}"),
    ("figma", "figd_ figo_ figu_", _START + r"fig[dou]_[\w-]{20,}"),
    ("dropbox", "sl.", _START + r"sl\.(?:u\.|B|[A-Z])(?=[\w-]{0,60}[0-9])[\w-]{60,}"),
    ("asana", _ASANA_HINTS, r"(?<![\w/.])[012]/[0-9]{10,20}(?:/[0-9]{10,20})?:[a-f0-9]{32}" + _END),
    ("okta", "SSWS ", r"SSWS\s{1,4}(?P<secret>[\w-]{20,})"),
    ("contentful", "CFPAT-", r"CFPAT-[\w-]{30,}"),
    ("typeform", "tfp_", _START + r"tfp_[\w.=-]{30,}"),
    ("duffel", "duffel_live_ duffel_test_", r"duffel_(?:live|test)_[\w=-]{20,}"),
    ("easypost", "EZAK EZTK", _START + r"EZ[AT]K[A-Za-z0-9]{40,}"),
    ("frameio", "fio-u-", r"fio-u-[\w=-]{40,}"),
    ("lob", "live_ test_", r"(?<![A-Za-z0-9_])(?:live|test)_(?:pub_)?[a-f0-9]{31,}" + _END),
    ("shippo", "shippo_live_ shippo_test_", r"shippo_(?:live|test)_[a-fA-F0-9]{30,}"),
    ("mapbox", "k.eyJ", _START + r"[st]k\.eyJ[\w-]{20,}\.[\w-]{16,}"),
    ("clickup", "pk_", _START + r"pk_[0-9]{5,10}_[A-Z0-9]{30,}"),
    ("pagerduty", "pdus+", r"pdus\+[\w+-]{16,}"),
    ("adobe", "p8e-", _START + r"p8e-[A-Za-z0-9]{32}" + _END),
    ("vestige", "vstg_", r"vstg_[\w-]{16,}"),
    ("age", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[A-Z0-9]{20,}"),
)

_GAP = r"(?:\s|\\+[nrt]|\\(?=\s)|[\"'+,|>#*]|\\+[\"'])"
_CHUNK = r"[A-Za-z0-9+/=]"
_BASE64_LINES = (
    # Headers (Proc-Type, Version), then lines of base64 as far as they go; code ends them.
    rf"(?:{_GAP}{{0,32}}[A-Z][A-Za-z-]{{1,32}}: [^\n\\]{{1,128}})*+"
    rf"{_GAP}{{0,32}}+{_CHUNK}{{16,{SECRET_LENGTH_MAX}}}+"
    rf"(?:{_GAP}{{1,32}}+{_CHUNK}{{16,{SECRET_LENGTH_MAX}}}+)*+"
    rf"(?:{_GAP}{{1,32}}+{_CHUNK}{{1,15}}+(?![A-Za-z0-9_]))?+"
)
_PEM_BEGIN = (
    r"-----BEGIN[A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----|---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----"
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

_URL_TRACE = r':(?://|\\+/\\*/|/\\+/)[^\s/"]*@'


def _is_credential(match: re.Match[str]) -> bool:
    """Whether what follows `Bearer` or `Basic` is one: no name in code, and of Basic only base64."""
    secret = match["secret"]
    if match[0][:5].lower() == "basic" and (len(secret) < 12 or "." in secret or "-" in secret):
        return len(secret) % 4 == 0 and grade(secret) == STRONG and "." not in secret
    return grade(secret) >= WEAK and not is_template(secret) and not is_example(secret)


_URL_WORDS = frozenset(("pass", "password", "passwd", "pwd", "pw", "secret", "mypassword"))
_URL_USERS = frozenset(("user", "username", "usr", "name", "u", "foo", "login", "me", "joe"))


def _is_url_password(match: re.Match[str]) -> bool:
    """Whether a URL's password is one: documentation writes `user:pass@host`."""
    secret, user = match["secret"], match["user"]
    if is_template(secret) or (secret.lower() in _URL_WORDS and user.lower() in _URL_USERS):
        return False
    if grade(secret) < WEAK and (is_example(secret) or len(secret) < 4):
        return not is_code_around(match.string, match.start())
    return True


def is_basic(secret: str) -> bool:
    """Whether a text is the base64 of `user:password`, as Docker's `auth` writes it."""
    import base64

    try:
        return b":" in base64.b64decode(secret + "=" * (-len(secret) % 4), validate=True)
    except ValueError:
        return False


_ORDERS = (
    r"(?i)(?:order|invoice|item|product|ticket|article|sku|number|nr|no|ref|batch|serial)\W{0,3}\Z"
)


def _is_no_order(match: re.Match[str]) -> bool:
    """Whether SK and 32 digits is a key: shops write such order numbers."""
    before = match.string[max(0, match.start() - 16) : match.start()]
    return re.search(_ORDERS, before) is None


def _is_graded(match: re.Match[str]) -> bool:
    return grade(match["secret"]) >= WEAK


def _is_strong(match: re.Match[str]) -> bool:
    return grade(match["secret"]) == STRONG and not is_template(match["secret"])


_QUOTE = r"""\\*["']"""

_TEXTUAL: Final = (
    Rule("private-key", ("PRIVATE KEY", "Static key V1"), _PEM),
    Rule("putty-key", ("Private-Lines: ",), _PUTTY),
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
        _START.replace("A-Za-z0-9]", r"\w-]", 1)
        + r"(?P<secret>eyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+){1,3})",
        r"eyJ[\w-]{8,}\.[\w-]{8}",
    ),
    Rule(
        "url-password",
        ("//", "\\/"),
        r""":(?:\\*/){2}(?P<user>[^\s:/?#@"'\\<>]*+):(?P<secret>[^\s/?"'\\<>]+)@(?=[\w\[{$%.-])""",
        _URL_TRACE,
        _is_url_password,
    ),
    Rule(
        "url-user",
        ("//", "\\/"),
        r":(?:\\*/){2}(?P<secret>[\w-]{20,}+)@(?=[\w\[])",
        _URL_TRACE,
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
        r"(?m)(?:^|(?<=\\n)|(?<=[\"' ]))[\w.*-]{1,253}:(?:5432|5433|6432|3306|\*):[\w*.-]{1,64}:[\w*.-]{1,64}:"
        r"(?P<secret>[^\s:\"'\\]{4,128})(?=$|\s|\\|[\"'])",
        None,
        _is_graded,
    ),
    Rule(
        "curl-user",
        (" -u", "--user", "--proxy-user", "-U"),
        rf"(?<![\w-])(?:-u|-U|--user|--proxy-user)(?:[ \t]{{1,4}}|=)?(?:{_QUOTE})?[\w.@+%-]{{1,128}}:"
        r"(?P<secret>[^\s\"'\\]{1,256})",
        r"(?:-u|-U|user)[ \t=]{0,4}[\\\"']{0,8}[\w.@+%-]{1,64}:[^\s\"'\\/]",
        lambda match: match["secret"][:1] != "$" and not match["secret"].isdigit(),
    ),
    Rule(
        "cli-password",
        (
            "sshpass",
            *("mysql ", "mysqldump ", "mysqladmin ", "mariadb ", "redis-cli ", "docker login "),
            *("mongo ", "mongosh ", "mongodump ", "mongorestore ", "mongoimport ", "mongoexport "),
        ),
        rf"\b(?:sshpass[ \t]{{1,4}}-p|(?:mysql|mysqldump|mysqladmin|mariadb)\b[^\n|;&\\]{{0,120}}?[ \t]-p"
        rf"|redis-cli\b[^\n|;&\\]{{0,80}}?[ \t](?:-a|--pass)[ \t]{{1,4}}"
        rf"|docker[ \t]{{1,4}}login\b[^\n|;&\\]{{0,120}}?[ \t]-p[ \t]{{0,4}}"
        rf"|mongo(?:sh|dump|restore|import|export)?\b[^\n|;&\\]{{0,120}}?[ \t]-p[ \t]{{1,4}})"
        rf"[ \t]{{0,4}}(?:{_QUOTE})?(?P<secret>[^\s\"'\\-][^\s\"'\\]{{2,128}})",
        None,
        lambda match: (
            match["secret"][:1] not in "$<{" and not match["secret"].startswith("assword")
        ),
    ),
    Rule(
        "sql-password",
        ("dentified", "DENTIFIED"),
        rf"(?i:identified[ \t]{{1,4}}(?:with[ \t]{{1,4}}\w{{1,64}}[ \t]{{1,4}})?(?:by|as)(?:[ \t]{{1,4}}password)?)[ \t]{{1,4}}"
        rf"{_QUOTE}(?P<secret>[^\"'\\\n]{{1,256}})",
    ),
    Rule(
        "docker-auth",
        ("auth",),
        rf"(?:{_QUOTE}auth{_QUOTE}\s{{0,8}}:\s{{0,8}}{_QUOTE}|(?<![\w.])_auth\s{{0,4}}=\s{{0,4}}\"?)(?P<secret>[A-Za-z0-9+/]{{8,4096}}={{0,2}})",
        r"auth[\\\"']{0,8}\s{0,8}[:=]\s{0,8}[\\\"']{0,8}[A-Za-z0-9+/]{8}",
        lambda match: is_basic(match["secret"]),
    ),
    Rule(
        "wp-config",
        ("define(", "define ("),
        r"define ?\(\s{0,4}['\"][A-Z_]{2,40}(?:KEY|SALT)['\"]\s{0,4},\s{0,8}['\"](?P<secret>[^'\n]{16,256})['\"]",
    ),
    Rule(
        "directive",
        ("requirepass", "masterauth", "bindpw", "rootpw", "password ", "passphrase "),
        r"(?m)(?:^|(?<=\\n))[ \t]*(?:requirepass|masterauth|(?:olc)?rootpw|bindpw|password|passphrase)[ \t]{1,8}"
        r"(?P<secret>[^\s\"'\\:=]{4,256})[ \t]*(?=$|\\)",
        None,
        _is_graded,
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
}

# One hint per family is enough for the scanner, but short ones would fire on words: these say more.
_TRACES: Final = {
    "openai": r"(?i)sk-[\w-]{16}",
    "elevenlabs": r"(?i)sk_[a-f0-9]{8}",
    "huggingface": r"(?i)(?:hf_|api_org_)[a-z0-9]{8}",
    "replicate": r"(?i)r8_[a-z0-9]{8}",
    "fireworks": r"(?i)fw_[a-z0-9]{8}",
    "cerebras": r"(?i)csk-[a-z0-9]{8}",
    "xai": r"(?i)xai-[a-z0-9]{8}",
    "firecrawl": r"(?i)fc-[a-f0-9]{8}",
    "sendgrid": r"(?i)sg\.[\w-]{8}",
    "twilio": r"SK[0-9a-f]{32}",
    "twilio-auth": r"AC[0-9a-f]{32}",
    "telegram": r"[0-9]{8}:AA[\w-]{8}",
    "digitalocean": r"do[oprt]_v1_[a-f0-9]{8}",
    "databricks": r"d(?:api|kea|ose)[a-f0-9]{8}",
    "doppler": r"dp\.(?:pt|st|ct|sa|scim|audit)\.",
    "google": r"AIza[\w-]{16}",
    "aws": r"A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{8}",
    "aws-secret": r"A(?:KIA|SIA)[A-Z0-9]{16}",
    "bedrock": r"ABSK[A-Za-z0-9+/]{16}",
    "tencent": r"AKID[A-Za-z0-9]{16}",
    "alibaba": r"LTAI[A-Za-z0-9]{12}",
    "azure-ad": r"[0-9]Q~[\w~.-]{16}",
    "azure-key": r"(?:\+ASt|AzFu|\+AEh|ACDb|AzSe|AZDO|\+ARm)[A-Za-z0-9+/_-]{4}",
    "voyage": r"pa-[\w-]{40}",
    "runpod": r"rpa_[A-Z0-9]{16}",
    "vault-legacy": r"s\.[A-Za-z0-9]{24}",
    "1password": r"(?:ops_eyJ|A3-[A-Z0-9]{6}-)",
    "harness": r"[ps]at\.[\w-]{22}\.",
    "pulumi": r"pul-[a-f0-9]{40}",
    "infracost": r"ico-[A-Za-z0-9]{32}",
    "crates": r"cio[A-Za-z0-9]{32}",
    "nuget": r"oy2[a-z0-9]{43}",
    "sonar": r"sq[upa]_[a-f0-9]{40}",
    "fly": r"(?:fo1_[\w-]{16}|fm[12][ar]?_[A-Za-z0-9+/,_=-]{16})",
    "cloudflare": r"(?:v1\.0-[a-f0-9]{24}|cf(?:ut|at|k)_[\w-]{8})",
    "render": r"rnd_[A-Za-z0-9]{16}",
    "dynatrace": r"dt0[a-z][0-9]{2}\.",
    "mailgun": r"key-[a-f0-9]{32}",
    "mailchimp": r"[a-f0-9]{32}-us[0-9]",
    "mandrill": r"md-[\w-]{22}",
    "resend": r"re_[A-Za-z0-9]{7,10}_[A-Za-z0-9]{8}",
    "facebook": r"EAA[A-Za-z0-9]{40}",
    "facebook-app": r"[0-9]{13}\|[\w-]{27}",
    "square": r"(?:sq0(?:atp|csp|idp)-[\w-]{8}|EAAA[\w-]{40})",
    "airtable": r"pat[A-Za-z0-9]{14}\.[a-f0-9]{16}",
    "dropbox": r"sl\.(?:u\.)?[\w-]{40}",
    "asana": r"[012]/[0-9]{10}",
    "lob": r"(?:live|test)_(?:pub_)?[a-f0-9]{31}",
    "adyen": r"AQE[\w+/-]{60}",
    "yandex": r"(?:AQVN[\w-]{16}|t1\.9eu[\w-]{16})",
    "adobe": r"p8e-[A-Za-z0-9]{32}",
    "clickup": r"pk_[0-9]{5,10}_[A-Z0-9]{16}",
    "newrelic": r"NR(?:AK|II|JS|RA|BR)-[\w-]{8}|[a-f0-9]{16}NRAL",
    "bitbucket": r"(?:ATBB|ATCTT3)[\w=-]{16}",
    "artifactory": r"(?:AKCp|cmVmdGtu)[A-Za-z0-9]{16}",
    "vercel": r"(?:vc[pack]_|vercel_blob_rw_)[A-Za-z0-9]{16}",
    "netlify": r"nf[pcou]_[A-Za-z0-9]{16}",
    "scalingo": r"tk-us-[\w-]{16}",
    "prefect": r"pn[ub]_[A-Za-z0-9]{16}",
    "posthog": r"ph[xs]_[A-Za-z0-9]{16}",
    "twitter": r"A{18}[\w%]{16}",
    "figma": r"fig[dou]_[\w-]{16}",
    "typeform": r"tfp_[\w.=-]{16}",
}


_LOOSE: Final = ("vault-legacy",)
"""Rules of which no literal is rare. Their traces begin with one, which makes the search quick."""


def _rules() -> Iterator[Rule]:
    yield from _TEXTUAL
    for name, hints, expression in _PROVIDERS:
        if "(?P<secret>" not in expression:
            expression = f"(?P<secret>{expression})"
        # Hints that are in every line: the trace is searched for by itself.
        literals = () if name in _LOOSE else tuple(hints.replace("||", "|").split())
        yield Rule(name, literals, expression, _TRACES.get(name), _CHECKS.get(name))


RULES: Final = tuple(_rules())
"""Every rule, in the order in which they are asked."""

_BY_HINT: Final = tuple((hint, rule) for rule in RULES for hint in rule.hints)
_UNHINTED: Final = tuple(rule for rule in RULES if not rule.hints)


def find_shaped(text: str) -> Iterator[Hit]:
    """Every secret in a text that is known by its shape."""
    hinted = [rule for hint, rule in _BY_HINT if hint in text]
    # Of a rule without hints the trace says quickly whether it is worth asking.
    unhinted = [rule for rule in _UNHINTED if _compiled(rule.trace or "").search(text)]
    for rule in dict.fromkeys((*hinted, *unhinted)):
        yield from rule.find(text)


_ENCODED_STEMS: Final = (
    *("password", "passwd", "secret", "token", "api_key", "apikey", "PRIVATE KEY", "Authorization"),
    *("sk-ant-", "sk-proj", "ghp_", "github_pat", "glpat-", "AKIA", "xoxb-", "AIza"),
)


@cache
def base64_fragments() -> tuple[str, ...]:
    """What base64 makes of the stems of keys and shapes, wherever they are in what was encoded."""
    import base64

    found: list[str] = []
    for stem in _ENCODED_STEMS:
        for shift in (0, 1, 2):
            coded = base64.b64encode(bytes(shift) + stem.encode()).decode()
            whole = (shift + len(stem)) * 8 // 6
            found.append(coded[(shift * 8 + 5) // 6 : whole])
    return tuple(dict.fromkeys(found))
