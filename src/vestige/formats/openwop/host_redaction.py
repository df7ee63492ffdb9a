r"""Remove details of the machine before an export: addresses, names, connection strings, paths.

    machine = Machine(process_attributes, root_attributes)
    machine.text("dial tcp 10.0.3.7:5432")           # 'dial tcp [INTERNAL]:5432'
    machine.error('... File "/home/me/a.py", line 3')  # '... File "a.py", line 3'

Addresses and host names are removed by their pattern; the names of this machine and the folder of
the program because they are known. Paths are shortened in errors only: the path that a tool was
asked to read is part of the run.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from typing import Final

from vestige.formats.openwop.constants import INTERNAL
from vestige.record.types import Attributes, Scalar

_OCTET: Final = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_ADDRESS: Final = (
    rf"(?<![\w.])(?:(?:10|127)(?:\.{_OCTET}){{3}}"
    r"|(?:192\.168|169\.254|172\.(?:1[6-9]|2\d|3[01])|100\.(?:6[4-9]|[7-9]\d|1[01]\d|12[0-7]))"
    rf"(?:\.{_OCTET}){{2}}|0\.0\.0\.0)(?!\.?\d)"
    r"|(?<![\w:])(?:fe80|f[cd][0-9a-fA-F]{2}):[0-9a-fA-F:]{2,40}|(?<![\w:])::1(?![\w:])"
)
_DSN: Final = (
    r"(?:jdbc:[a-z0-9:]{2,30}|(?:postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|valkey|amqps?|mssql|"
    r"sqlserver|oracle|clickhouse|cockroachdb|cassandra|kafka|nats|ldaps?|snowflake|db2|sqlite"
    r"|duckdb"
    r")(?:\+[a-z0-9_]{1,20})?)://[^\s\"'<>\\]+"
)
_HOST: Final = (
    r"(?<![\w.-])(?:[A-Za-z0-9_-]{1,63}\.){1,8}"
    r"(?:internal|intranet|corp|lan|localdomain|home\.arpa|cluster\.local)(?![\w-]|\.\w)"
    r"|(?<=[/@])[A-Za-z0-9_-]{1,63}\.local(?![\w.-])"
)
_SHAPES: Final = re.compile(f"{_DSN}|{_ADDRESS}|{_HOST}", re.ASCII)
_HINTS: Final = (
    b"://",
    b"10.",
    b"127.",
    b"192.168",
    b"169.254",
    b"172.",
    b"100.",
    b"0.0.0.0",
    b"fe80:",
    b"::1",
    b".internal",
    b".intranet",
    b".corp",
    b".lan",
    b".localdomain",
    b".arpa",
    b".local",
)
_HINT_V6: Final = re.compile(rb"f[cd][0-9a-fA-F]{2}:")
"""Every text with a shape of `_SHAPES` contains one of these."""

_FILE: Final = re.compile(
    r'File "(?:/|[A-Za-z]:[\\/])(?:[^"\n]{0,1000}[/\\])?(?=[^"\n/\\]{1,255}")'
)
_FRAME: Final = re.compile(
    r'([\s(@]|file://)((?:/|[A-Za-z]:[\\/])(?:(?!file://|@[A-Za-z]:[\\/])[^\s"():])*+)(:\d)?'
)
"""A place in a stack of Python, or of others; it is one if a line's number follows. A text may be
made to hurt: what was looked at once is not looked at again."""
_PATH: Final = re.compile(
    r"(?<![\w./:\\-])(?:/(?:[\w.@+~-]+/)+|[A-Za-z]:\\(?:[^\\\s\"'<>|]+\\)+|~/(?:[\w.@+~-]+/)+)"
)

_KEYS: Final = frozenset(
    (
        "argv",
        "cwd",
        "pid",
        "ppid",
        "executable",
        "supervisor",
        "host",
        "hostname",
        "host_name",
        "nodename",
        "node_name",
        "server",
        "machine",
        "fqdn",
        "ip",
        "ip_address",
        "address",
        "peer",
        "remote_addr",
        "env",
        "environ",
        "environment",
        "username",
        "user_name",
        "login",
        "home",
        "path_env",
        "dsn",
        "database_url",
        "connection_string",
    )
)
_PREFIXES: Final = (
    "env.",
    "environ.",
    "environment.",
    "process.",
    "host.",
    "os.",
    "net.",
    "network.",
    "server.",
    "client.address",
    "source.address",
    "git.root",
)
_NAMED_BY: Final = ("host", "hostname", "host.name", "nodename", "environment.hostname")
_NAME_MIN: Final = 5
_SHORT_MIN: Final = 2
"""Characters. A shorter name without a digit or hyphen is also a word of the language: it is taken
out only in addresses (`//web`, `me@web`, `web:5432`, `host=web`)."""
_NO_NAMES: Final = frozenset(("localhost", "localdomain", "ip6-localhost", "none", "unknown"))
_DOMAIN: Final = r"(?:(?:\.[A-Za-z0-9][\w-]*){2,})?"
"""Characters that may follow the name of a machine."""


def is_private_key(key: str) -> bool:
    """Check whether an attribute describes the machine."""
    name = key.lower()
    return name in _KEYS or name.startswith(_PREFIXES)


class HostDetails:
    """Remove the known details of one run's machine, and patterns of internal addresses."""

    def __init__(self, *sources: Attributes) -> None:
        host_names = {name for attributes in sources for name in _names(attributes)}
        host_names.add(os.uname().nodename)
        names = {form for name in host_names for form in _forms(name)}
        words = {name for name in names if len(name) < _NAME_MIN and name.isalpha()}
        names -= words
        folders = {text for each in sources for text in _folders(each.get("cwd"))}
        self._known = _any_of(names, _DOMAIN + r"(?![\w-])", re.IGNORECASE)
        self._words = _addressed(words)
        self._folders = _any_of(folders, r"(?:/|(?![\w.-]))")
        known = [text for name in (*names, *words) for text in (name, name.lower(), name.upper())]
        quoted = [json.dumps(text, ensure_ascii=False)[1:-1] for text in (*known, *folders)]
        hints = [text.encode(errors="replace") for text in (*known, *folders, *quoted)]
        self._hints = tuple(dict.fromkeys((*_HINTS, *hints)))

    def is_in(self, raw: bytes) -> bool:
        """Check whether a rendered value may contain a detail. False is always right."""
        for hint in self._hints:  # a third of a bundle's time as a generator
            if hint in raw:
                return True
        return _HINT_V6.search(raw) is not None

    def text(self, text: str) -> str:
        if not self.is_in(text.encode(errors="replace")):
            return text
        if self._folders is not None:
            text = self._folders.sub("./", text)
        if self._known is not None:
            text = self._known.sub(INTERNAL, text)
        if self._words is not None:
            text = self._words.sub(INTERNAL, text)
        return _SHAPES.sub(INTERNAL, text)

    def error(self, text: str) -> str:
        """Return an error without the folders of its paths, in a stack or in a message."""
        if "/" not in text and "\\" not in text:
            return text
        return _PATH.sub("", _FRAME.sub(_without_folders, _FILE.sub('File "', text)))


