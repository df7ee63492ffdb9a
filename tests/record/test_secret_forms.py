"""Credential forms and key shapes: each is masked, and the text that resembles it is not.

Values are made at run time, so that this file contains nothing that looks like a key.
"""

from __future__ import annotations

import base64
from urllib.parse import quote, unquote

import msgspec
import pytest

from support.credential_files import FILES
from support.secret_corpus import SHAPES, TEXTS, Maker, fill, make
from support.secret_forms import FORMS
from vestige.record.redaction.masking import mask
from vestige.record.redaction.output_redaction import redact_text, redact_values
from vestige.record.redaction.redactor import Redactor

REDACTOR = Redactor()


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
        "this.password = password;\nself._password = password",
        '{"password": "Passwords do not match", "forgot_password": "Forgot your password?"}',
        '{"errors": {"password": "is too short (minimum is 8 characters)"}}',
        '{"password": ["This field may not be blank."]}',
        '{"login.password": "Password", "login.token": "Token"}',
        "RESULT_INVALID_CREDENTIALS = 49\nNAMETYPE_PASSWORD      = 2",
        "import re\ndef f(self):\n    return self.a()\nself.b(1)\n"
        "request['Credential'] = b'\\x00'*8\n"
        'NTPASSWORD = b"NTPASSWORD\\0"\nsecret = "%s\\\\%s$:%s:%s:::" % (a, b, c, d, e)',
        "'unicodePwd': '1.2.840.113556.1.4.90', 'code': '\"{}\"'",
        "f'LsaSecretKey: 0x{hexlify(self.__LSAKey).decode()}'",
        "kpasswdPort=KRB5_KPASSWD_PORT\npassword_encoding = 'utf-8'",
        "# changepasswd.py j.doe@192.168.1.11",
        "self._pwd = 'C:\\\\windows\\\\system32'",
        '  reason:\n    | "oidc_token"\n    | "saml_token_of_a_user";\n',
        '  "GET /orgs/{org}/personal-access-tokens",\n'
        '  "GET /orgs/{org}/tokens/{id}/repositories",',
        "client_secret: this.#clientAuthentication.clientSecret || '',",
        "  - token: The token\n    value: The trailer value\n",
        '"ATOM", "RFC-3339", "COOKIE", "RFC-822"',
        "BOKEH_XSRF_COOKIES=yes",
        "function a(b){return b.token=k,b.flags|=yi(c),d}const x=()=>{a()};var y=function(){b()};"
        "if(a&&c){b()}",
        '"PasswordCredential","Path2D",page.fill("#name", "Path2D")',
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


@pytest.mark.parametrize("name", SHAPES)
def test_a_secret_of_a_documented_shape_is_masked_anywhere(name: str) -> None:
    secret = make(SHAPES[name][0], Maker(1))
    text = f"got {secret} here"

    assert REDACTOR.text(text) == f"got {mask(secret)} here"
    assert REDACTOR.suspicious(msgspec.json.encode(text)), "the scanner would not have asked"


@pytest.mark.parametrize("name", [*FILES, *TEXTS])
def test_no_secret_of_a_credential_file_stays_in_clear(name: str) -> None:
    """As it is, and as the output of a tool that read it."""
    text, secrets = fill(FILES.get(name) or TEXTS[name], Maker(4))
    body = msgspec.json.encode({"stdout": text}).decode()

    redacted, redacted_body = REDACTOR.text(text), REDACTOR.text(body)

    assert [each for each in secrets if each in redacted or each in redacted_body] == []
    assert REDACTOR.suspicious(msgspec.json.encode(text)), "the scanner would not have asked"


@pytest.mark.parametrize("name", [name for name, (_, similar) in SHAPES.items() if similar])
def test_a_word_that_begins_like_a_shape_stays(name: str) -> None:
    text = f"got {make(SHAPES[name][1], Maker(1))} here"

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
        "chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG call_9f8a7b6c5d4e3f2a1b0c9d8e",
        "msg_01XFDUDYJgAACzvnptvVoYEL toolu_01A09q90qw90lq917835lq9 run_9f8a7b6c5d4e3f2a1b0c9d8e",
        "resp_67ccd2bed1ec8190b14f964abc0542670bb6a6b452d3795b file-9f8a7b6c5d4e3f2a1b0c9d8e",
        '{"user": "me", "key": "PROJ-1234", "api": {"key": "name"}}',
        '{"label": "Password", "text": "Forgot password?", "placeholder": "Password"}',
        '{"element": "Password field", "text": "Required"}',
        '{"secret": {"secretName": "default-token-dpyh0"}}',
        '{"ssh_key": "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQDZYMivN4KqJZ3d me@host"}',
        '{"token": "http://10.0.0.1:8080/v1/containers?limit=2&sort=token"}',
        '{"token": {"methods": ["password"], "roles": []}}',
        "<label>{% translate 'New password:' %}</label>",
        "It injects the 'Authorization: Basic Base64String===' header",
        '["name", "password", "email"]',
        "def get_api_client_for_region_name(self): test_token_count_of_the_request()",
        "recovery phase: the seed phrase is a list of twelve words",
        "an URL in the form ftp://[user[:pass]]@host.domain[:port]/path",
        'cur_pass = 0\nssh_key_bits: 2048\n"NumberOfPasswordPrompts=1"',
        "password: \"{{ lookup('password', '/tmp/file', chars=['letters'], length=8) }}\"",
        "(e.g. `--secrets HF_TOKEN` to pass your token), and `permissions: id-token: write`.",
        'connection_string = "mssql+pyodbc://@my-server.example/db?driver=ODBC+Driver+17"',
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


