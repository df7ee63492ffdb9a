"""Secret texts and credential files, with values made up at run time.

No value is written here: `{A40}` is 40 letters and digits, so that no host's secret scanner takes
this file for a leak, and each seed has other values. The shapes are those that vendors document.

    make("ghp_{A36}", Maker(1))                  a key
    fill("DB_PASSWORD={P} python a.py", Maker(1))    a text, and the secrets in it
"""

from __future__ import annotations

import base64
import random
import re
import string
import uuid
from collections.abc import Callable

ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
BASE32 = string.ascii_uppercase + "234567"
URL = ALNUM + "-_"
BASE58 = "".join(each for each in ALNUM if each not in "0OIl")

ALPHABETS = {
    "A": ALNUM,
    "B": ALNUM,
    "R": ALNUM,
    "D": string.digits,
    "G": ALNUM + "+/",
    "H": HEX,
    "I": HEX,
    "K": BASE58,
    "L": string.ascii_lowercase + string.digits,
    "N": "123456789",
    "S": ALNUM + "!#%^*",
    "T": string.ascii_letters,
    "U": string.ascii_uppercase,
    "V": BASE32,
    "W": URL,
    "X": string.ascii_uppercase + string.digits,
}
"""By the letter of a value in a template. `U`, `D`, `V`, `I` and `N` make ids in `fill`."""

_VALUE = re.compile(r"\{([A-Z][0-9A-Z]*[bc]?)\}")


