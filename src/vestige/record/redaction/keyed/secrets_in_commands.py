r"""The table of commands, calls and files that have a secret at a known position.

Each row has a name (reports count by it), the literals without which the expression cannot match,
and the expression. secret_patterns.py builds rules from the rows; the value must look like a
password, because prose and source code use the same words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_ARGUMENTS = r"[^\n|;&\\]{0,120}?"
"""Other arguments of the same command."""
_QUOTE = r"""\\*["']"""
_VALUE = rf"(?:{_QUOTE})?(?P<secret>[^\s\"'\\$<{{-][^\s\"'\\]{{3,128}})"
_LAST = r"(?=[ \t]*(?:$|[\n\\\"'|;&]))"

_FOREIGN: Final = (
    *("contraseña", "contrasena", "mot de passe", "wachtwoord", "senha", "hasło", "lösenord"),
    *("пароль", "密码", "密碼", "パスワード", "비밀번호"),
)
"""The word `password` in other languages."""
_FOREIGN_VALUE = (
    r"[\"'*`]{0,3}\s{0,3}(?:[:=]|：|\\+uff1a|(?:is|es|est|to)\b|é|är|是|为|は)\s{0,3}[\"'*`]{0,3}"
    r"(?P<secret>[^\s\"'\\<>,`*:=]{4,128})"
)

MNEMONIC: Final = "mnemonic"
"""The words from which the keys of a wallet are made."""
_PHRASES: Final = ("seed", "recovery", "secret")


def _spelling(word: str) -> str:
    """Return an expression for a word, its first letter in any case, also in ASCII JSON."""

    def letter(character: str) -> str:
        if character.isascii():
            return character
        return rf"(?:{character}|\\+u{ord(character):04x})"

    first = "|".join(dict.fromkeys(map(letter, (word[0], word[0].upper()))))
    return f"(?:{first})" + "".join(map(letter, word[1:]))


def _foreign_words() -> Iterator[tuple[str, tuple[str, ...], str]]:
    for word in _FOREIGN:
        rest = word[1:]
        escapes = [f"u{ord(character):04x}" for character in rest if not character.isascii()]
        yield "password-word", (rest, *escapes[:1]), _spelling(word) + _FOREIGN_VALUE


COMMANDS: Final = (
    # name, hints, expression
    (
        "cli-keystore",
        ("-storepass", "-keypass", "-srcstorepass", "-deststorepass"),
        rf"-(?:src|dest)?(?:store|key)pass[ \t]{{1,4}}{_VALUE}",
    ),
    ("cli-archive", ("zip ",), rf"\b(?:un)?zip\b{_ARGUMENTS}[ \t]-P[ \t]{{0,4}}{_VALUE}"),
    ("cli-archive", ("7z ", "7za ", "7zr "), rf"\b7z[ar]?\b{_ARGUMENTS}[ \t]-p(?=\S){_VALUE}"),
    (
        "cli-database",
        ("sqlcmd ", "bcp "),
        rf"\b(?:sqlcmd|bcp)\b{_ARGUMENTS}[ \t]-P[ \t]{{0,4}}{_VALUE}",
    ),
    (
        "cli-database",
        ("sqlplus ", "sqlldr ", "expdp ", "impdp ", "CONNECT "),
        rf"\b(?:sqlplus|sqlldr|expdp|impdp|CONNECT)\b{_ARGUMENTS}[ \t][\w$#]{{1,30}}/"
        r"(?P<secret>[^\s\"'\\@/]{3,128})@",
    ),
    (
        "jdbc-oracle",
        ("jdbc:oracle:",),
        r"jdbc:oracle:\w{1,8}:[\w$#]{1,30}/(?P<secret>[^\s\"'\\@/]{3,128})@",
    ),
    (
        "cli-account",
        ("rabbitmqctl ",),
        r"\brabbitmqctl[ \t]{1,4}(?:-n[ \t]{1,4}\S{1,64}[ \t]{1,4})?"
        rf"(?:add_user|change_password)[ \t]{{1,4}}\S{{1,64}}[ \t]{{1,4}}{_VALUE}",
    ),
    (
        "cli-account",
        ("htpasswd ",),
        r"\bhtpasswd[ \t]{1,4}-\w{0,6}b\w{0,6}(?:[ \t]{1,4}[^\s\"'\\]{1,128}){1,2}[ \t]{1,4}"
        rf"{_VALUE}(?:{_QUOTE})?{_LAST}",
    ),
    (
        "cli-account",
        ("useradd ", "usermod "),
        rf"\buser(?:add|mod)\b{_ARGUMENTS}[ \t]-p[ \t]{{1,4}}{_VALUE}",
    ),
    (
        "cli-account",
        ("chpasswd",),
        rf"\becho[ \t]{{1,4}}(?:{_QUOTE})?[\w.-]{{1,64}}:"
        rf"(?P<secret>[^\s\"'\\$|][^\s\"'\\|]{{3,128}})"
        rf"(?:{_QUOTE})?[ \t]{{0,4}}\|[ \t]{{0,4}}(?:sudo[ \t]{{1,4}})?chpasswd",
    ),
    (
        "cli-account",
        ("net user ",),
        r"\bnet user[ \t]{1,4}[\w.$-]{1,64}[ \t]{1,4}"
        r"(?P<secret>[^\s\"'\\$<{/*-][^\s\"'\\]{3,128})",
    ),
    (
        "cli-key",
        ("ssh-keygen ",),
        rf"\bssh-keygen\b{_ARGUMENTS}[ \t]-[NP][ \t]{{1,4}}{_VALUE}",
    ),
    (
        "cli-login",
        ("vault login ",),
        rf"\bvault login[ \t]{{1,4}}(?:-[\w=-]{{1,40}}[ \t]{{1,4}}){{0,3}}(?:token=)?{_VALUE}",
    ),
    (
        "cli-login",
        (
            *("--password-stdin", "sudo -", "secret create ", "| kinit", "| cryptsetup "),
            *("--passphrase-fd", "| smbpasswd", "passwd --stdin", "secret set ", "secret put "),
        ),
        rf"\b(?:echo|printf)[ \t]{{1,4}}(?:-n[ \t]{{1,4}})?(?:{_QUOTE})?"
        rf"(?P<secret>[^\s\"'\\$|][^\s\"'\\|]{{3,512}})(?:{_QUOTE})?[ \t]{{0,4}}\|[^\n]{{0,160}}?"
        r"(?:--password-stdin|sudo[ ]-\w{0,4}S|secret (?:create|set|put)|\bkinit|\bcryptsetup"
        r"|--passphrase-fd|smbpasswd|passwd --stdin)",
    ),
    (
        "cli-login",
        ("secret set ", "secret put "),
        rf"\bsecrets? (?:set|put)\b{_ARGUMENTS}(?:--body[ \t=]|<<<)[ \t]{{0,4}}{_VALUE}",
    ),
    (
        "cli-login",
        ("mc alias set ", "mc config host add "),
        r"\bmc (?:alias set|config host add)(?:[ \t]{1,4}\S{1,256}){3}[ \t]{1,4}"
        r"(?P<secret>[^\s\"'\\$]{8,128})",
    ),
    (
        "call-argument",
        (".login(",),
        rf"\.login\(\s{{0,4}}[^,()\n]{{1,128}},\s{{0,4}}{_QUOTE}"
        rf"(?P<secret>[^\"'\\\s]{{6,256}}){_QUOTE}",
    ),
    (
        "curl-user",
        ("curl ",),
        rf"\bcurl\b{_ARGUMENTS}[ \t]-u[ \t]{{0,4}}(?:{_QUOTE})?"
        r"(?P<secret>[\w-]{20,256}):(?=[\"'\\\s])",
    ),
    ("cli-login", ("cqlsh ",), rf"\bcqlsh\b{_ARGUMENTS}[ \t]-p[ \t]{{0,4}}{_VALUE}"),
    (
        "cli-login",
        ("mosquitto_",),
        rf"\bmosquitto_(?:pub|sub|rr)\b{_ARGUMENTS}[ \t]-P[ \t]{{1,4}}{_VALUE}",
    ),
    ("cli-login", ("twine upload ",), rf"\btwine upload\b{_ARGUMENTS}[ \t]-p[ \t]{{1,4}}{_VALUE}"),
    (
        "cli-login",
        ("smbclient ", "rpcclient "),
        rf"\b(?:smb|rpc)client\b{_ARGUMENTS}[ \t]-U[ \t]{{0,4}}(?:{_QUOTE})?"
        rf"[\w./-]{{1,64}}%{_VALUE}",
    ),
    (
        "cli-login",
        ("net use ",),
        r"\bnet use\b[^\n|;&]{1,120}?[ \t](?P<secret>[^\s\"'\\$<{/:-][^\s\"'\\]{3,128})"
        r"[ \t]{1,4}/user:",
    ),
    (
        "cli-wifi",
        ("wpa_passphrase ",),
        rf"\bwpa_passphrase[ \t]{{1,4}}\S{{1,64}}[ \t]{{1,4}}{_VALUE}",
    ),
    (
        "cli-setting",
        ("aws configure set ",),
        r"\baws configure set[ \t]{1,4}(?:aws_secret_access_key|aws_session_token)[ \t]{1,4}"
        rf"{_VALUE}",
    ),
    (
        "cli-setting",
        ("npm config set ", "yarn config set "),
        r"\b(?:p?npm|yarn) config set[ \t]{1,4}\S{0,120}(?:_authToken|_password|_auth"
        rf"|npmAuthToken)[ \t=]{{1,4}}{_VALUE}",
    ),
    (
        "cli-setting",
        ("poetry config ",),
        rf"\bpoetry config[ \t]{{1,4}}(?:--\w{{1,16}}[ \t]{{1,4}})?(?:pypi-token\.\S{{1,64}}"
        rf"|http-basic\.\S{{1,64}}[ \t]{{1,4}}\S{{1,64}})[ \t]{{1,4}}{_VALUE}",
    ),
    (
        "cli-setting",
        ("rclone config ",),
        r"\brclone config (?:create|update|password)\b[^\n|;&\\]{0,160}?"
        r"[ \t]pass[ \t=]{1,4}"
        rf"{_VALUE}",
    ),
    (
        "secure-string",
        ("ConvertTo-SecureString ",),
        rf"ConvertTo-SecureString[ \t]{{1,4}}(?:-String[ \t]{{1,4}})?{_QUOTE}"
        r"(?P<secret>[^\"'\\\n$][^\"'\\\n]{3,256})",
    ),
    (
        "basic-auth",
        ("BASIC_AUTH", "basic_auth", "basic-auth", "basicAuth"),
        rf"(?i:basic[_-]?auth(?:_credentials)?)[\"'\\]{{0,4}}[ \t]{{0,4}}[:=][ \t]{{0,4}}"
        rf"(?:{_QUOTE})?"
        r"[\w.@-]{1,64}:(?P<secret>[^\s\"'\\:/$<{][^\s\"'\\:]{3,128})",
    ),
    (
        "websocket-key",
        ("-insecure-api-key.",),
        r"-insecure-api-key\.(?P<secret>[\w.~+/=-]{8,512})",
    ),
    (
        "sql-password",
        ("PASSWORD(",),
        rf"=\s{{0,4}}PASSWORD\(\s{{0,4}}{_QUOTE}(?P<secret>[^\"'\\\n]{{4,256}}){_QUOTE}",
    ),
    (
        "sql-password",
        ("SET PASSWORD ",),
        rf"\bSET PASSWORD FOR [^=\n;]{{1,128}}=\s{{0,4}}{_QUOTE}(?P<secret>[^\"'\\\n]{{4,256}})",
    ),
    (
        "basic-auth",
        ("BasicAuth(", "basic_auth(", "DigestAuth(", "NetworkCredential(", "auth=("),
        r"(?:(?:Basic|Digest)Auth\(|basic_auth\(|NetworkCredential\(|(?:\b|_)auth=\()\s{0,8}"
        rf"(?:\w{{1,16}}=)?{_QUOTE}"
        rf"[^\"'\\\n]{{1,128}}{_QUOTE}\s{{0,4}},\s{{0,8}}(?:\w{{1,16}}=|Some\()?{_QUOTE}"
        r"(?P<secret>[^\"'\\\n]{4,256})",
    ),
    (
        "call-argument",
        ("DBI->connect", "Credentials("),
        r"(?:DBI->connect|\bCredentials)\("
        rf"(?:\s{{0,4}}{_QUOTE}[^\"'\\\n]{{1,128}}{_QUOTE}\s{{0,4}},){{2,3}}"
        rf"\s{{0,4}}{_QUOTE}(?P<secret>[^\"'\\\n]{{4,256}}){_QUOTE}",
    ),
    (
        "call-argument",
        (
            "assword(",
            "ASSWORD(",
            "asswd(",
            "assphrase(",
            "piKey(",
            "pi_key(",
            "essToken(",
            "ecretKey(",
        ),
        r"(?i:password|passwd|passphrase|api_?key|secretkey|accesstoken)\(\s{0,4}"
        rf"{_QUOTE}(?P<secret>[^\"'\\\s]{{6,256}}){_QUOTE}\s{{0,4}}\)",
    ),
    (
        "call-argument",
        ("jwt.encode(", "jwt.decode(", "jwt.sign(", "jwt.verify("),
        rf"\bjwt\.(?:encode|decode|sign|verify)\([^\"'`;\n]{{1,120}},\s{{0,4}}b?{_QUOTE}"
        r"(?P<secret>[^\"'\\\s]{8,512})",
    ),
    (
        "call-argument",
        ("hmac.new(", "createHmac(", "Fernet("),
        rf"(?:\bhmac\.new\(|\bcreateHmac\({_QUOTE}[\w-]{{1,16}}{_QUOTE},|\bFernet\()\s{{0,4}}"
        rf"(?:key=)?b?{_QUOTE}(?P<secret>[^\"'\\\s]{{8,512}})",
    ),
    (
        "digest-response",
        ("response=",),
        r"\bresponse=\\*\"(?P<secret>[0-9a-f]{32,64})\\*\"",
    ),
    (
        "approle",
        ("secret_id", "secret-id", "SecretID", "secretId", "SECRET_ID"),
        r"(?i:secret[_-]?id)[\"'\\]{0,4}\s{0,2}[:=]\s{0,2}[\"'\\]{0,4}"
        r"(?P<secret>[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})",
    ),
    (
        "url-key",
        ("?key=", "&key=", "?code=", "&code=", "appid=", "app_id="),
        r"://[^\s\"'<>\\]{1,300}[?&](?:key|code|app_?id)="
        r"(?P<secret>[\w.~-]{24,512}(?:={1,2}|%3[Dd]){0,2})(?![\w-])",
    ),
    (
        "url-key",
        ("?auth=", "&auth="),
        r"://[^\s\"'<>\\]{1,300}[?&]auth=(?P<secret>[\w.~-]{16,512})(?![\w-])",
    ),
    (
        "url-token",
        (":x-oauth-basic@",),
        r"://(?P<secret>[\w-]{20,255}):x-oauth-basic@",
    ),
    (
        "oauth-signature",
        ("oauth_signature=",),
        rf"oauth_signature=(?:{_QUOTE})?(?P<secret>[\w%+/=.~-]{{16,512}})",
    ),
    (
        "csrf-token",
        ("csrf-token",),
        rf"name={_QUOTE}csrf-token{_QUOTE}\s{{1,4}}"
        rf"content={_QUOTE}(?P<secret>[^\"'\\<>]{{16,512}})",
    ),
    (
        "cli-login",
        ("lftp ", "open -u "),
        rf"\b(?:lftp|open)\b{_ARGUMENTS}[ \t]-u[ \t]{{0,4}}[\w.@-]{{1,64}},{_VALUE}",
    ),
    (
        "cli-login",
        ("freerdp ", "freerdp3 "),
        rf"\b[wx]freerdp3?\b{_ARGUMENTS}[ \t]/p:{_VALUE}",
    ),
    (
        "cli-cookie",
        ("curl ",),
        rf"\bcurl\b{_ARGUMENTS}[ \t]-b[ \t]{{0,4}}(?:{_QUOTE})?[\w.-]{{1,64}}="
        r"(?P<secret>[^\s\"'\\;]{8,4096})",
    ),
    (
        "user-pair",
        ("redentials: ", "redentials are "),
        r"\b[Cc]redentials(?::| are)[ \t]{1,4}[\w.@-]{1,64}[ \t]{0,2}[/:][ \t]{0,2}"
        r"(?P<secret>[^\s\"'\\/]{6,128})",
    ),
    (
        "cli-login",
        ("net use ",),
        r"\bnet use\b[^\n|;&]{1,120}?/user:[\w.@\\-]{1,64}[ \t]{1,4}"
        r"(?P<secret>[^\s\"'\\$<{/:*-][^\s\"'\\]{3,128})",
    ),
    (
        "shared-key",
        (": PSK ", ": EAP ", ": XAUTH "),
        rf":[ \t](?:PSK|EAP|XAUTH)[ \t]{{1,4}}{_QUOTE}(?P<secret>[^\"'\\\n]{{4,256}}){_QUOTE}",
    ),
    (
        "directive",
        ("rocommunity ", "rwcommunity ", "olcRootPW: "),
        rf"\b(?:r[ow]community|olcRootPW:)[ \t]{{1,8}}{_VALUE}",
    ),
    (
        "directive",
        ("createUser ",),
        rf"\bcreateUser[ \t]{{1,4}}\S{{1,64}}[ \t](?:MD5|SHA[\w-]{{0,8}})[ \t]{{1,4}}{_VALUE}",
    ),
    (
        "directive",
        ("createUser ",),
        rf"\bcreateUser[ \t]{_ARGUMENTS}[ \t](?:AES[\w-]{{0,8}}|DES)[ \t]{{1,4}}{_VALUE}",
    ),
    (
        "unseal-key",
        ("nseal Key ",),
        r"nseal Key [0-9]{1,2}: (?P<secret>[A-Za-z0-9+/]{43,44}={0,2}|[a-f0-9]{64,66})",
    ),
    (
        "svn-password",
        ("password\nV ", "password\\nV "),
        r"\bpassword(?:\n|\\n)V [0-9]{1,4}(?:\n|\\n)(?P<secret>[^\s\\]{4,256})",
    ),
    ("irc", ("IDENTIFY ",), rf"(?i:nickserv)[ \t]{{1,4}}:?IDENTIFY[ \t]{{1,4}}{_VALUE}"),
    (
        "rdp-password",
        ("password 51:b:",),
        r"password 51:b:(?P<secret>[0-9A-Fa-f]{32,4096})",
    ),
    (
        "jwk",
        ("kty",),
        rf"kty{_QUOTE}\s{{0,4}}:\s{{0,4}}{_QUOTE}oct{_QUOTE}[^{{}}]{{0,512}}?"
        rf"{_QUOTE}k{_QUOTE}\s{{0,4}}:\s{{0,4}}{_QUOTE}"
        r"(?P<secret>[\w-]{16,4096})",
    ),
    (
        "redis-acl",
        (" on >", "SETUSER "),
        r"\b(?:user|SETUSER)[ \t]{1,4}\S{1,64}[^\n]{0,80}?[ \t]>(?P<secret>[^\s\"'\\]{4,256})",
    ),
    (
        "password-hash",
        ('"md5', "SCRAM-SHA-256$"),
        r"(?P<secret>(?<=\")md5[a-f0-9]{32}|SCRAM-SHA-256\$[0-9]{3,7}:[\w+/=]{8,64}\$"
        r"[\w+/=:]{40,256})",
    ),
    (
        "password-hash",
        ("SHA}", "SHA256}", "SHA512}", "SMD5}", "CRYPT}"),
        r"\{(?:S?SHA(?:256|512)?|SMD5|CRYPT)\}(?P<secret>[\w+/=$.]{20,256})",
    ),
    (
        "consul-key",
        ("encrypt",),
        rf"\bencrypt(?:{_QUOTE})?\s{{0,4}}[:=]\s{{0,4}}{_QUOTE}(?P<secret>[A-Za-z0-9+/]{{43}}=)",
    ),
    (
        "cloud-init",
        ("chpasswd:",),
        r"chpasswd:(?:\s|\\[nr]){1,32}list:[ \t]{0,4}[|>]?-?(?:\s|\\[nr]){1,32}[\w.-]{1,32}:"
        r"(?P<secret>[^\s\\]{4,128})",
    ),
    (
        "switch-password",
        (
            *(f"password {kind} " for kind in "057"),
            *(f"secret {kind} " for kind in "0589"),
            "key 7 ",
        ),
        r"\b(?:password|secret|key)[ \t][05789][ \t]{1,4}(?P<secret>[^\s\"'\\]{8,128})",
    ),
    (
        "mail-relay",
        ("]:",),
        r"\]:[0-9]{2,5}[ \t]{1,8}[\w.@+-]{1,128}:(?P<secret>[^\s\"'\\:/]{4,256})",
    ),
    (
        "http-test",
        ("[BasicAuth]",),
        r"\[BasicAuth\](?:\s|\\[nr]){1,8}[\w.@-]{1,64}:[ \t]{1,4}(?P<secret>[^\s\"'\\]{4,256})",
    ),
    (
        "user-pair",
        ("user = ", "user=", "login="),
        r"(?<![\w-])(?:proxy-)?(?:user|login)[ \t]{0,2}=[ \t]{0,2}[\\\"']{0,4}[\w.@-]{1,64}:"
        r"(?P<secret>(?![0-9]{1,12}(?!\w))[^\s\"'\\:/@]{4,256})",
    ),
    ("time-key", ("HEX:",), r"\bHEX:(?P<secret>[0-9A-Fa-f]{32,256})"),
    (
        "storage-key",
        ("key = AQ", "key: AQ"),
        r"\bkey(?:[ ]=|:)[ ](?P<secret>AQ[A-Za-z0-9+/]{36}==)",
    ),
    (
        "hash-salt",
        ("hash_salt",),
        rf"hash_salt{_QUOTE}\]?\s{{0,4}}(?:=>?|:)\s{{0,4}}{_QUOTE}(?P<secret>[\w-]{{32,256}})",
    ),
    (
        "analysis-token",
        ("sonar.login", "sonar.token"),
        r"sonar\.(?:login|token)[=: ]{1,3}(?P<secret>[a-f0-9]{40})",
    ),
    (
        "account-key",
        ("accounts",),
        rf"\baccounts(?:{_QUOTE})?\s{{0,4}}:\s{{0,4}}\[\s{{0,8}}{_QUOTE}(?P<secret>0x"
        rf"[a-fA-F0-9]{{64}})",
    ),
    (
        MNEMONIC,
        (
            "nemonic",
            "NEMONIC",
            *(f"{word}{gap}phrase" for word in _PHRASES for gap in ("", "_", " ")),
            *tuple(f"{word.upper()}_PHRASE" for word in _PHRASES),
        ),
        r"(?i:mnemonic|(?:seed|recovery|secret)[ _]?phrase)[\"'\\]{0,4}\s{0,4}(?:[:=]"
        r"|\bis\b)\s{0,4}"
        r"[\"'\\]{0,4}(?P<secret>[a-z]{3,8}(?:[ ,]{1,2}[a-z]{3,8}){11,24})(?![a-z])",
    ),
    (
        "call-argument",
        (".fill(", ".type(", "send_keys(", "sendKeys(", "press_sequentially("),
        rf"(?:(?i:passw(?:or)?d)[^\"'\n]{{0,24}}{_QUOTE}[\])]{{1,3}}"
        r"\.(?:fill|type|send_?keys|sendKeys"
        rf"|press_sequentially)\(\s{{0,4}}"
        rf"|\.(?:fill|type)\(\s{{0,4}}{_QUOTE}[^\"'\n]{{0,64}}"
        rf"(?i:passw(?:or)?d)[^\"'\n]{{0,24}}{_QUOTE}"
        rf"\s{{0,4}},\s{{0,4}}){_QUOTE}(?P<secret>[^\"'\\\n]{{4,256}})",
    ),
    (
        "expect-password",
        ("assword",),
        rf"assword[^\n\w]{{0,12}}(?:\s|\\[nr]){{1,8}}send(?:[ ]--)?[ ]{{1,4}}{_QUOTE}"
        r"(?P<secret>[^\"'\\\n]{4,128})",
    ),
    (
        "load-test",
        (">password</stringProp>",),
        r">password</stringProp>\s{0,64}<stringProp[^<>]{0,80}>(?P<secret>[^<>]{4,256})<",
    ),
    *_foreign_words(),
)

COMMAND_MARKERS: Final = {
    "encrypt": r"encrypt[\\\"']{0,8}\s{0,4}[:=]\s{0,4}[\\\"']{1,8}[A-Za-z0-9+/]{43}=",
    "]:": r"\]:[0-9]{2,5}(?:[ \t]|\\t)",
    "user = ": r"(?:user|login)[ \t]{0,2}=[ \t]{0,2}[\\\"']{0,8}[\w.@-]{1,64}:[^\s\"'\\:/@]{4}",
    "HEX:": r"HEX:[0-9A-Fa-f]{32}",
    "accounts": r"accounts[^\[]{0,16}\[[\s\\n]{0,16}[\\\"']{1,8}0x[a-fA-F0-9]{64}",
    "assword": r"assword[^\w]{0,12}(?:\s|\\{1,8}[nr]){1,8}send",
    ".fill(": (
        r"(?i:passw(?:or)?d)[^\n]{0,40}(?:fill|type|keys|Keys|tially)\("
        r"|(?:fill|type)\([^\n]{0,80}(?i:passw)"
    ),
    "response=": r'response=\\*"[0-9a-f]{32}',
    "?key=": r"[?&](?:key|code|app_?id)=[\w.~-]{24}",
    "curl ": r"curl\b[^\n]{0,160}?-[bu]",
    **{word[1:]: _spelling(word) for word in _FOREIGN},
}
"""Expressions for the scanner by the first literal of a row, for frequent literals."""