def test_a_key_over_the_lines_of_a_list_is_masked() -> None:
    """As a tool returns a file: line by line."""
    text, (secret,) = fill("{PEM}", Maker(1))
    lines = ["head", *text.split("\n"), "tail"]

    redacted = REDACTOR.text(msgspec.json.encode({"lines": lines}).decode())

    found = msgspec.json.decode(redacted)["lines"]
    assert secret not in redacted
    assert (found[0], found[-1], len(found)) == ("head", "tail", len(lines))


WITHOUT_LITERAL = (
    *("mailchimp", "discord", "asana", "azure ad", "vault old", "telegram", "twilio", "adyen"),
    *("crates", "sanity", "beamer", "airtable"),
)
"""Shapes whose literal is too short, or not at their beginning: in base64 they are not found."""


@pytest.mark.parametrize("name", [each for each in SHAPES if each not in WITHOUT_LITERAL])
def test_a_shape_in_base64_is_masked(name: str) -> None:
    secret = make(SHAPES[name][0], Maker(1))
    for before in ("got ", "got it: ", "a line: "):
        encoded = base64.b64encode(f"{before}{secret} here".encode()).decode()
        body = f'{{"data": "{encoded}"}}'

        assert encoded not in REDACTOR.text(body)
        assert REDACTOR.suspicious(body.encode()), "the scanner would not have asked"


@pytest.mark.parametrize(
    "name", [each for each in TEXTS if "base64" not in each and "%" not in TEXTS[each]]
)
def test_a_percent_encoded_secret_is_masked(name: str) -> None:
    text, secrets = fill(TEXTS[name], Maker(4))
    url = f"https://h/?q={quote(text)}"

    redacted = unquote(REDACTOR.text(url))

    assert [each for each in secrets if each in redacted] == []
    assert REDACTOR.suspicious(msgspec.json.encode(url)), "the scanner would not have asked"


@pytest.mark.parametrize(
    "document",
    [
        '{"username": "me", "key": "9ddf109f2a0a107a40b52260e984a751"}',
        '{"github-oauth": {"github.com": "9ddf109f2a0a107a40b52260e984a751"}}',
        '{"jwt": {"key": "9ddf109f2a0a107a40b52260e984a751"}}',
    ],
)
@pytest.mark.parametrize("around", ["{}", "failed: {} was refused", "{{broken {} and {}", "q={}"])
def test_a_document_inside_a_text_is_redacted_like_a_document(around: str, document: str) -> None:
    """The message of an error often has one."""
    text = around.format(document, document)

    redacted = REDACTOR.text(text)

    assert redacted == text.replace("9ddf109f2a0a107a40b52260e984a751", "9dd…redacted…751")


def test_the_message_of_an_exception_is_no_code_on_its_later_lines() -> None:
    code = 'File "a.py", line 4, in f\n    raise ValueError(text)\n    self.a(b)\n    self.c(d)\n'
    trace = f"Traceback (most recent call last):\n  {code}ValueError: input:\n"
    table = "name,password\nbob,Falcon-8203x!\n"

    assert "Falcon-8203x!" not in REDACTOR.text(trace + table)


def test_a_wallet_s_words_and_codes_are_masked() -> None:
    words = "legal winner thank year wave sausage worth useful legal winner thank yellow"

    for text in (f'MNEMONIC="{words}"', f"seed phrase: {words}", f'{{"mnemonic": "{words}"}}'):
        assert words not in REDACTOR.text(text)


def test_a_picture_in_base64_is_not_a_key_by_chance() -> None:
    """A key at the beginning of a short text is one; inside of data it is what bytes look like."""
    key = "AQE" + "k7Zq" * 30
    data = base64.b64encode(bytes(range(256)) * 20).decode()
    picture = f"data:image/png;base64,{data}/{key}{data}"

    assert redact_text(picture) == picture
    assert key not in redact_text(f"key: {key}")
    assert key not in redact_text(f'{{"url": "{picture}", "note": "{key}"}}').split('"note"')[1]
