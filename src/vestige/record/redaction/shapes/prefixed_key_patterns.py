"""The table of keys that are a prefix and random characters, grouped by what follows the prefix.

A prefix alone says little (`cu_`, `inc_`), so what follows must look random. Keys of other shapes
are in service_key_patterns.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from vestige.record.redaction.shapes.model_key_patterns import END, HEX_ID, START

PREFIXED: Final = "prefixed-key"
"""The name of all these rules."""

_GROUPS: Final = (
    # what follows, the least length, prefixes
    (
        "[A-Za-z0-9]",
        20,
        "lip_ vtwn_ tpuf_ nyk_v0_ xau_ jsrp_ ddp_ ddo_ hbp_ cxtp_ cxup_ jca_ tss_ obu_ "
        "hkdk_ hl_sk_ corbado1_ testsk_ PMAT- pdl_ntfset_ xnd_production_ "
        "xnd_development_ pina_ tgpat_ tgpak_ NF- sindri_ sk_sbox_ sk_a2V5X",
    ),
    (
        "[a-f0-9]",
        32,
        "pk_ pl_ cu_ fhb- inc_ rootly_ shptka_ zpka_ ptk_c_ cpk_ standard_ packagist_ort_ "
        "ck_ cs_ SEC EXO packagist_out_ packagist_uut_ packagist_urt_ "
        "packagist_ack_ depot_org_ depot_project_ depot_user_ "
        "privkey: auth_tokens/",
    ),
    ("[a-f0-9]", 28, "key_"),
    ("[A-Za-z0-9]", 16, "endr+"),
    ("[A-Za-z0-9+/]", 40, "essu_ ptr_"),
    ("[a-z0-9]", 24, "ion_ da2- retool_ sk_"),
    ("[A-Za-z0-9]", 24, "dataset- pat_ ucat_ ste- arc_ t-g104"),
    (HEX_ID, 0, "waka_ ctx7sk- ovsxp_ luma-"),
    (r"[\w-]", 24, "Mid-server- fnA"),
    (
        r"[\w-]",
        40,
        "nk- b_ csb_v1_ mka_ sand_ prod_ sktsec_ mnzconf. 4/0A mfa. ory_at_ ory_rt_ ory_ac_",
    ),
)

_WORD_START: Final = START.replace("(?<![A-Za-z0-9])", r"(?<![A-Za-z0-9\\])")
"""Like START, but the letter of an escape does not belong to the key."""
_ENDINGS: Final = r"(?:[A-Za-z0-9._+/=!#%^*-]{0,512}[A-Za-z0-9=])?"
"""The rest of a key, which may have other characters."""


def prefixed_rows() -> Iterator[tuple[str, str, str, str]]:
    """Yield the rows of the table: name, hint, expression, marker."""
    for alphabet, least, prefixes in _GROUPS:
        for prefix in prefixes.split():
            spelled = prefix.replace(".", r"\.").replace("+", r"\+")
            random = f"{spelled}{alphabet}" + (f"{{{least}}}" if least else "")
            yield PREFIXED, prefix, f"{START}{random}{_ENDINGS}{END}", random
    for word in (
        *("pat", "sk", "at", "rt", "pt"),
        "api",
        "apikey",
        "token",
        "server",
        "production",
    ):
        # Two parts before the random one, of which the second says what it is: `ory_at_x`.
        hint = f"_{word}_"
        random = rf"[a-z][a-z0-9]{{1,15}}{hint}(?:[A-Za-z0-9]{{24,}}|{HEX_ID})"
        yield PREFIXED, hint, f"{_WORD_START}{random}{_ENDINGS}{END}", f"{hint}[A-Za-z0-9-]{{24}}"
