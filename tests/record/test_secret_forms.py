"""Credential forms and key shapes: each is masked, and the text that resembles it is not.

Values are made at run time, so that this file contains nothing that looks like a key.
"""

from __future__ import annotations

import base64
import random
import string
import uuid

import msgspec
import pytest

from vestige.record.redaction.masking import mask
from vestige.record.redaction.output_redaction import redact_values
from vestige.record.redaction.redactor import Redactor

REDACTOR = Redactor()
HEX = "0123456789abcdef"
ALNUM = string.ascii_letters + string.digits
UPPER = string.ascii_uppercase + string.digits
URL = ALNUM + "-_"

PASSWORD = "Falcon" + "-8203x!"
USER_PASSWORD = base64.b64encode(f"me:{PASSWORD}".encode()).decode()


def made(alphabet: str, length: int) -> str:
    """Random characters, always the same, with digits and both cases if the alphabet has them."""
    source = random.Random(f"{alphabet}{length}")
    rest = "".join(source.choice(alphabet) for _ in range(length - 3))
    return "".join(("7" if "7" in alphabet else "K", rest, alphabet[0], alphabet[-1]))[:length]


SECRET = made(ALNUM, 40)

LETTERS = "iLfftFE" + "oHlNSCO"

FORMS: dict[str, tuple[str, str, str]] = {
    # name: (template, value, a similar text without a secret)
    "ini": ("[db]\nuser = a\npassword = {}\nport = 1", PASSWORD, "password = getpass.getpass()"),
    "ini, aws": (
        "[default]\naws_secret_access_key = {}\nregion = x",
        SECRET,
        "aws_secret_access_key = os.environ['KEY']",
    ),
    "env": ("DB_PASSWORD={} python a.py", PASSWORD, "DB_PASSWORD=$OTHER python a.py"),
    "env, pass": ("SMTP_PASS={}", PASSWORD, "TESTS_PASS=yes"),
    "env, pat": ("AZURE_DEVOPS_PAT={}", made(ALNUM, 52), "FILE_PAT=*.py"),
    "env, key": ("STRIPE_KEY={}", made(ALNUM, 32), "SORT_KEY=created_at"),
    "env, PGPASSWORD": ("PGPASSWORD={} psql -h h", PASSWORD, "PGPASSWORD=${PW} psql -h h"),
    "env, one word": ("DBPASSWORD={}", PASSWORD, "PWD=/home/me"),
    "triple quotes": ('password = """{}"""', PASSWORD, 'password = """"""'),
    "yaml block": ("secret: |\n  {}\nother: 1", SECRET, "secret: |\n  the words of a sentence\n"),
    "csv column": (
        "name,password,age\nbob,{},7\n",
        PASSWORD,
        "name,password,age\nbob,,7\n",
    ),
    "markdown column": (
        "| user | password |\n|---|---|\n| bob | {} |\n",
        PASSWORD,
        "| user | password |\n|---|---|\n| bob | required |\n",
    ),
    "sql insert": (
        "INSERT INTO users (name, password) VALUES ('bob', '{}'), ('ann', NULL);",
        PASSWORD,
        "INSERT INTO users (name, password) VALUES (?, ?);",
    ),
    "ruby default": ('ENV["DB_PASSWORD"] ||= "{}"', PASSWORD, 'ENV["DB_PASSWORD"] ||= ""'),
    "go bytes": ('signingKey := []byte("{}")', SECRET, "signingKey := []byte(key)"),
    "java property": (
        'props.setProperty("db.password", "{}");',
        PASSWORD,
        'props.setProperty("db.password", value);',
    ),
    "rust basic auth": (
        '.basic_auth("me", Some("{}"))',
        PASSWORD,
        '.basic_auth("me", None::<&str>)',
    ),
    "perl database": (
        'DBI->connect("dbi:mysql:d", "me", "{}")',
        PASSWORD,
        'DBI->connect("dbi:mysql:d", "me", $password)',
    ),
    "query, auth": ("wss://h/?auth={}", SECRET, "https://h/?auth=required"),
    "token as user name": ("https://{}:x-oauth-basic@h/a.git", made(HEX, 40), "https://h/a.git"),
    "oauth signature": (
        'OAuth realm="a", oauth_signature="{}"',
        SECRET,
        'OAuth realm="a", oauth_signature_method="HMAC-SHA1"',
    ),
    "lftp": ("lftp -u me,{} sftp://h", PASSWORD, "lftp -u me sftp://h"),
    "ipsec": (': PSK "{}"', PASSWORD, "a: PSK or a certificate"),
    "jwk, symmetric": ('{{"kty":"oct","k":"{}"}}', SECRET, '{"kty":"oct","alg":"HS256"}'),
    "jwk, private": (
        '{{"kty":"RSA","n":"x","d":"{}"}}',
        SECRET,
        '{"kty":"RSA","n":"x","e":"AQAB"}',
    ),
    "xml element": (
        "<server><id>r</id><password>{}</password></server>",
        PASSWORD,
        "<password></password><passwordPolicy>strict</passwordPolicy>",
    ),
    "xml attribute": (
        '<add key="ApiKey" value="{}"/>',
        made(ALNUM, 32),
        '<add key="Timeout" value="3000"/>',
    ),
    "xml pass": ("<Pass>{}</Pass>", PASSWORD, "<passage>Some words here</passage>"),
    "plist": (
        "<key>Password</key>\n<string>{}</string>",
        PASSWORD,
        "<key>Name</key>\n<string>Password</string>",
    ),
    "netrc": (
        "machine api.h login u password {}",
        PASSWORD,
        "the login page asks for a password twice",
    ),
    "netrc, lines": (
        "machine api.h\n  login u\n  password {}\n",
        PASSWORD,
        "machine learning\n  needs data",
    ),
    "pgpass": ("db.internal:5432:app:me:{}", PASSWORD, "db.internal:5432:app:me"),
    "docker auth": (
        '{{"auths": {{"r.io": {{"auth": "{}"}}}}}}',
        USER_PASSWORD,
        '{"auth": "required"}',
    ),
    "kubeconfig key": (
        "  user:\n    client-key-data: {}\n",
        made(ALNUM, 200),
        "  user:\n    client-certificate-data: LS0tLS1CRUdJTiBDRVJU\n",
    ),
    "kubeconfig token": (
        "users:\n- name: b\n  user:\n    token: {}\n",
        made(ALNUM, 60),
        "users:\n- name: token\n  user:\n    name: b\n",
    ),
    "curl -u": (
        "curl -u admin:{} https://h/x",
        PASSWORD,
        "docker run -u 1000:1000 image",
    ),
    "curl --user": ("curl --user 'admin:{}' https://h", PASSWORD, "curl --user $NAME https://h"),
    "sql role": (
        "CREATE ROLE app WITH LOGIN PASSWORD '{}';",
        PASSWORD,
        "SELECT password FROM users WHERE name = 'a';",
    ),
    "sql user": (
        "CREATE USER 'a'@'%' IDENTIFIED BY '{}';",
        PASSWORD,
        'a row is identified by "its name", a channel identified as "James\'s"',
    ),
    "multipart": (
        '--b\r\nContent-Disposition: form-data; name="password"\r\n\r\n{}\r\n--b--',
        PASSWORD,
        '--b\r\nContent-Disposition: form-data; name="title"\r\n\r\npassword\r\n--b--',
    ),
    "option": ("deploy --password {} --fast", PASSWORD, "deploy --password-file secrets.txt"),
    "option =": ("deploy --token={}", made(ALNUM, 32), "deploy --max-tokens=4096"),
    "option, quoted": ("deploy --api-key '{}'", made(ALNUM, 32), "deploy --api-key '$KEY'"),
    "sshpass": ("sshpass -p {} ssh a@h", PASSWORD, "sshpass -p $PW ssh a@h"),
    "mysql -p": ("mysql -u root -p{} app", PASSWORD, "mysql -u root -p app"),
    "docker login": ("docker login -u me -p {} r.io", PASSWORD, "docker login r.io"),
    "url": ("postgres://app:{}@db:5432/app", PASSWORD, "postgres://user:password@host/db"),
    "yaml": (
        "db:\n  user: app\n  password: {}\n",
        PASSWORD,
        "db:\n  user: app\n  password: ${PW}\n",
    ),
    "directive": ("port 6379\nrequirepass {}\n", made(ALNUM, 32), "port 6379\nrequirepass no\n"),
    "php": ("define( 'DB_PASSWORD', '{}' );", PASSWORD, "define( 'DB_NAME', 'shop' );"),
    "percent-encoded": (
        "q=%7B%22password%22%3A%22{}%22%7D",
        made(ALNUM, 32),
        "q=%7B%22page%22%3A2",
    ),
    "env, letters only": ("PGPASSWORD={} psql -h h", LETTERS, "PASSWORD=newDbCfgPass python a.py"),
    "camel case, key": ('{{"openaiKey":"{}"}}', made(ALNUM, 24), '{"s3Key":"up/9f8a7b6c5d4e3f/a"}'),
    "camel case, pat": ('{{"gitlabPat":"{}"}}', made(ALNUM, 24), '{"filePat":"*.py"}'),
    "camel case, pass": ("<DbPass>{}</DbPass>", PASSWORD, "<BrowsePass>12.5</BrowsePass>"),
    "one word, pass": ("smtppass={}", PASSWORD, "bypass=Falcon-8203x first_pass=12.5"),
    "a key that starts with cookie": (
        "cookie-secret: {}",
        made(ALNUM, 20),
        "Cookie: the browser sends it back",
    ),
    "ldap": ("ldapsearch -D cn=a -w {} -x", made(ALNUM, 14), "ldapsearch -W -D cn=a && ls -w 80"),
    "sentence": (
        "The password is {} for the staging box.",
        PASSWORD[:-1],
        "The password is SHA256-hashed. The password was changed on 2026-01-02.",
    ),
    "sentence, token": (
        "my token is {}, keep it",
        made(ALNUM, 24),
        "The token is valid for 3600 seconds. The secret is base64-encoded.",
    ),
    "sentence, two words": ("Our API key is {}.", made(ALNUM, 24), "The API key is missing2."),
    "setting in a message": (
        "bad request: mysql_pwd = {}",
        made(ALNUM, 20),
        "bad request: mysql_pwd = required",
    ),
    "with an ampersand": (
        "hi, password = {}\nlater",
        PASSWORD + "&3xyz99",
        "https://h/?token=<token>&page=2&next",
    ),
    "with an ampersand in a URL": (
        "https://h/?token={}&page=2&next",
        made(ALNUM, 20),
        "token=$TOKEN&&echo done",
    ),
    "form, doubtful key": (
        'form-data; name="db_pass"\r\n\r\n{}\r\n--x',
        made(ALNUM, 20),
        'form-data; name="db_name"\r\n\r\nshop\r\n--x',
    ),
    "yaml, doubtful key": (
        '- name: DB_PASS\n  value: "{}"',
        made(ALNUM, 20),
        '- name: DB_NAME\n  value: "shop"',
    ),
    "shortened by a test runner": (
        "assert '{}' == 'x'",
        "sk-" + "ant-api03..." + made(ALNUM, 13),
        "Set it to sk-ant-... or gh" + "p_...",
    ),
    "fish": ("set -x API_TOKEN {}", SECRET, "set -x EDITOR vim"),
    "csh": ("setenv DB_PASSWORD {}", SECRET, "setenv PATH /usr/local/bin1"),
    "Dockerfile": ("FROM a\nENV API_TOKEN {}\nRUN b", SECRET, "ENV TOKEN_FILE /run/tokens/x1"),
    "az login": (
        "az login --service-principal -u a -p {} --tenant t",
        SECRET,
        "az login -t a1b2c3",
    ),
    "openssl -k": ("openssl enc -aes-256-cbc -k {} -in a", SECRET, "openssl x509 -in a1b2.pem"),
    "zip -P": ("zip -P {} a.zip b", SECRET, "zip -r backup2024.zip b"),
    "HTTPie": ("http -a me:{} GET x.example", SECRET, "http -a me GET x.example:8080"),
    "Bundler": ('BUNDLE_GEMS__EXAMPLE__COM: "me:{}"', SECRET, 'BUNDLE_PATH: "vendor/bundle2"'),
    "SNMP": ("snmp-server community {} RO", SECRET, "snmp-server community public RO"),
    "Terraform's state": (
        '{{"outputs": {{"db_password": {{"value": "{}", "type": "string"}}}}}}',
        SECRET,
        '{"tokens": {"token": {"value": "16px", "type": "size"}}}',
    ),
    "keytool": ("keytool -storepass {} -list", PASSWORD, "keytool -storepass:env KS1_PASS -list"),
    "unzip -P": ("unzip -o -P {} a.zip", PASSWORD, "unzip -o backup2024.zip -d P1x2y3"),
    "7z -p": ("7z x -p{} a.7z", PASSWORD, "7z x -o/tmp/p1q2 a.7z"),
    "sqlcmd -P": ("sqlcmd -S h -U sa -P {} -Q q", PASSWORD, "sqlcmd -S h -E -i file2024.sql"),
    "sqlplus": ("sqlplus scott/{}@orcl", "Falcon8203x", "sqlplus / as sysdba @a1b2c3.sql"),
    "Oracle's JDBC": (
        "jdbc:oracle:thin:u/{}@//h:1521/x",
        "Falcon8203x",
        "jdbc:oracle:thin:@h:1521",
    ),
    "RabbitMQ": ("rabbitmqctl add_user bob {}", PASSWORD, "rabbitmqctl list_users a1b2c3d4"),
    "htpasswd -b": ("htpasswd -bc f bob {}", PASSWORD, "htpasswd -c file2024 bob"),
    "chpasswd": ('echo "bob:{}" | sudo chpasswd', PASSWORD, 'echo "bob:a1b2c3" | tr : -'),
    "sudo -S": ("echo {} | sudo -S ls", PASSWORD, "echo a1b2c3d4 | sudo tee f"),
    "usermod -p": ("usermod -p {} bob", PASSWORD, "usermod -aG group2024 bob"),
    "vault login": ("vault login {}", SECRET, "vault login -method=ldap"),
    "twine -p": ("twine upload -u u -p {} dist/a", SECRET, "twine upload dist/a-1.2.3.whl"),
    "smbclient": ("smbclient //h/s -U bob%{}", PASSWORD, "smbclient //h/s -U bob9x8y7z"),
    "wpa_passphrase": ("wpa_passphrase Home {}", PASSWORD, "wpa_passphrase: bad ssid2024"),
    "aws configure": (
        "aws configure set aws_secret_access_key {}",
        SECRET,
        "aws configure set region us-east-1",
    ),
    "npm config": (
        "npm config set //r.example/:_authToken {}",
        SECRET,
        "npm config set registry https://r.example/a1b2c3",
    ),
    "setx": ('setx GITHUB_TOKEN "{}"', SECRET, 'setx PATH "C:/a1b2c3d4e5"'),
    "basic auth in Python": (
        'get(url, auth=("bob", "{}"))',
        PASSWORD,
        'get(url, auth=("user", "password"))',
    ),
    "a call": ('b.withPassword("{}")', SECRET, 'driver.password("password-field")'),
    "MySQL's function": ("SET x = PASSWORD('{}')", SECRET, "SET x = PASSWORD(@value1)"),
    "R": ('password <- "{}"', SECRET, "password <- read_password(a1b2)"),
    "C": ('#define API_KEY "{}"', SECRET, '#define API_KEY "api-key"'),
    "XML entry": (
        '<entry key="db.password">{}</entry>',
        PASSWORD,
        '<entry key="db.h">a1b2</entry>',
    ),
    "HTML input": (
        '<input type="password" name="p" value="{}">',
        PASSWORD,
        '<input type="text" name="p" value="a1b2c3d4">',
    ),
    "digest": (
        'Digest username="b", response="{}"',
        made(HEX, 32),
        'got response="a1b2c3d4"',
    ),
    "AppRole": (
        "vault write l secret_id={}",
        "8f0c2b1e-7a3d-4c5b-9e6f-1a2b3c4d5e6f",
        'get(SecretId="prod/db1")',
    ),
    "key of a URL": ("GET https://h/x?key={}&v=1", SECRET, "GET https://h/x?key=user:1234&v=1"),
    "a sentence": ("Use the password {} to log in", PASSWORD, "Use the password field2 to log in"),
    "a switch's configuration": ("username admin password {}", PASSWORD, "the login page password"),
    "enable secret": ("enable secret {}", PASSWORD, "enable secret rotation2"),
    "Spanish": ("contraseña: {}", PASSWORD, "contraseña: olvidada"),
    "French": ("Mot de passe : {}", PASSWORD, "mot de passe : oublié"),
    "Chinese": ("密码: {}", PASSWORD, "密码: 错误"),
    "mount options": ("mount -o username=b,password={} /m", PASSWORD, "mount -o uid=b,gid=a1b2"),
    "an escaped tab": ("Password:\\t{}", PASSWORD, "Path:\\ta1b2c3d4"),
    "an escaped sign": ("password\\u003d{}", SECRET, "page\\u003da1b2c3d4e5"),
    "a here string": ("gh auth login --with-token <<< {}", SECRET, "cat <<< a1b2c3d4e5f6"),
    "redis-server": ("redis-server --requirepass {} --port 1", SECRET, "redis-server --port 6379"),
    "stdin of a login": (
        "echo {} | docker login -u b --password-stdin",
        PASSWORD,
        "cat token.txt | docker login -u b --password-stdin",
    ),
    "cqlsh": ("cqlsh -u c -p {} h", PASSWORD, "cqlsh -u c -p"),
    "mosquitto": ("mosquitto_pub -h h -P {} -t t", PASSWORD, "mosquitto_pub -h h -p 1883 -t t"),
    "bcp": ("bcp t out f -U sa -P {}", PASSWORD, "bcp t out f -U sa"),
    "net user": ("net user bob {} /add", PASSWORD, "net user bob /delete"),
    "ssh-keygen": ("ssh-keygen -t rsa -N '{}' -f k", PASSWORD, "ssh-keygen -t rsa -N '' -f k"),
    "poetry": (
        "poetry config pypi-token.pypi {}",
        SECRET,
        "poetry config virtualenvs.in-project true",
    ),
    "rclone": ("rclone config create r sftp pass {}", PASSWORD, "rclone config create r sftp"),
    "PowerShell": (
        "ConvertTo-SecureString '{}' -AsPlainText",
        PASSWORD,
        "ConvertTo-SecureString $value -AsPlainText",
    ),
    "network credential": (
        'new NetworkCredential("b", "{}")',
        PASSWORD,
        'new NetworkCredential("b", password)',
    ),
    "basic auth": ("BASIC_AUTH=bob:{}", PASSWORD, "basic_auth: enabled"),
    "websocket protocol": (
        "Sec-WebSocket-Protocol: openai-insecure-api-key.{}",
        SECRET,
        "Sec-WebSocket-Protocol: realtime",
    ),
    "SQL, function": (
        "SET PASSWORD FOR a = PASSWORD('{}')",
        "wool-" + "plank-4417",
        "SET PASSWORD FOR a = PASSWORD(?)",
    ),
    "keepalived": ("  auth_type PASS\n  auth_pass {}\n", PASSWORD, "auth_pass"),
    "XML, nested": (
        "<Password><Value>{}</Value></Password>",
        PASSWORD,
        "<Password><Value></Value></Password>",
    ),
    "XML, namespace": (
        '<wsse:Password Type="t">{}</wsse:Password>',
        PASSWORD,
        "<wsse:Username>bob</wsse:Username>",
    ),
    "set a variable": (
        'os.Setenv("API_TOKEN", "{}")',
        SECRET,
        'os.Setenv("API_URL", "https://h1/x2")',
    ),
    "default of a variable": (
        "'password' => env('DB_PASSWORD', '{}'),",
        PASSWORD,
        "'password' => env('DB_PASSWORD'),",
    ),
    "typed variable": (
        'let password: string = "{}";',
        PASSWORD,
        "let password: string = read();",
    ),
    "typed Python": ('api_key: str = "{}"', SECRET, "api_key: str = field()"),
    "wrapped value": ('Model(api_key=SecretStr("{}"))', SECRET, "Model(api_key=SecretStr(value))"),
    "Rust string": ('let api_key = String::from("{}");', SECRET, "let api_key = String::new();"),
    "whose password": (
        'password for bob is "{}"',
        SECRET,
        "password for bob is missing",
    ),
    "an arrow": ("DB password -> {}", SECRET, "password -> String"),
    "a table": ("| password | {} |", SECRET, "| password | description |"),
    "an error": (
        "Incorrect API key provided: {}",
        made(HEX, 32),
        "API key provided: none",
    ),
    "function key": (
        "x-functions-key: {}",
        "8f0c2b1e-7a3d-4c5b-9e6f-1a2b3c4d5e6f",
        "functions.keys()",
    ),
    "letters in mixed case": ("PGPASSWORD={} psql", "kvGioaTzt" + "EitmTwy", "KEYS=sortKeyName"),
    "a token in base64": (
        "x {} y",
        base64.b64encode(
            ("eyJhbGciOiJIUzI1NiJ9." + made(ALNUM, 40) + "." + SECRET).encode()
        ).decode(),
        base64.b64encode(b"a harmless text without any credential").decode(),
    ),
}