def _without_folders(frame: re.Match[str]) -> str:
    before, path, line = frame.groups()
    name = path[max(path.rfind("/"), path.rfind("\\")) + 1 :]
    return f"{before}{name}{line}" if name and line else frame[0]


def _names(attributes: Attributes) -> Iterable[str]:
    for key in _NAMED_BY:
        value = attributes.get(key)
        if isinstance(value, str) and len(value) <= 255:
            yield value


def _forms(name: str) -> Iterable[str]:
    """Return a machine's name as it was recorded, and without its domain."""
    for form in (name.strip("."), name.partition(".")[0]):
        lowered = form.lower()
        is_local = lowered in _NO_NAMES or lowered.startswith("localhost.")
        if len(form) >= _SHORT_MIN and not form.isdecimal() and not is_local:
            yield form


def _addressed(words: Iterable[str]) -> re.Pattern[str] | None:
    """Return a pattern for short names that are part of an address; None if there are none."""
    found = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    if not found:
        return None
    before = r"(?<=//)|(?<=@)|(?<=host=)|(?<=hostname=)|(?<=host: )|(?<=hostname: )"
    end = r"(?![\w-])"
    return re.compile(
        rf"(?:{before})(?:{found}){end}|(?<![\w./-])(?:{found})(?=:\d{{2,5}}(?!\d))", re.IGNORECASE
    )


def _folders(cwd: Scalar) -> Iterable[str]:
    """Yield the working directory and the home directory above it."""
    if isinstance(cwd, str) and cwd.count("/") >= 2 and len(cwd) > _NAME_MIN:
        yield cwd.rstrip("/")
        found = re.match(r"/(?:home|Users)/[^/]+", cwd)
        if found:
            yield found[0]


def _any_of(texts: Iterable[str], after: str, flags: int = 0) -> re.Pattern[str] | None:
    # The longest first: one may be the beginning of another.
    found = "|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True))
    return re.compile(rf"(?<![\w.-])(?:{found}){after}", flags) if found else None
