"""Credential forms: a text with a place for a secret, a value, and a text that resembles it.

Values are made at run time, so that this file contains nothing that looks like a key.
"""

from __future__ import annotations

import base64
import random
import string

HEX = "0123456789abcdef"
ALNUM = string.ascii_letters + string.digits

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
    "twelve letters in mixed case": (
        "a.b.password={}\na.c=1",
        "QzvXb" + "MkdWqTn",
        "password = newCfgPass",
    ),
    "a password of letters": (
        "the password is {} now",
        "QG" + "xtFyOwnp",
        "the password is getPassword now",
    ),
    "an arrow, in Unicode": ("password → {}", SECRET, "password → String"),
    "ldap hash": (
        "admin {{SSHA}}{}",
        made(ALNUM, 32),
        "admin {SSHA}",
    ),
    "a salt of a blog": (
        "define('AUTH_KEY',         '{}');",
        SECRET + "|" + SECRET,
        "define('AUTH_KEY',         'put your unique phrase here');",
    ),
    "a token in base64": (
        "x {} y",
        base64.b64encode(
            ("eyJhbGciOiJIUzI1NiJ9." + made(ALNUM, 40) + "." + SECRET).encode()
        ).decode(),
        base64.b64encode(b"a harmless text without any credential").decode(),
    ),
}