@pytest.mark.parametrize(
    "text",
    [
        'arn:aws:secretsmanager:us-east-1:123456789012:secret:MyTest-a1b2c3", "Name"',
        '"encryptionKey": "arn:aws:kms:us-west-2:123456789012:alias/aws/s3"',
        "docker login --username AWS --password-stdin 12.dkr.ecr.example",
        "aws list --starting-token Z3M3LMPa1b2c3",
        "the current account password policy** of",
        "LangSmith login and token access are exclusive",
        '{"secret": "㊙", "cookie": "🍪"}',
        "X-Amz-Security-Token=[token]&a=b",
        '"libsecret-1.so.0": "libsecret-1-0",',
        "    'Set-Cookie: Customer=\"WILE_E_COYOTE\"; Path=/acme')\n    self.a(b)\n    self.c(d)\n"
        "    self.e(f)\n    self.g(h)",
        '{"token": "Hi4there", "tokenId": 5, "logProbability": -0.1}',
        'f"Set it or pass an explicit `credentials=` provider to the client."',
        '{"CreateCredentialGlobals": ".createcredential"}',
    ],
)
def test_a_name_an_address_or_a_sample_stays(text: str) -> None:
    assert REDACTOR.text(text) == text


@pytest.mark.parametrize("name", FORMS)
def test_a_credential_in_a_known_form_is_masked_and_the_rest_stays(name: str) -> None:
    template, secret, _ = FORMS[name]
    text = template.format(secret)

    redacted = REDACTOR.text(text)

    assert redacted == template.format(mask(secret))
    assert REDACTOR.suspicious(msgspec.json.encode(text)), "the scanner would not have asked"