class Maker:
    """Makes values; the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def of(self, alphabet: str, length: int) -> str:
        """Random characters; from a mixed alphabet always with a digit and a letter.

        The first and the last are letters or digits."""
        while True:
            made = "".join(self._random.choice(alphabet) for _ in range(length))
            if not (made[:1] + made[-1:]).isalnum():
                continue
            if length < 8 or alphabet.isdigit() or alphabet.isalpha():
                return made
            if any(c.isdigit() for c in made) and any(c.isalpha() for c in made):
                return made

    def uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def password(self) -> str:
        """Make a password as people choose them."""
        word = self._random.choice(("Tiger", "orange", "Sommer", "kitten", "Falcon", "bridge"))
        return (
            word + self._random.choice(("-", "!", "", "_", "#")) + self.of(string.digits, 4) + "x!"
        )


def make(template: str, m: Maker) -> str:
    """Return a template with values in it."""

    def value(found: re.Match[str]) -> str:
        name = found[1]
        return m.uuid() if name == "UUID" else m.of(ALPHABETS[name[0]], int(name[1:]))

    return _VALUE.sub(value, template)


SHAPES: dict[str, tuple[str, str]] = {
    # name: (a secret, something that begins in the same way and is none)
    "openai": ("sk-proj-{W80}", "sk-proj-layout-grid"),
    "openai service": ("sk-svcacct-{W60}", ""),
    "openai old": ("sk-{A48}", ""),
    "anthropic": ("sk-ant-api03-{W90}", "sk-ant-hill"),
    "anthropic admin": ("sk-ant-admin01-{W90}", ""),
    "openrouter": ("sk-or-v1-{H64}", ""),
    "langfuse": ("sk-lf-{H36}", ""),
    "deepseek": ("sk-{H32}", ""),
    "google": ("AIza{W35}", "AIza-short"),
    "google-oauth": ("ya29.{W100}", ""),
    "google client secret": ("GOCSPX-{W28}", ""),
    "google refresh": ("1//0{W60}", ""),
    "huggingface": ("hf_{T34}", "hf_model_name"),
    "groq": ("gsk_{A52}", "gsk_test"),
    "xai": ("xai-{A80}", ""),
    "replicate": ("r8_{A37}", ""),
    "perplexity": ("pplx-{A48}", ""),
    "tavily": ("tvly-{A32}", ""),
    "fireworks": ("fw_{A24}", ""),
    "cerebras": ("csk-{L48}", ""),
    "nvidia": ("nvapi-{W64}", ""),
    "together": ("tgp_v1_{W43}", ""),
    "voyage": ("pa-{W43}", "pa-ra-llel"),
    "langsmith": ("lsv2_pt_{H32}", ""),
    "logfire": ("pylf_v1_us_{A44}", ""),
    "pinecone": ("pcsk_{A60}", ""),
    "elevenlabs": ("sk_{H48}", ""),
    "jina": ("jina_{A60}", ""),
    "e2b": ("e2b_{H40}", ""),
    "firecrawl": ("fc-{H32}", ""),
    "aws": ("AKIA{V16}", "AKIA-ORG"),
    "aws temporary": ("ASIA{V16}", ""),
    "alibaba": ("LTAI{A20}", ""),
    "digitalocean": ("dop_v1_{H64}", ""),
    "heroku": ("HRKU-{W60}", ""),
    "render": ("rnd_{A32}", ""),
    "netlify": ("nfp_{A36}", ""),
    "fly": ("fo1_{W43}", ""),
    "supabase": ("sbp_{H40}", ""),
    "supabase secret": ("sb_secret_{W31}", ""),
    "planetscale": ("pscale_tkn_{W43}", ""),
    "neon": ("napi_{L64}", ""),
    "databricks": ("dapi{H32}", "dapi_client"),
    "tailscale": ("tskey-auth-{A17}", ""),
    "vault": ("hvs.{W90}", ""),
    "vault old": ("s.{A24}", "s.replace"),
    "pulumi": ("pul-{H40}", ""),
    "doppler": ("dp.pt.{A43}", "dp.pt"),
    "github": ("ghp_{A36}", "ghp_tests"),
    "github oauth": ("gho_{A36}", ""),
    "github user": ("ghu_{A36}", ""),
    "github server": ("ghs_{A36}", ""),
    "github refresh": ("ghr_{A76}", ""),
    "github fine": ("github_pat_{A82}", ""),
    "gitlab": ("glpat-{W20}", "glpat-form"),
    "gitlab deploy": ("gldt-{W20}", ""),
    "gitlab runner": ("glrt-{W20}", ""),
    "gitlab trigger": ("glptt-{H40}", ""),
    "bitbucket": ("ATBB{A32}", ""),
    "atlassian": ("ATATT3{W180}", ""),
    "npm": ("npm_{A36}", "npm_config_registry"),
    "pypi": ("pypi-AgEIcHlwaS5vcmc{W150}", ""),
    "rubygems": ("rubygems_{H48}", ""),
    "crates": ("cio{A32}", "cioppino"),
    "docker": ("dckr_pat_{W27}", ""),
    "artifactory": ("AKCp{A69}", ""),
    "buildkite": ("bkua_{H40}", ""),
    "sonar": ("squ_{H40}", ""),
    "postman": ("PMAK-{H58}", ""),
    "grafana service": ("glsa_{A41}", ""),
    "grafana cloud": ("glc_{G60}", ""),
    "sentry user": ("sntryu_{H64}", ""),
    "newrelic": ("NRAK-{X27}", ""),
    "honeycomb": ("hcaik_{L58}", ""),
    "posthog": ("phx_{A43}", ""),
    "slack user": ("xoxp-{D12}-{D12}-{D12}-{H32}", ""),
    "slack app": ("xapp-1-{X80}", ""),
    "slack cookie": ("xoxd-{A80}", ""),
    "brevo": ("xkeysib-{H64}", ""),
    "mailgun": ("key-{H32}", ""),
    "intercom": ("dG9rO{G54}", ""),
    "facebook": ("EAA{A180}", ""),
    "stripe": ("sk_live_{A24}", "sk_live_mode"),
    "stripe test": ("sk_test_{A90}", ""),
    "stripe restricted": ("rk_live_{A90}", ""),
    "stripe-webhook": ("whsec_{A32}", ""),
    "square": ("sq0atp-{W22}", ""),
    "square secret": ("sq0csp-{W43}", ""),
    "shopify": ("shpat_{H32}", ""),
    "flutterwave": ("FLWSECK-{H32}", ""),
    "twilio": ("SK{H32}", "SK-1204"),
    "linear": ("lin_api_{A40}", ""),
    "notion": ("ntn_{A46}", ""),
    "notion old": ("secret_{A43}", ""),
    "figma": ("figd_{W40}", ""),
    "dropbox": ("sl.B{W135}", ""),
    "contentful": ("CFPAT-{W43}", ""),
    "typeform": ("tfp_{W59}", ""),
    "duffel": ("duffel_live_{W43}", ""),
    "easypost": ("EZAK{A54}", ""),
    "frameio": ("fio-u-{W64}", ""),
    "lob": ("live_{H35}", ""),
    "age": ("AGE-SECRET-KEY-1{X58}", ""),
    "bedrock": ("ABSK{G128}", ""),
    "prefect": ("pnu_{A36}", ""),
    "sendgrid": ("SG.{W22}.{W43}", "SG.cc"),
    "mailchimp": ("{H32}-us{N1}", "{H32}"),
    "resend": ("re_{A8}_{A24}", ""),
    "airtable": ("pat{A14}.{H64}", "patch.notes"),
    "discord": ("MT{A24}.{W6}.{W38}", "a.b.c"),
    "terraform": ("{A14}.atlasv1.{W67}", ""),
    "asana": ("1/{N16}:{H32}", "1/2026"),
    "hubspot": ("pat-na1-{UUID}", ""),
    "plaid": ("access-production-{UUID}", ""),
    "braintree": ("access_token$production${L16}${H32}", ""),
    "circleci": ("CCIPAT_{A22}_{H40}", ""),
    "1password service": ("ops_eyJ{A120}", ""),
    "mapbox": ("sk.eyJ{A60}.{W22}", ""),
    "jwt": ("eyJ{A20}.eyJ{A40}.{W43}", ""),
    "sentry": ("sntrys_{A90}", ""),
    "dynatrace": ("dt0c01.{X24}.{X64}", ""),
    "fcm": ("AAAA{W7}:APA91b{W134}", ""),
    "new relic licence, older": ("{H36}NRAL", ""),
    "slack": ("xoxb-{A40}", "xoxo"),
    "telegram": ("{N10}:AA{W33}", "12:AA"),
    "azure ad": ("{A3}8Q~{A34}", "IQ~100"),
    "sourcegraph": ("sgp_{H40}", "sgp_local"),
    "clickhouse": ("4b1d{A38}", "4b1d0e5f"),
    "linkedin": ("WPL_AP1.{A16}.{A10}", "WPL_AP1."),
    "twitch": ("oauth:{L30}", "oauth:2.0:scope"),
    "new relic licence": ("{H36}FFFFNRAL", "{H36}FFFF"),
    "brave": ("BSA{W28}", "BSA-standard"),
    "dify": ("app-{A24}", "app-navigation-sidebarxxxxx"),
    "cursor": ("key_{H64}", "key_value"),
    "n8n": ("n8n_api_{W40}", "n8n_api_key"),
    "apify": ("apify_api_{A36}", "apify_api_client"),
    "google-hmac": ("GOOG1E{X55}", "GOOG1"),
    "yandex": ("y0_{W56}", "y0_start"),
    "onesignal": ("os_v2_app_{L100}", "os_v2_app_name"),
    "paddle": ("pdl_live_apikey_{A26}", "pdl_live"),
    "polar": ("polar_oat_{A43}", "polar_oat_milk"),
    "stytch": ("secret-live-{W36}", "secret-live-show"),
    "unkey": ("unkey_{A22}", "unkey_test"),
    "friendli": ("flp_{A46}", "flp_file"),
    "daytona": ("dtn_{H64}", "dtn_name"),
    "inngest": ("signkey-prod-{H64}", "signkey-rotation"),
    "amazon marketplace": ("amzn.mws.{UUID}", "amzn.mws.v1"),
    "aws session": ("IQoJb3JpZ2lu{A300}", "IQoJb3JpZ2lu"),
    "netbird": ("nbp_{A36}", "nbp_peer"),
    "infisical": ("st.{H24}.{H32}.{H32}", "st.session"),
    "cockroach": ("CCDB1_{A22}_{A40}", "CCDB1_"),
    "axiom": ("xaat-{UUID}", "xaat-"),
    "launchdarkly": ("sdk-{UUID}", "{UUID}"),
    "dbt": ("dbtc_{W43}", "dbtc_project"),
    "trello": ("ATTA{H72}", "ATTACHED"),
    "calcom": ("cal_live_{H32}", "cal_live_view"),
    "sanity": ("sk{A178}", "skies"),
    "atlassian service": ("ATSTT3{W180}", "ATSTT3"),
    "shopify user": ("shpua_{H32}", "shpua_"),
    "stripe organisation": ("sk_org_live_{A60}", "sk_org_live_chart"),
    "1password": ("A3-{X6}-{X6}-{X5}-{X5}-{X5}-{X5}", "A3-paper"),
    "novita": ("sk_{A43}", "sk_learn_model_selection_train_test_split"),
    "ory pat": ("ory_pat_{A32}", ""),
    "ory at": ("ory_at_{W43}.{W43}", ""),
    "ory apikey": ("ory_apikey_{A32}", ""),
    "packagist org": ("packagist_ort_{H68}", ""),
    "packagist user": ("packagist_uut_{H68}", ""),
    "elastic cloud": ("essu_{G96}", ""),
    "lichess": ("lip_{A20}", ""),
    "nylas": ("nyk_v0_{A64}", ""),
    "klaviyo": ("pk_{H34}", ""),
    "midtrans": ("Mid-server-{W24}", ""),
    "nightfall": ("NF-{A32}", ""),
    "openvsx": ("ovsxp_{UUID}", ""),
    "paddle webhook": ("pdl_ntfset_{L26}_{A32}", ""),
    "pinterest": ("pina_{X80}", ""),
    "persona": ("persona_production_{UUID}", ""),
    "postman collection": ("PMAT-{X26}", ""),
    "rootly": ("rootly_{H64}", ""),
    "samsara": ("samsara_api_{A30}", ""),
    "sindri": ("sindri_{A32}_{A10}", ""),
    "stackhawk": ("hawk.{W20}.{W20}", ""),
    "thunderstore": ("tss_{A40}", ""),
    "val town": ("vtwn_{A32}", ""),
    "zuplo": ("zpka_{H32}_{H8}", ""),
    "zoho": ("1000.{H32}.{H32}", ""),
    "databento": ("db-{A29}", ""),
    "xata": ("xau_{A40}", ""),
    "fauna": ("fnA{W37}", ""),
    "convex": ("prod:happy-animal-{D3}|{G90}", ""),
    "tinybird": ("p.eyJ{A80}.{W43}", ""),
    "google auth code": ("4/0A{W70}", ""),
    "appsync": ("da2-{L26}", ""),
    "rancher": ("token-{L5}:{L54}", ""),
    "portainer": ("ptr_{G43}=", ""),
    "docker swarm": ("SWMTKN-1-{L50}-{L25}", ""),
    "vault batch": ("b.AAAAAQ{W120}", ""),
    "jsr": ("jsrp_{A40}", ""),
    "deno": ("ddp_{A36}", ""),
    "gitpod": ("gitpod_pat_{A40}", ""),
    "codesandbox": ("csb_v1_{W43}", ""),
    "depot": ("depot_project_{H64}", ""),
    "socket": ("sktsec_{W44}_api", ""),
    "chromatic": ("chpt_{L15}", ""),
    "honeybadger": ("hbp_{A36}", ""),
    "coralogix": ("cxtp_{A30}", ""),
    "incident.io": ("inc_{H64}", ""),
    "firehydrant": ("fhb-{H32}", ""),
    "checkly": ("cu_{H32}", ""),
    "shopify theme": ("shptka_{H32}", ""),
    "baidu": ("bce-v3/ALTAK-{A21}/{H40}", ""),
    "chutes": ("cpk_{H32}.{H32}.{A32}", ""),
    "promptlayer": ("pl_{H32}", ""),
    "humanloop": ("hl_sk_{H48}", ""),
    "lambda": ("secret_my-key_{H32}.{A32}", ""),
    "retool": ("retool_{L26}", ""),
    "appwrite": ("standard_{H256}", ""),
    "corbado": ("corbado1_{A42}", ""),
    "svix": ("testsk_{A32}.eu", ""),
    "ionic": ("ion_{L42}", ""),
    "beamer": ("b_{W44}", ""),
    "devcycle": ("dvc_server_{UUID}_{H7}", ""),
    "endor": ("endr+{A16}", ""),
    "checkout.com": ("sk_sbox_{L26}", ""),
    "volcengine": ("AKLT{A44}", ""),
    "mergify": ("mka_{W60}", ""),
    "fullstory": ("na1.{G120}", ""),
    "turbopuffer": ("tpuf_{A32}", ""),
    "hop": ("ptk_c_{H40}", ""),
    "windows live": ("M.C{D3}_BAY.0.U.-{A200}", ""),
    "localstack": ("ls-{T4}{D4}-{T4}-{D4}-{T4}-{T4}{D4}{T4}", ""),
    "vercel ai": ("vck_{A56}", ""),
    "tavily dev": ("tvly-dev-{A32}", ""),
    "xendit": ("xnd_production_{A48}", ""),
    "openai admin": ("sk-admin-{W120}", ""),
    "anthropic oauth": ("sk-ant-oat01-{W93}", ""),
    "claude session": ("sk-ant-sid01-{W93}", ""),
    "langgraph": ("lsv2_sk_{H32}_{H10}", ""),
    "minimax": ("sk-api-{W100}", ""),
    "onfido": ("api_live.{W11}.{W32}", ""),
    "revolut": ("sand_{W43}", ""),
    "monzo": ("mnzconf.{W60}", ""),
    "plaid link": ("link-production-{UUID}", ""),
    "square oauth": ("EAAA{W60}", ""),
    "adyen": ("AQE{W120}", ""),
    "discord bearer": ("mfa.{W84}", ""),
    "roblox": (
        "_|WARNING:-DO-NOT-SHARE-THIS.--Sharing-this-will-allow-someone-to-log-in-as-you"
        "-and-to-steal-your-ROBUX-and-items.|_{X200}",
        "",
    ),
    "github app jwt": ("v1.{H40}", ""),
    "lightspeed": ("lsxs_pt_{A32}", ""),
    "jumpcloud": ("jca_{A36}", ""),
    "nango": ("nango_sk_{UUID}", ""),
    "workos": ("sk_a2V5X{A30}", ""),
    "tolgee": ("tgpat_{L52}", ""),
    "tolgee project": ("tgpak_{L52}", ""),
    "grafana old": ("eyJrIjoi{A80}==", ""),
    "datadog app": ("ddapp_{A34}", ""),
    "vestige": ("vstg_{H8}_{A40}", "vstg_"),
    "neon password": ("npg_{A12}", "npg_short"),
    "aiven password": ("AVNS_{W19}", "AVNS_"),
    "mailersend": ("mlsn.{H64}", "mlsn.example"),
    "wakatime": ("waka_{UUID}", "waka_time"),
    "context7": ("ctx7sk-{UUID}", "ctx7sk-"),
    "letta": ("sk-let-{G100}", ""),
    "packagist access": ("packagist_ack_{H72}", ""),
    "coze": ("pat_{A64}", "pat_downs"),
    "dify dataset": ("dataset-{A24}", "dataset-of-three-languages"),
    "wallet": ("xprv9s21ZrQH143K{K96}", "xprv9"),
    "plaid public": ("public-sandbox-{UUID}", "public-sandbox-mode"),
    "login with amazon": ("amzn1.oa2-cs.v1.{H64}", "amzn1.account"),
    "matrix": ("syt_{A12}_{A20}_{A6}", "syt_user"),
    "ebay": ("PRD-{H12}-{H4}-{H4}-{H4}-{H4}", "PRD-204"),
    "boundary": ("at_{A10}_s1{A140}", "at_once"),
    "imagekit": ("private_{G27}=", "private_key_file"),
    "airtable oauth": ("oaa{A14}.v1.{W120}", "oaa.v1"),
    "canva": ("cnvca{W50}", "cnvca"),
    "unleash": ("default:production.{H56}", "default:production.local"),
    "luma": ("luma-{UUID}-{UUID}", "luma-dream"),
    "upcloud": ("ucat_{X26}", "ucat_food"),
    "steel": ("ste-{A60}", "ste-phanie"),
    "arcade": ("arc_{A60}", "arc_length"),
    "lark": ("t-g104{A36}", "t-g104"),
    "nomic": ("nk-{W43}", "nk-model"),
    "woocommerce": ("cs_{H40}", "cs_CZ"),
    "dingtalk": ("SEC{H64}", "SECTION"),
    "azure registry": ("{A42}+ACR{A6}", ""),
    "mollie test": ("test_{A30}", "test_of_the_long_function_name"),
}


TEXTS: dict[str, str] = {
    "markdown": "**Password:** {P}",
    "markdown, code": "**API key:** `{A32}`",
    "markdown, list": "- **API key**: {A32}",
    "slack bold": "*Secret:* {A32}",
    "label": "<b>Password:</b> {P}",
    "label in a table": "<tr><td>Password</td><td>{P}</td></tr>",
    "entities": "&quot;password&quot;:&quot;{P}&quot;",
    "qualified": "API key (staging): {A32}",
    "for": "API key for staging: {A32}",
    "log": "[INFO] token refreshed: {A40}",
    "bad": "KeyError: bad secret '{A32}'",
    "pw": "pw={P}",
    "admin pw": "adminpw={P}",
    "license": "licensekey={A32}",
    "url code": "https://h/callback?code={A40}&state=x",
    "url appid": "https://h/weather?q=Rome&appid={H32}",
    "curl -b": 'curl -b "session={A40}" https://h',
    "curl -u key": 'curl -u "{A32}:" https://h',
    "zip": "zip -e -P {P} a.zip f",
    "rdp": "xfreerdp /u:me /p:{P} /v:h",
    "podman": "podman login -u me -p {P} r.io",
    "skopeo": "skopeo copy --dest-creds me:{P} a b",
    "kinit": 'echo "{P}" | kinit me@H',
    "secret create": "printf '{P}' | docker secret create db -",
    "secret set": 'gh secret set X --body "{A40}"',
    "mc alias": "mc alias set s3 https://h id {A40}",
    "oracle": "CONNECT scott/{P}@orcl",
    "lftp": "open -u me,{P} ftp.h",
    "snmp": "createUser me SHA {P} AES {P2}",
    "unseal": "Unseal Key 1: {B43}=",
    "secret id": "SecretID: {UUID}",
    "set password": "SET PASSWORD FOR 'a'@'h' = '{P}';",
    "jwt call": 'jwt.encode(payload, "{A32}", algorithm="HS256")',
    "hmac call": 'hmac.new(key=b"{A32}", msg=m)',
    "smtp call": 'smtp.login("me@h", "{A16}")',
    "basic_auth": 'C(basic_auth=("me", "{P}"))',
    "pair": "credentials: admin / {P}",
    "bootstrap": "kubeadm join h:6443 --token {L6}.{L16}",
    "parameter": '[{"ParameterKey":"DBPassword","ParameterValue":"{P}"}]',
    "created": '{"result":{"apiKey":{"key":"{A40}","id":"x"}}}',
    "slack webhook": "POST https://hooks.slack.com/services/T0{U8}/B0{U8}/{A24}",
    "discord webhook": "https://discord.com/api/webhooks/1{D17}/{R68}",
    "okta": "Authorization: SSWS 00{R40}",
    "basic": "Authorization: Basic {BASIC}",
    "bearer": "sent Bearer {A40} to h",
    "curl -u": "curl -u admin:{P} https://h/x",
    "curl --user": "curl --user 'admin:{P}' https://h/x",
    "curl -H": "curl -H 'X-Api-Key: {A32}' https://h",
    "url": "postgres://app:{P}@db.internal:5432/app",
    "redis": "redis://:{A20}@cache:6379/0",
    "mongodb": "mongodb+srv://app:{A16}@c0.abcde.mongodb.net/x?retryWrites=true",
    "git": "git clone https://x-access-token:{A40}@github.com/a/b",
    "sentry dsn": "https://{I32}:{H32}@o1.ingest.sentry.io/12",
    "query": "GET /v1/x?api_key={A32}&page=2",
    "sas": "https://a.blob.core.windows.net/c?sv=2022-11-02&sig={B43}%3D",
    "presigned": "https://b.s3.amazonaws.com/k?X-Amz-Signature={H64}&X-Amz-Expires=60",
    "azure storage": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={B86}==;"
    "EndpointSuffix=core.windows.net",
    "azure bus": "Endpoint=sb://n.servicebus.windows.net/;SharedAccessKeyName=Root;"
    "SharedAccessKey={B43}=",
    "sql server": "Server=tcp:h,1433;Database=d;User ID=u;Password={P};Encrypt=true",
    "jdbc": "jdbc:mysql://h/d?user=u&password={P}",
    "java": "java -Djavax.net.ssl.keyStorePassword={P} -jar a.jar",
    "flag": "deploy --password {P} --fast",
    "flag =": "deploy --token={A32}",
    "flag quoted": "deploy --api-key '{A32}'",
    "env": "DB_PASSWORD={P} python a.py",
    "env pass": "SMTP_PASS={P}",
    "env pw": "DB_PW={P}",
    "env pat": "AZURE_DEVOPS_PAT={L52}",
    "env key": "STRIPE_KEY={A32}",
    "pgpassword": "PGPASSWORD={P} psql -h h",
    "export": "export HEROKU_API_KEY={UUID}",
    "squashed": "DBPASSWORD={P}",
    "camel": '{"dbPassword": "{P}", "n": 1}',
    "squashed json": '{"smtppassword": "{P}"}',
    "json in json": '{"body": "{\\"client_secret\\": \\"{A32}\\"}"}',
    "python": "client = Client(api_key='{A32}')",
    "python dict": "{'password': '{P}', 'user': 'a'}",
    "sql role": "CREATE ROLE app WITH LOGIN PASSWORD '{P}';",
    "sql user": "CREATE USER 'a'@'%' IDENTIFIED BY '{P}';",
    "define": "define( 'DB_PASSWORD', '{P}' );",
    "define salt": "define('AUTH_KEY', '{S64}');",
    "xml": "<server><id>r</id><password>{P}</password></server>",
    "xml attribute": '<dataSource url="x" password="{P}"/>',
    "app config": '<add key="ApiKey" value="{A32}"/>',
    "plist": "<key>Password</key>\n<string>{P}</string>",
    "multipart": '--b\r\nContent-Disposition: form-data; name="password"\r\n\r\n{P}\r\n--b--',
    "cookie": "Cookie: session={A32}; theme=dark",
    "set-cookie": "Set-Cookie: sid={A32}; Path=/; HttpOnly",
    "proxy": "Proxy-Authorization: Basic {BASIC}",
    "htpasswd": "alice:$apr1${A8}${A22}",
    "bcrypt": "alice:$2y$10${A53}",
    "shadow": "root:$6${A16}${A86}:19000:0:99999:7:::",
    "pgpass": "db.internal:5432:app:appuser:{P}",
    "netrc": "machine api.h login u password {P}",
    "sshpass": "sshpass -p {P} ssh a@h",
    "mysql": "mysql -u root -p{P} app",
    "docker login": "docker login -u me -p {P} r.io",
    "twilio": "AC{I32}:{H32}",
    "aws csv": "alice,AKIA{V16},{B40}",
    "aws secret": "aws_secret_access_key = {B40}",
    "aws session": "aws_session_token = {B200}",
    "k8s": "data:\n  password: {B64P}\n",
    "yaml": "db:\n  user: app\n  password: {P}\n",
    "yaml quoted": 'db:\n  password: "{P}"\n',
    "toml": '[db]\nuser = "a"\npassword = "{P}"\n',
    "ini": "[db]\nuser = a\npassword = {P}\n",
    "properties": "spring.datasource.username=a\nspring.datasource.password={P}\n",
    "percent": "GET /login?next=%2Fx&password%3D{P}",
    "percent json": "q=%7B%22password%22%3A%22{A32}%22%7D",
    "base64 json": '{"data": "{JSONB64}"}',
    "header json": '[["content-type","x"],["authorization","Bearer {A40}"]]',
    "name value": '{"name": "DB_PASSWORD", "value": "{P}"}',
    "value name": '{"value": "{P}", "name": "DB_PASSWORD"}',
    "argv": '["run", "--token", "{A32}", "--fast"]',
    "pem": "{PEM}",
    "pem json": '{"private_key": "{PEMJSON}"}',
    "putty": "PuTTY-User-Key-File-2: ssh-rsa\nPrivate-Lines: 2\n{B64}\n{B60}\nPrivate-MAC: {I40}",
    "pgp": "-----BEGIN PGP PRIVATE "
    "KEY BLOCK-----\nVersion: G\n\n{B64}\n{B60}\n=aB3d\n-----END PGP PRIVATE "
    "KEY BLOCK-----",
}


def fill(template: str, m: Maker) -> tuple[str, list[str]]:
    """Return a template with values in it, and the values that are secrets."""
    secrets: list[str] = []

    def put(made: str, shown: str | None = None) -> str:
        secrets.append(made)
        return shown if shown is not None else made

    password = m.password()

    def value(found: re.Match[str]) -> str:
        name = found[1]
        user = f"me:{password}"
        pem = "\n".join(m.of(ALPHABETS["G"], 64) for _ in range(4))
        begin, end = ("-----" + each + " RSA PRIVATE " + "KEY-----" for each in ("BEGIN", "END"))
        special: dict[str, Callable[[], str]] = {
            "P": lambda: put(password),
            "P2": lambda: put(m.password()),
            "UUID": lambda: put(m.uuid()),
            "BASIC": lambda: put(base64.b64encode(user.encode()).decode()),
            "BASICRAW": lambda: put(base64.b64encode(user.encode()).decode()),
            "B64P": lambda: put(base64.b64encode(password.encode()).decode()),
            "JSONB64": lambda: put(
                base64.b64encode(f'{{"password": "{password}"}}'.encode()).decode()
            ),
            "PEM": lambda: put(pem.split("\n")[1], f"{begin}\n{pem}\n{end}"),
            "PEMJSON": lambda: put(
                pem.split("\n")[1], f"{begin}\n{pem}\n{end}\n".replace("\n", "\\n")
            ),
        }
        if name in special:
            return special[name]()
        made = m.of(ALPHABETS[name[0]], int(name[1:].rstrip("bc")))
        return made if name[0] in "UDVIN" else put(made)

    return _VALUE.sub(value, template), secrets
