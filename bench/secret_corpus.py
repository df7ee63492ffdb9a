"""Secret texts and credential files, with values made up at run time.

No value is written here: a shape is (prefix, alphabet, length), so that no host's secret scanner
takes this file for a leak, and each round has other values. The shapes are those that vendors
document.
"""

from __future__ import annotations

import base64
import random
import string
import uuid
from collections.abc import Callable, Iterator

UPPER = string.ascii_uppercase
LOWER = string.ascii_lowercase
DIGITS = string.digits
ALNUM = string.ascii_letters + DIGITS
HEX = "0123456789abcdef"
URL = ALNUM + "-_"
B64 = ALNUM + "+/"


class Maker:
    """Makes values; the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def of(self, alphabet: str, length: int) -> str:
        """Random characters; from a mixed alphabet always with a digit and both cases."""
        while True:
            made = "".join(self._random.choice(alphabet) for _ in range(length))
            if length < 8 or alphabet.isdigit() or alphabet.isalpha():
                return made
            if any(c.isdigit() for c in made) and any(c.isalpha() for c in made):
                return made

    def uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def password(self) -> str:
        """As people choose them."""
        word = self._random.choice(("Tiger", "orange", "Sommer", "kitten", "Falcon", "bridge"))
        return word + self._random.choice(("-", "!", "", "_", "#")) + self.of(DIGITS, 4) + "x!"


def shapes(m: Maker) -> Iterator[tuple[str, str]]:
    """Name and secret of every documented shape."""
    for name, prefix, alphabet, length in (
        ("openai", "sk" + "-proj-", URL, 80),
        ("openai service", "sk" + "-svcacct-", URL, 60),
        ("openai old", "sk" + "-", ALNUM, 48),
        ("anthropic", "sk" + "-ant-api03-", URL, 90),
        ("anthropic admin", "sk" + "-ant-admin01-", URL, 90),
        ("openrouter", "sk" + "-or-v1-", HEX, 64),
        ("langfuse", "sk" + "-lf-", HEX, 36),
        ("deepseek", "sk" + "-", HEX, 32),
        ("google", "AI" + "za", URL, 35),
        ("google oauth", "ya" + "29.", URL, 100),
        ("google client secret", "GOC" + "SPX-", URL, 28),
        ("google refresh", "1/" + "/0", URL, 60),
        ("huggingface", "h" + "f_", string.ascii_letters, 34),
        ("groq", "gs" + "k_", ALNUM, 52),
        ("xai", "xa" + "i-", ALNUM, 80),
        ("replicate", "r" + "8_", ALNUM, 37),
        ("perplexity", "pp" + "lx-", ALNUM, 48),
        ("tavily", "tv" + "ly-", ALNUM, 32),
        ("fireworks", "f" + "w_", ALNUM, 24),
        ("cerebras", "cs" + "k-", LOWER + DIGITS, 48),
        ("nvidia", "nv" + "api-", URL, 64),
        ("together", "tg" + "p_v1_", URL, 43),
        ("voyage", "p" + "a-", URL, 43),
        ("langsmith", "ls" + "v2_pt_", HEX, 32),
        ("logfire", "py" + "lf_v1_us_", ALNUM, 44),
        ("pinecone", "pc" + "sk_", ALNUM, 60),
        ("elevenlabs", "s" + "k_", HEX, 48),
        ("jina", "ji" + "na_", ALNUM, 60),
        ("e2b", "e" + "2b_", HEX, 40),
        ("firecrawl", "f" + "c-", HEX, 32),
        ("aws id", "AK" + "IA", UPPER + "234567", 16),
        ("aws temporary", "AS" + "IA", UPPER + "234567", 16),
        ("alibaba", "LT" + "AI", ALNUM, 20),
        ("digitalocean", "do" + "p_v1_", HEX, 64),
        ("heroku", "HR" + "KU-", URL, 60),
        ("render", "rn" + "d_", ALNUM, 32),
        ("netlify", "nf" + "p_", ALNUM, 36),
        ("fly", "fo" + "1_", URL, 43),
        ("supabase", "sb" + "p_", HEX, 40),
        ("supabase secret", "sb" + "_secret_", URL, 31),
        ("planetscale", "ps" + "cale_tkn_", URL, 43),
        ("neon", "na" + "pi_", LOWER + DIGITS, 64),
        ("databricks", "da" + "pi", HEX, 32),
        ("tailscale", "ts" + "key-auth-", ALNUM, 17),
        ("vault", "hv" + "s.", URL, 90),
        ("vault old", "s" + ".", ALNUM, 24),
        ("pulumi", "pu" + "l-", HEX, 40),
        ("doppler", "dp" + ".pt.", ALNUM, 43),
        ("github", "gh" + "p_", ALNUM, 36),
        ("github oauth", "gh" + "o_", ALNUM, 36),
        ("github user", "gh" + "u_", ALNUM, 36),
        ("github server", "gh" + "s_", ALNUM, 36),
        ("github refresh", "gh" + "r_", ALNUM, 76),
        ("github fine", "github" + "_pat_", ALNUM + "_", 82),
        ("gitlab", "gl" + "pat-", URL, 20),
        ("gitlab deploy", "gl" + "dt-", URL, 20),
        ("gitlab runner", "gl" + "rt-", URL, 20),
        ("gitlab trigger", "gl" + "ptt-", HEX, 40),
        ("bitbucket", "AT" + "BB", ALNUM, 32),
        ("atlassian", "ATA" + "TT3", URL, 180),
        ("npm", "np" + "m_", ALNUM, 36),
        ("pypi", "py" + "pi-AgEIcHlwaS5vcmc", URL, 150),
        ("rubygems", "ruby" + "gems_", HEX, 48),
        ("crates", "ci" + "o", ALNUM, 32),
        ("docker", "dck" + "r_pat_", URL, 27),
        ("artifactory", "AK" + "Cp", ALNUM, 69),
        ("buildkite", "bk" + "ua_", HEX, 40),
        ("sonar", "sq" + "u_", HEX, 40),
        ("postman", "PM" + "AK-", HEX, 24 + 34),
        ("grafana service", "gl" + "sa_", ALNUM, 41),
        ("grafana cloud", "gl" + "c_", B64, 60),
        ("sentry user", "sn" + "tryu_", HEX, 64),
        ("newrelic", "NR" + "AK-", UPPER + DIGITS, 27),
        ("honeycomb", "hc" + "aik_", LOWER + DIGITS, 58),
        ("posthog", "ph" + "x_", ALNUM, 43),
        ("slack user", "xo" + "xp-", DIGITS + "-" + HEX, 60),
        ("slack app", "xa" + "pp-1-", UPPER + DIGITS, 80),
        ("slack cookie", "xo" + "xd-", ALNUM, 80),
        ("brevo", "xkey" + "sib-", HEX, 64),
        ("mailgun", "ke" + "y-", HEX, 32),
        ("intercom", "dG" + "9rO", B64, 54),
        ("facebook", "EA" + "A", ALNUM, 180),
        ("stripe", "sk" + "_live_", ALNUM, 24),
        ("stripe test", "sk" + "_test_", ALNUM, 90),
        ("stripe restricted", "rk" + "_live_", ALNUM, 90),
        ("stripe webhook", "wh" + "sec_", ALNUM, 32),
        ("square", "sq0" + "atp-", URL, 22),
        ("square secret", "sq0" + "csp-", URL, 43),
        ("shopify", "shp" + "at_", HEX, 32),
        ("flutterwave", "FLW" + "SECK-", HEX, 32),
        ("twilio", "S" + "K", HEX, 32),
        ("linear", "li" + "n_api_", ALNUM, 40),
        ("notion", "nt" + "n_", ALNUM, 46),
        ("notion old", "sec" + "ret_", ALNUM, 43),
        ("figma", "fi" + "gd_", URL, 40),
        ("dropbox", "sl" + ".B", URL, 135),
        ("contentful", "CF" + "PAT-", URL, 43),
        ("typeform", "tf" + "p_", URL, 59),
        ("duffel", "duf" + "fel_live_", URL, 43),
        ("easypost", "EZ" + "AK", ALNUM, 54),
        ("frameio", "fi" + "o-u-", URL, 64),
        ("lob", "li" + "ve_", HEX, 35),
        ("age", "AGE-" + "SECRET-KEY-1", UPPER + DIGITS, 58),
        ("bedrock", "AB" + "SK", B64, 128),
        ("prefect", "pn" + "u_", ALNUM, 36),
    ):
        yield name, prefix + m.of(alphabet, length)
    yield "sendgrid whole", "S" + "G." + m.of(URL, 22) + "." + m.of(URL, 43)
    yield "mailchimp", m.of(HEX, 32) + "-us" + m.of("12345678", 1)
    yield "resend", "r" + "e_" + m.of(ALNUM, 8) + "_" + m.of(ALNUM, 24)
    yield "airtable", "pa" + "t" + m.of(ALNUM, 14) + "." + m.of(HEX, 64)
    yield "discord bot", "MT" + m.of(ALNUM, 24) + "." + m.of(URL, 6) + "." + m.of(URL, 38)
    yield "terraform", m.of(ALNUM, 14) + ".atlas" + "v1." + m.of(URL, 67)
    yield "telegram", m.of("123456789", 10) + ":" + "AA" + m.of(URL, 33)
    yield "asana", "1" + "/" + m.of("123456789", 16) + ":" + m.of(HEX, 32)
    yield "hubspot", "pa" + "t-na1-" + m.uuid()
    yield "plaid", "access" + "-production-" + m.uuid()
    yield (
        "braintree",
        "access" + "_token$production$" + m.of(LOWER + DIGITS, 16) + "$" + m.of(HEX, 32),
    )
    yield "circleci", "CCI" + "PAT_" + m.of(ALNUM, 22) + "_" + m.of(HEX, 40)
    yield "azure ad", m.of(ALNUM, 3) + "8" + "Q~" + m.of(ALNUM, 34)
    yield "1password service", "op" + "s_eyJ" + m.of(ALNUM, 120)
    yield "1password", "A3" + "-" + "-".join(m.of(UPPER + DIGITS, n) for n in (6, 6, 5, 5, 5, 5))
    yield "mapbox", "s" + "k.eyJ" + m.of(ALNUM, 60) + "." + m.of(URL, 22)
    yield "jwt", "ey" + "J" + m.of(ALNUM, 20) + ".ey" + "J" + m.of(ALNUM, 40) + "." + m.of(URL, 43)
    yield "sentry", "sn" + "trys_" + m.of(ALNUM, 90)
    yield "dynatrace", "dt" + "0c01." + m.of(UPPER + DIGITS, 24) + "." + m.of(UPPER + DIGITS, 64)
    yield "fcm", "AA" + "AA" + m.of(URL, 7) + ":APA" + "91b" + m.of(URL, 134)
    yield "new relic licence", m.of(HEX, 36) + "NR" + "AL"


TEXTS: dict[str, str] = {
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
    "azure storage": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={B86}==;EndpointSuffix=core.windows.net",
    "azure bus": "Endpoint=sb://n.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={B43}=",
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

FILES: dict[str, str] = {
    ".aws/credentials": "[default]\naws_access_key_id = AK"
    "IA{V16}\naws_secret_access_key = {B40}\naws_session_token = {B200}\n",
    ".my.cnf": "[client]\nuser = root\npassword = {P}\n",
    ".pypirc": "[distutils]\nindex-servers =\n    pypi\n[pypi]\nusername = me\npassword = {P}\n",
    ".env": "DEBUG=1\nDATABASE_URL=postgres://a:{P}@h/d\nSECRET_KEY={A50}\nSMTP_PASS={P2}\nSTRIPE_KEY={A32}\n",
    ".env blanks": "DEBUG = 1\nAPI_KEY = {A32}\nDB_PASSWORD = '{P}'\n",
    ".s3cfg": "[default]\naccess_key = AKIA{V16}\nsecret_key = {B40}\ngpg_passphrase = {P}\n",
    "rclone.conf": '[r]\ntype = sftp\nhost = h\nuser = u\npass = {R32}\n[g]\ntype = drive\ntoken = {"access_token":"ya29.{R60}","refresh_token":"1//0{R50}"}\n',
    ".netrc": "machine api.h\n  login u\n  password {P}\nmachine b login c password {P2}\n",
    ".pgpass": "h:5432:d:u:{P}\n*:*:*:u2:{P2}\n",
    ".docker/config.json": '{"auths": {"https://index.docker.io/v1/": {"auth": "{BASICRAW}"}}}',
    "kubeconfig": "apiVersion: v1\nusers:\n- name: a\n  user:\n    client-certificate-data: LS0t\n    client-key-data: {B200}\n- name: b\n  user:\n    token: {A60}\n",
    "wg0.conf": "[Interface]\nAddress = 10.0.0.1/24\nPrivateKey = {B43}=\n[Peer]\nPublicKey = x\nPresharedKey = {B43b}=\n",
    "wp-config.php": "<?php\ndefine( 'DB_NAME', 'w' );\ndefine( 'DB_PASSWORD', '{P}' );\ndefine( 'AUTH_KEY', '{S64}' );\ndefine( 'NONCE_SALT', '{S64b}' );\n",
    "settings.xml": "<settings><servers><server><id>r</id><username>u</username><password>{P}</password></server></servers></settings>",
    "credentials.xml": "<com.cloudbees.X><username>u</username><password>{P}</password><secret>{A32}</secret></com.cloudbees.X>",
    ".npmrc": "registry=https://r/\n//registry.npmjs.org/:_authToken={UUID}\n_auth={BASICRAW}\n",
    "pip.conf": "[global]\nindex-url = https://u:{P}@pypi.h/simple\n",
    ".cargo/credentials.toml": '[registry]\ntoken = "{A35}"\n',
    "gh hosts.yml": "github.com:\n    user: a\n    oauth_token: {A40}\n    git_protocol: https\n",
    "adc.json": '{"client_id": "764086051850-x.apps.googleusercontent.com", "client_secret": "{R24}", "refresh_token": "1//0{R60}", "type": "authorized_user"}',
    "service-account.json": '{"type": "service_account", "project_id": "p", "private_key_id": "x", "private_key": "{PEMJSON}", "client_email": "a@p"}',
    "google-services.json": '{"client": [{"api_key": [{"current_key": "AI" "za{R35}"}]}]}'.replace(
        'AI" "za', "AIza"
    ),
    "azure.json": '{"clientId": "x", "clientSecret": "{A34}", "tenantId": "y"}',
    "snowflake.toml": '[connections.a]\naccount = "x"\nuser = "u"\npassword = "{P}"\n',
    "profiles.yml": "p:\n  outputs:\n    dev:\n      type: postgres\n      user: a\n      pass: {P}\n",
    "profiles2.yml": "p:\n  outputs:\n    dev:\n      type: snowflake\n      user: a\n      password: {P}\n",
    "id_rsa": "{PEM}\n",
    "key.ppk": "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nPublic-Lines: 1\nAAAA\nPrivate-Lines: 1\n{B64}\nPrivate-MAC: {I64}\n",
    ".htpasswd": "a:$apr1${A8}${A22}\nb:$2y$10${A53}\n",
    "shadow": "a:$6${A16}${A86}:19000:0:99999:7:::\nb:$y$j9T${A22}${A43}:19000::::::\n",
    "terraform.tfvars": 'region = "x"\ndb_password = "{P}"\napi_token = "{A32}"\n',
    "variables.tf": 'variable "db_password" {\n  type = string\n  default = "{P}"\n}\n',
    "tfstate": '{"resources": [{"instances": [{"attributes": {"password": "{P}", "id": "x"}}]}]}',
    "ansible.yml": "all:\n  vars:\n    ansible_user: a\n    ansible_password: {P}\n    ansible_become_pass: {P2}\n",
    "workflow.yml": "jobs:\n  a:\n    env:\n      API_TOKEN: {A40}\n      NAME: x\n",
    "compose.yml": "services:\n  db:\n    environment:\n      POSTGRES_PASSWORD: {P}\n      - MYSQL_ROOT_PASSWORD={P2}\n",
    "k8s.yml": "env:\n  - name: DB_PASSWORD\n    value: {P}\n",
    "application.properties": "spring.datasource.password={P}\nspring.mail.password = {P2}\n",
    "application.yml": "spring:\n  datasource:\n    username: a\n    password: {P}\n",
    "web.config": '<configuration><connectionStrings><add name="d" connectionString="Server=h;Password={P};" /></connectionStrings><appSettings><add key="ClientSecret" value="{A32}" /></appSettings></configuration>',
    "database.yml": "production:\n  adapter: mysql2\n  username: a\n  password: <%= x %>\ndevelopment:\n  password: {P}\n",
    "msmtprc": "account a\nhost h\nuser u\npassword {P}\n",
    "wpa_supplicant.conf": 'network={\n  ssid="a"\n  psk="{P}"\n}\n',
    "redis.conf": "port 6379\nrequirepass {A32}\nmasterauth {A33}\n",
    ".git-credentials": "https://u:{A40}@github.com\n",
    "filezilla.xml": '<Server><Host>h</Host><User>u</User><Pass encoding="base64">{B24}</Pass></Server>',
    "openvpn auth": "<auth-user-pass>\nu\n{P}\n</auth-user-pass>\n",
    "slack.yml": "slack:\n  bot_token: xoxb-{D12}-{A24}\n",
    "boto": "[Credentials]\ngs_secret_access_key = {B40}\n",
    "travis": "env:\n  global:\n    - TOKEN={A32}\n",
    "ldap.conf": "binddn cn=a\nbindpw {P}\n",
    "pip requirements": "--index-url https://u:{P}@h/simple\nrequests\n",
    "odbc.ini": "[d]\nServer = h\nUID = u\nPWD = {P}\n",
    "firebase.js": 'const firebaseConfig = {\n  apiKey: "AI" "za{R35}",\n  projectId: "p",\n};\n'.replace(
        'AI" "za', "AIza"
    ),
}


def fill(template: str, m: Maker) -> tuple[str, list[str]]:
    """A template with values in it, and the values."""
    secrets: list[str] = []

    def put(made: str, shown: str | None = None) -> str:
        secrets.append(made)
        return shown if shown is not None else made

    password = m.password()
    kinds: dict[str, Callable[[int], str]] = {
        "A": lambda n: m.of(ALNUM, n),
        "H": lambda n: m.of(HEX, n),
        "R": lambda n: m.of(ALNUM, n),
        "B": lambda n: m.of(ALNUM, n),
        "U": lambda n: m.of(UPPER, n),
        "D": lambda n: m.of(DIGITS, n),
        "L": lambda n: m.of(LOWER + DIGITS, n),
        "V": lambda n: m.of(UPPER + "234567", n),
        "I": lambda n: m.of(HEX, n),
        "S": lambda n: m.of(ALNUM + "!#%^*", n),
    }
    import re

    def value(found: re.Match[str]) -> str:
        name = found[1]
        user = f"me:{password}"
        pem = "\n".join(m.of(B64, 64) for _ in range(4))
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
        made = kinds[name[0]](int(name[1:].rstrip("bc")))
        if name[0] in "UDVI":  # ids, not secrets
            return made
        return put(made)

    return re.sub(r"\{([A-Z][0-9A-Z]*[bc]?)\}", value, template), secrets