@pytest.mark.parametrize("name", FORMS)
def test_a_text_that_only_resembles_the_form_stays(name: str) -> None:
    text = FORMS[name][2]

    assert REDACTOR.text(text) == text


@pytest.mark.parametrize("key", ["note", "command", "stdout"])
@pytest.mark.parametrize("name", FORMS)
def test_a_form_inside_a_json_string_is_masked(name: str, key: str) -> None:
    """As a tool's output is recorded. The document stays one."""
    template, secret, _ = FORMS[name]
    body = msgspec.json.encode({key: template.format(secret), "n": 1}).decode()

    redacted = REDACTOR.text(body)

    assert secret[4:-4] not in redacted
    assert msgspec.json.decode(redacted)["n"] == 1


@pytest.mark.parametrize(
    "header",
    ["X-Shopify-Access-Token: {}", "Cookie: _ga=GA1.2.1; connect.sid={}", "X-Auth-Token: {}"],
)
def test_a_header_line_beside_source_code_is_masked(header: str) -> None:
    code = "def f(self):\n    return self.a()\n\nimport re\nself.b(1)\nif x:\n    return x.y()\n"
    secret = "smqa-" + "kvzgd-9648"

    assert secret not in REDACTOR.text(f"{code}\n{header.format(secret)}\n\n{code}")


