"""The table of secrets of models and of platforms for agents.

The columns are the same as in service_key_patterns.py.
"""

from __future__ import annotations

from typing import Final

# A secret may follow an escape that ends in a letter or digit (JSON's \n, %3D, an ANSI colour),
# and must still match there.
START = (
    r"(?:(?<![A-Za-z0-9])|(?<=\\[bfnrt])|(?<=%[0-9A-Fa-f]{2})"
    r"|(?<=\\u00[0-9a-f]{2})|(?<=\[\dm)|(?<=\[\d\dm))"
)

HEX_ID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
END = r"(?![A-Za-z0-9])"

MODELS: Final[tuple[tuple[str, ...], ...]] = (
    # name, hints, expression, marker. Of two with the same beginning, the more specific is first.
    ("anthropic", "sk-ant-", r"sk-ant-[\w-]{8,}"),
    ("openrouter", "sk-or-", r"sk-or-[\w-]{16,}"),
    ("langfuse", "sk-lf-", r"sk-lf-[\w-]{16,}"),
    ("letta", "sk-let-", START + r"sk-let-[A-Za-z0-9+/=]{40,}"),
    # The digit excludes CSS names such as sk-fading-circle; the limit keeps the time linear.
    # Key types of OpenSSH (sk-ecdsa-sha2-nistp256) have digits too, but only lower-case words.
    (
        "openai",
        "sk-",
        START + r"sk-(?!(?:ecdsa|ssh|ed25519)-)(?=[A-Za-z_-]{0,64}[0-9])"
        r"(?![a-z-]{4,40}-[a-z0-9]{1,8}\b)[\w-]{16,}",
        r"(?i)sk-[\w-]{16}",
    ),
    ("google", "AIza", r"AIza[\w-]{30,}", r"AIza[\w-]{16}"),
    ("google-oauth", "ya29. GOCSPX- 1//0", r"(?:ya29\.(?:c\.)?|GOCSPX-|\b1//0)[\w-]{16,}"),
    (
        "huggingface",
        "hf_ api_org_",
        START + r"(?:hf_|api_org_)[A-Za-z0-9]{20,}",
        r"(?i)(?:hf_|api_org_)[a-z0-9]{8}",
    ),
    ("groq", "gsk_", r"gsk_[A-Za-z0-9]{20,}"),
    ("xai", "xai-", START + r"xai-[A-Za-z0-9]{20,}", r"(?i)xai-[a-z0-9]{8}"),
    ("replicate", "r8_", START + r"r8_[A-Za-z0-9]{20,}", r"(?i)r8_[a-z0-9]{8}"),
    ("perplexity", "pplx-", r"pplx-[A-Za-z0-9]{20,}"),
    ("tavily", "tvly-", r"tvly-[A-Za-z0-9-]{16,}"),
    ("fireworks", "fw_", START + r"fw_[A-Za-z0-9]{20,}", r"(?i)fw_[a-z0-9]{8}"),
    ("cerebras", "csk-", START + r"csk-[a-z0-9]{20,}", r"(?i)csk-[a-z0-9]{8}"),
    ("nvidia", "nvapi-", r"nvapi-[\w-]{20,}"),
    ("together", "tgp_v1_", r"tgp_v1_[\w-]{20,}"),
    (
        "voyage",
        "pa-",
        START + r"pa-(?=[\w-]{0,40}[0-9])(?=[\w-]{0,40}[A-Z])[\w-]{40,50}" + END,
        r"pa-[\w-]{40}",
    ),
    ("langsmith", "lsv2_ ls__", r"(?:lsv2_(?:pt|sk)_|\bls__)\w{20,}"),
    ("logfire", "pylf_v", r"pylf_v\d_\w{16,}"),
    ("pinecone", "pcsk_", r"pcsk_\w{20,}"),
    ("jina", "jina_", r"jina_(?=[A-Za-z_-]{0,40}[0-9])[\w-]{40,}"),
    ("e2b", "e2b_", START + r"e2b_[a-f0-9]{32,}"),
    ("firecrawl", "fc-", START + r"fc-[a-f0-9]{32}", r"(?i)fc-[a-f0-9]{8}"),
    ("elevenlabs", "sk_", START + r"sk_[a-f0-9]{40,}", r"(?i)sk_[a-f0-9]{8}"),
    ("anyscale", "esecret_", r"esecret_[A-Za-z0-9]{20,}"),
    ("runpod", "rpa_", START + r"rpa_[A-Z0-9]{30,}[a-z0-9]{0,12}", r"rpa_[A-Z0-9]{16}"),
    ("wandb", "wandb_v1_", r"wandb_v1_[\w-]{20,}"),
    ("google-auth", "AQ.Ab8", START + r"AQ\.Ab8[\w-]{30,}"),
    ("helicone", "-helicone-", START + r"[spr]k-helicone-[\w-]{20,}"),
    ("llamacloud", "llx-", START + r"llx-[A-Za-z0-9]{40,}" + END, r"llx-[A-Za-z0-9]{16}"),
    ("mem0", "m0-", START + r"m0-[A-Za-z0-9]{36,}" + END, r"m0-[A-Za-z0-9]{36}"),
    ("modal", "ak- as-", START + r"a[ks]-[A-Za-z0-9]{22}" + END, r"a[ks]-[A-Za-z0-9]{22}"),
    ("openai-session", "sess-", START + r"sess-[A-Za-z0-9]{40}" + END, r"sess-[A-Za-z0-9]{40}"),
    ("brave", "BSA", START + r"BSA[\w-]{28}(?![\w-])", r"BSA[\w-]{28}"),
    ("dify", "app-", START + r"app-[A-Za-z0-9]{24}" + END, r"app-[A-Za-z0-9]{24}"),
    ("cursor", "key_", START + r"key_[a-f0-9]{64}" + END, r"key_[a-f0-9]{64}"),
    ("composio", "ak_", START + r"ak_[\w-]{20}(?![\w-])", r"ak_[\w-]{20}"),
    ("n8n", "n8n_api_", r"n8n_api_[\w-]{30,}"),
    ("apify", "apify_api_", r"apify_api_[A-Za-z0-9]{30,}"),
    ("zep", "z_eyJ", START + r"z_eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}"),
    ("browserbase", "bb_live_ bb_test_", START + r"bb_(?:live|test)_[\w-]{20,}"),
    # Keys of agent platforms and newer models
    (
        "novita",
        "sk_",
        START + r"sk_(?!live_|test_|prod_|dev_|org_|car_)(?=[A-Za-z_-]{0,30}[0-9])"
        r"(?=[\w-]{0,40}[A-Z])[\w-]{43,}",
        r"sk_[\w-]{16}",
    ),
    ("cartesia", "sk_car_", START + r"sk_car_[\w-]{20,}"),
    ("friendli", "flp_", START + r"flp_[A-Za-z0-9]{40,}" + END, r"flp_[A-Za-z0-9]{16}"),
    ("openpipe", "opk_", START + r"opk_[a-f0-9]{40}" + END, r"opk_[a-f0-9]{16}"),
    ("predibase", "pb_", START + r"pb_[\w-]{22}(?![\w-])", r"pb_[\w-]{12}"),
    ("upstage", "up_", START + r"up_[A-Za-z0-9]{29}" + END, r"up_[A-Za-z0-9]{12}"),
    ("arize", "ak-", START + rf"ak-{HEX_ID}-[\w-]{{20,}}", r"ak-[a-f0-9]{8}-"),
    ("braintrust", "bt-st-", START + r"bt-st-[\w-]{30,}"),
    ("zep-cloud", "z_1d", START + r"z_1d[A-Za-z0-9]{5,}[\w.-]{40,}", r"z_1d[A-Za-z0-9]{5}"),
    ("daytona", "dtn_", START + r"dtn_[a-f0-9]{64}" + END, r"dtn_[a-f0-9]{16}"),
    ("inngest", "signkey-", r"signkey-[a-z]{2,16}-[a-f0-9]{32,}"),
    ("trigger", "tr_prod_ tr_dev_ tr_stg_ tr_pat_", START + r"tr_(?:prod|dev|stg|pat)_[\w-]{20,}"),
    ("pipedream", "pd_api_", START + r"pd_api_[a-f0-9]{32}" + END),
)