SHAPES: dict[str, tuple[str, str]] = {
    # name: (secret, something that begins in the same way)
    "anthropic": ("sk-" + "ant-api03-" + made(URL, 90), "sk-" + "ant-hill"),
    "openai": ("sk-" + "proj-" + made(ALNUM, 60), "sk-" + "proj-layout-grid"),
    "google": ("AI" + "za" + made(URL, 35), "AI" + "za-short"),
    "huggingface": ("h" + "f_" + made(ALNUM, 34), "h" + "f_model_name"),
    "groq": ("gs" + "k_" + made(ALNUM, 52), "gs" + "k_test"),
    "voyage": ("p" + "a-" + made(URL, 43), "p" + "a-ra-llel"),
    "aws": ("AK" + "IA" + made(UPPER, 16), "AK" + "IA-ORG"),
    "github": ("gh" + "p_" + made(ALNUM, 36), "gh" + "p_tests"),
    "gitlab": ("gl" + "pat-" + made(ALNUM, 20), "gl" + "pat-form"),
    "npm": ("np" + "m_" + made(ALNUM, 36), "np" + "m_config_registry"),
    "crates": ("ci" + "o" + made(ALNUM, 32), "ci" + "oppino"),
    "vault": ("s" + "." + made(ALNUM, 24), "s" + ".replace"),
    "doppler": ("dp" + ".pt." + made(ALNUM, 43), "dp" + ".pt"),
    "databricks": ("da" + "pi" + made(HEX, 32), "da" + "pi_client"),
    "slack": ("xo" + "xb-" + made(ALNUM, 40), "xo" + "xo"),
    "sendgrid": ("S" + "G." + made(URL, 22) + "." + made(URL, 43), "S" + "G.cc"),
    "mailchimp": (made(HEX, 32) + "-us" + "12", made(HEX, 32)),
    "telegram": ("1234567891" + ":AA" + made(URL, 33), "12:AA"),
    "discord": ("MT" + made(ALNUM, 24) + "." + made(URL, 6) + "." + made(URL, 38), "a.b.c"),
    "stripe": ("sk" + "_live_" + made(ALNUM, 24), "sk" + "_live_mode"),
    "asana": ("1" + "/" + made("123456789", 16) + ":" + made(HEX, 32), "1/2026"),
    "twilio": ("S" + "K" + made(HEX, 32), "SK-1204"),
    "airtable": ("pa" + "t" + made(ALNUM, 14) + "." + made(HEX, 64), "pa" + "tch.notes"),
    "azure": (made(ALNUM, 3) + "8" + "Q~" + made(ALNUM, 34), "IQ~100"),
    "sourcegraph": ("sg" + "p_" + made(HEX, 40), "sg" + "p_local"),
    "clickhouse": ("4b" + "1d" + made(ALNUM, 38), "4b" + "1d0e5f"),
    "linkedin": ("WP" + "L_AP1." + made(ALNUM, 16) + "." + made(ALNUM, 10), "WP" + "L_AP1."),
    "twitch": ("oau" + "th:" + made(string.ascii_lowercase + "7", 30), "oau" + "th:2.0:scope"),
    "newrelic": (made(HEX, 36) + "FFFF" + "NRAL", made(HEX, 36) + "FFFF"),
    "brave": ("BS" + "A" + made(URL, 28), "BS" + "A-standard"),
    "dify": ("ap" + "p-" + made(ALNUM, 24), "ap" + "p-navigation-sidebarxxxxx"),
    "cursor": ("ke" + "y_" + made(HEX, 64), "ke" + "y_value"),
    "n8n": ("n8" + "n_api_" + made(URL, 40), "n8" + "n_api_key"),
    "apify": ("api" + "fy_api_" + made(ALNUM, 36), "api" + "fy_api_client"),
    "google-hmac": ("GO" + "OG1E" + made(UPPER, 55), "GO" + "OG1"),
    "yandex": ("y" + "0_" + made(URL, 56), "y" + "0_start"),
    "onesignal": ("os" + "_v2_app_" + made("abc7", 100), "os" + "_v2_app_name"),
    "paddle": ("pd" + "l_live_apikey_" + made(ALNUM, 26), "pd" + "l_live"),
    "polar": ("pol" + "ar_oat_" + made(ALNUM, 43), "pol" + "ar_oat_milk"),
    "stytch": ("sec" + "ret-live-" + made(URL, 36), "sec" + "ret-live-show"),
    "unkey": ("un" + "key_" + made(ALNUM, 22), "un" + "key_test"),
    "novita": ("s" + "k_" + made(ALNUM, 43), "s" + "k_learn_model_selection_train_test_split"),
    "friendli": ("fl" + "p_" + made(ALNUM, 46), "fl" + "p_file"),
    "daytona": ("dt" + "n_" + made(HEX, 64), "dt" + "n_name"),
    "inngest": ("sign" + "key-prod-" + made(HEX, 64), "sign" + "key-rotation"),
    "amazon marketplace": ("amzn" + ".mws." + str(uuid.UUID(int=7**40)), "amzn" + ".mws.v1"),
    "aws session": ("IQoJ" + "b3JpZ2lu" + made(ALNUM, 300), "IQoJ" + "b3JpZ2lu"),
    "netbird": ("nb" + "p_" + made(ALNUM, 36), "nb" + "p_peer"),
    "infisical": (f"st.{made(HEX, 24)}.{made(HEX, 32)}.{made(HEX, 32)}", "st" + ".session"),
    "cockroach": ("CC" + "DB1_" + made(ALNUM, 22) + "_" + made(ALNUM, 40), "CC" + "DB1_"),
    "axiom": ("xa" + "at-" + str(uuid.UUID(int=7**41)), "xa" + "at-"),
    "launchdarkly": ("sd" + "k-" + str(uuid.UUID(int=7**42)), str(uuid.UUID(int=7**42))),
    "dbt": ("db" + "tc_" + made(URL, 43), "db" + "tc_project"),
    "trello": ("AT" + "TA" + made(HEX, 72), "AT" + "TACHED"),
    "calcom": ("cal" + "_live_" + made(HEX, 32), "cal" + "_live_view"),
    "sanity": ("s" + "k" + made(ALNUM, 178), "s" + "kies"),
    "atlassian service": ("AT" + "STT3" + made(URL, 180), "AT" + "STT3"),
    "shopify user": ("shp" + "ua_" + made(HEX, 32), "shp" + "ua_"),
    "stripe organisation": ("sk" + "_org_live_" + made(ALNUM, 60), "sk" + "_org_live_chart"),
    "1password": (
        "A" + "3-" + "-".join(made(UPPER, size) for size in (6, 6, 5, 5, 5, 5)),
        "A3-paper",
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_secret_of_a_documented_shape_is_masked_anywhere(name: str) -> None:
    secret, _ = SHAPES[name]
    text = f"got {secret} here"

    assert REDACTOR.text(text) == f"got {mask(secret)} here"
    assert REDACTOR.suspicious(msgspec.json.encode(text)), "the scanner would not have asked"


@pytest.mark.parametrize("name", SHAPES)
def test_a_word_that_begins_like_a_shape_stays(name: str) -> None:
    text = f"got {SHAPES[name][1]} here"

    assert REDACTOR.text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        '{"api_key_env": "SERVICE_API_KEY", "name": "service"}',
        "model:\n  api_key: os.environ/SERVICE_API_KEY\n  name: x\n",
        "view({accessToken:e,serverId:t.id,serverAlias:n,onDone:(0,r.useCallback)(a)})",
        "make({accessToken:r??null,logEntry:{id:e.id,user:e.user}})",
        'count_api_key = f"{user_id}::{minute}::request_count"',
        "{'secret_ref': 'V1SecretReference', 'service_account_token': 'serviceAccountToken'}",
        "engine = create('postgresql://scott:tiger@localhost/test')",
        "Pass `token=False` to send none.",
        '{"client_secret_path": "x", "create_client_secret": "/realtime/client_secrets"}',
        "ssh://687fb701029421ae5549d998@ssh.example.org",
        "sent as `Authorization: Bearer abc`.",
        "A" * 40 + "HQAAAABAAIAAwAEAAUABgAHAAgACQAKAAsADAANAA4A" + "A" * 40,
        "Token::new(TokenKind::Ident, span)",
        'import re\ndef f(self):\n    return self.a()\n_token = r"[-!#$%&0-9a-zA-Z]+"\nself.b(1)\n',
        "WHERE password IS NOT NULL AND token = ?",
        "use `client.api_key = ...` to set it",
        '#define OSSL_KDF_PARAM_PASSWORD "pass"',
        '{"objectKey":"a1b2c3d4e5f6a7b8c9d0e1f2","idempotencyKey":"order-9f8a7b6c5d4e3f2a1b0c"}',
        '{"api_key": "sk-...", "access_token": "hf_***", "token": "sk-test-key-123"}',
        "export SERVICE_API_KEY=sk-...\nAPI_KEY=sk-123\nOTHER_TOKEN=sk-xxxxxxxxxxxx\n",
        "`?api_key=AIza...` and `Authorization: Bearer {auth_token}`",
        'call -H "Authorization: Bearer ***REDACTED***" -H "X-Api-Key: sk-1****cdef"',
        'HEADERS="Authorization=Bearer%20<token>"',
        'export MASTER_KEY="sk-$(openssl rand -hex 32)"',
        '{"cookie": "^0.7.1", "jsonwebtoken": "^9.0.3", "pbkdf2-password": "1.2.1"}',
        '{"test:cookies": "run -p test/cookie", "token_expiry": "2001-01-01T00:00:00Z"}',
        'GOOGLE_APPLICATION_CREDENTIALS="/path/to/your/credentials.json"',
        "the token is **removed** from it, and this credential is *invalid*",
        "Invalid key given. _credentials_api_key=None.",
        'export const X_METADATA_TOKEN = "x-metadata-token";',
        'class A:\n  ClientSecretCredential = "ClientSecretCredential"\n',
        'names = {"issuer_signing_key_ref": "signing_key_ref", **others}',
        "export const ApiJWT = /*@__PURE__*/ core.make(1)",
        "permissions: id-token: write",
        "THREAD_TOKEN = 0x0080",
        '<a accesskey="n" href="next.html">',
        "    'print',\n    'pwd',\n    'GetStringTableMax',\n    'xmlGetNsByHref',\n",
        '{"id_token": "HEADER.PAYLOAD.SIGNATURE"}',
        "let a=1;this.x=f(e),y({isAuthorized:c,token:c?u:null,accessToken:l?.key??null,userId:u});"
        "if(a&&c){b()}",
    ],
)
def test_code_and_ids_that_name_a_secret_stay(text: str) -> None:
    assert REDACTOR.text(text) == text


@pytest.mark.parametrize("rest", ["in it", "and more", "is set", "or not", "as before"])
@pytest.mark.parametrize("key", ["APP_SECRET", "password", "api_key"])
def test_a_value_before_a_word_of_a_sentence_is_masked(key: str, rest: str) -> None:
    value = "lvmjqdcwwrev" + "700"

    assert value not in REDACTOR.text(f"body has {key}={value} {rest}")
    assert value not in REDACTOR.text(f"{key}={value} {rest}")


@pytest.mark.parametrize(
    "value",
    [
        "sk-" + "a1b2c3d4",
        "hunter2" + "...",
        "abcdef" + "***",
        "ab-" + "12cd",
        "12.34" + "x",
        "a.b*1",
    ],
)
def test_a_short_secret_that_resembles_a_placeholder_is_masked(value: str) -> None:
    assert value not in REDACTOR.text(f'{{"api_key": "{value}", "password": "{value}"}}')


def test_the_tokens_of_a_response_stay_in_values_too() -> None:
    """An answer with log probabilities has a key `token` for each of its words."""
    choice = {"token": "Hi4there", "logprob": -0.1, "top_logprobs": [{"token": "a1", "logprob": 0}]}

    assert REDACTOR.value(choice) == choice
    assert redact_values({"content": [choice]}) == {"content": [choice]}
    assert REDACTOR.value({"token": "Hi4there9x"}) != {"token": "Hi4there9x"}
