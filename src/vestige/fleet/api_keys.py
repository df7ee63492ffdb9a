"""Who may ask the server, and for what: keys, scopes, tenants. Kept in the home, not in the store.

    keys = Keys(home)
    new = keys.add("ci", ["runs:write"], tenant="acme")    # new.key is told once, and kept nowhere
    principal = keys.find(new.key, clock.SYSTEM.now_ns())
    principal.may("runs:write")

The one hard fact: `keys.json` holds no key, only its SHA-256. A plain, fast hash is right here: the
secret is 256 random bits, so there is nothing to guess that a slow hash would make dearer, and a
slow one would let anybody keep the server busy with wrong keys.

Elsewhere: what a tenant sees of the store, store/sqlite/tenant_views.py; who asks for keys, server/auth.py.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from vestige._runtime import clock, file_locks
from vestige.errors import AmbiguousIdError, KeysError, NotFoundError, UsageError
from vestige.home import Home
from vestige.limits import KEY_NAME_MAX, KEYS_FILE_MAX, KEYS_MAX
from vestige.record.tenant import DEFAULT_TENANT, is_tenant

SCOPES = ("runs:read", "runs:write", "debug-bundle:read")
PREFIX = "vstg_"
"""What every key begins with: so that people, scanners and our own redactor know one."""

_SECRET_BYTES = 32
_KEY = re.compile(rf"{PREFIX}([0-9a-f]{{8}})_[A-Za-z0-9_-]{{43}}")
_NOBODY = "0" * 64
_TIME_MAX = 2**62
"""The year 2116."""


class Principal(msgspec.Struct, frozen=True):
    """Who asks."""

    key_id: str
    tenant: str | None
    """None: the owner of the home, who sees every tenant."""
    scopes: frozenset[str]

    def may(self, scope: str) -> bool:
        return scope in self.scopes


class NewKey(msgspec.Struct, frozen=True):
    """A key just made: the only time that it is seen."""

    id: str
    key: str
    tenant: str
    scopes: tuple[str, ...]

    def __repr__(self) -> str:
        return f"NewKey(id={self.id!r}, tenant={self.tenant!r}, scopes={self.scopes!r})"


class Key(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key as it is kept."""

    id: str
    name: str
    tenant: str
    scopes: tuple[str, ...]
    sha256: str
    """Of the whole key, in hex."""
    created_ns: int
    expires_ns: int | None = None
    revoked_ns: int | None = None

    def state(self, now_ns: int) -> str:
        """`active`, `expired` or `revoked`."""
        if self.revoked_ns is not None:
            return "revoked"
        return "expired" if self.expires_ns is not None and self.expires_ns <= now_ns else "active"


class _File(msgspec.Struct, frozen=True):
    version: int
    keys: list[Key]


_decode = msgspec.json.Decoder(_File).decode
_Keys = list[Key]
_Seen = tuple[tuple[int, ...] | None, dict[str, Key]]


class Keys:
    """The keys of a home. One object serves all threads; changes by other processes are seen."""

    def __init__(self, home: Home, clock: clock.Clock = clock.SYSTEM) -> None:
        self._home = home
        self._clock = clock
        self._seen: _Seen = (None, {})

    def find(self, secret: str, now_ns: int) -> Principal | None:
        """Whose key this is; None for one that is unknown, expired or revoked."""
        match = _KEY.fullmatch(secret)
        key = self._keys().get(match[1]) if match is not None else None
        # Also where there is no such key: the answer takes the same time.
        given = hashlib.sha256(secret.encode(errors="replace")).hexdigest()
        same = hmac.compare_digest(given, key.sha256 if key is not None else _NOBODY)
        if not same or key is None or key.state(now_ns) != "active":
            return None
        return Principal(key.id, key.tenant, frozenset(key.scopes))

    def list(self) -> Sequence[Key]:
        """All of them, oldest first, revoked ones too."""
        return [*self._keys().values()]

    def has_active(self, now_ns: int) -> bool:
        return any(key.state(now_ns) == "active" for key in self._keys().values())

    def add(
        self,
        name: str,
        scopes: Iterable[str],
        tenant: str = DEFAULT_TENANT,
        expires_ns: int | None = None,
    ) -> NewKey:
        """Make a key. It is told here, and never again."""
        _check(name, scopes := tuple(scopes), tenant)
        now_ns = self._clock.now_ns()
        if expires_ns is not None and not now_ns < expires_ns < _TIME_MAX:
            raise UsageError(f"{name}: would be expired already, or not in a lifetime.")
        with self._changing() as keys:
            if any(key.name == name and key.state(now_ns) == "active" for key in keys):
                raise UsageError(
                    f"{name}: there is a key of this name. Revoke it, or choose another name."
                )
            taken = {key.id for key in keys}
            key_id = next(each for each in iter(_random_id, None) if each not in taken)
            secret = base64.urlsafe_b64encode(clock.random_bytes(_SECRET_BYTES)).decode()
            text = f"{PREFIX}{key_id}_{secret.rstrip('=')}"
            ordered = tuple(scope for scope in SCOPES if scope in scopes)
            keys.append(
                Key(
                    id=key_id,
                    name=name,
                    tenant=tenant,
                    scopes=ordered,
                    sha256=hashlib.sha256(text.encode()).hexdigest(),
                    created_ns=now_ns,
                    expires_ns=expires_ns,
                )
            )
            _forget_dead(keys, now_ns)
        return NewKey(key_id, text, tenant, ordered)

    def revoke(self, id_or_name: str) -> Key:
        """From now on this key opens nothing. It stays in the list."""
        now_ns = self._clock.now_ns()
        with self._changing() as keys:
            found = [key for key in keys if key.id == id_or_name]
            found = found or [
                key for key in keys if key.name == id_or_name and key.revoked_ns is None
            ]
            if len(found) > 1:
                ids = [key.id for key in found]
                raise AmbiguousIdError(
                    f"{id_or_name}: {len(found)} keys have this name: {', '.join(ids)}. Give an id.",
                    ids,
                )
            if not found:
                raise NotFoundError(
                    f"{id_or_name[:80]!r}: no such key. See `vestige keys list`."
                    if not id_or_name.startswith(PREFIX)
                    else "that is a key itself, not its id. Give the id: see `vestige keys list`."
                )
            revoked: Key = msgspec.structs.replace(
                found[0], revoked_ns=found[0].revoked_ns or now_ns
            )
            keys[keys.index(found[0])] = revoked
        return revoked

    # --- the file ---------------------------------------------------------------------------

    def _keys(self) -> dict[str, Key]:
        """By id; read again only when the file is another one than last time."""
        try:
            found = os.stat(self._home.keys)
        except FileNotFoundError:
            return {}
        # A file replaced is a new one, even within one tick of its file system's clock.
        mark = (
            found.st_ino,
            found.st_mtime_ns,
            found.st_ctime_ns,
            found.st_size,
            found.st_mode,
            found.st_uid,
        )
        seen, keys = self._seen
        if seen != mark:
            keys = {key.id: key for key in _read(self._home)}
            self._seen = (mark, keys)
        return keys

    @contextmanager
    def _changing(self) -> Iterator[_Keys]:
        """The keys, to be changed; written when the block ends well. One process at a time."""
        self._home.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with file_locks.locked(self._home.keys_lock):
            keys = _read(self._home)
            yield keys
            _write(self._home, keys)


def _random_id() -> str:
    return clock.random_bytes(4).hex()


def _check(name: str, scopes: Sequence[str], tenant: str) -> None:
    if not name.strip() or len(name) > KEY_NAME_MAX or not name.isprintable():
        raise UsageError(
            f"{name[:80]!r}: no name for a key (expected 1 to {KEY_NAME_MAX} printable characters)."
        )
    if name.startswith(PREFIX):
        raise UsageError("that is a key, not a name for one.")
    if not is_tenant(tenant):
        raise UsageError(
            f"{tenant[:80]!r}: no name for a tenant (expected up to 64 of a-z, 0-9, '.', '_', '-',"
            " the first a letter or digit)."
        )
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        told = f"{unknown[0][:80]!r}: no such scope" if unknown else "a key needs a scope"
        raise UsageError(f"{told} (expected some of {', '.join(SCOPES)}).")


def _forget_dead(keys: list[Key], now_ns: int) -> None:
    """Keep the file small: those that opened nothing any more go, oldest first."""
    while len(keys) > KEYS_MAX:
        dead = next((key for key in keys if key.state(now_ns) != "active"), None)
        if dead is None:
            raise UsageError(f"there are {KEYS_MAX} keys already. Revoke one that nobody needs.")
        keys.remove(dead)


def _read(home: Home) -> list[Key]:
    try:
        fd = os.open(home.keys, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise KeysError(f"{home.keys}: cannot be read ({error.strerror}).") from error
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise KeysError(f"{home.keys}: not a file. Move it away; `vestige keys add` makes one.")
        if found.st_uid not in (os.geteuid(), 0):
            raise KeysError(
                f"{home.keys}: belongs to user {found.st_uid} (expected {os.geteuid()}, who runs"
                f" this). Look who made it, then: chown {os.geteuid()} {home.keys}"
            )
        if found.st_mode & 0o077:
            raise KeysError(
                f"{home.keys}: others may read or write it (mode {found.st_mode & 0o777:04o},"
                f" expected 0600). Look who did, then: chmod 600 {home.keys}"
            )
        data = file.read(KEYS_FILE_MAX + 1)
    if len(data) > KEYS_FILE_MAX:
        raise KeysError(f"{home.keys}: larger than any file of keys ({KEYS_FILE_MAX} bytes).")
    try:
        parsed = _decode(data)
        if parsed.version != 1:
            raise KeysError(
                f"{home.keys}: version {parsed.version}, this vestige reads 1. Upgrade vestige."
            )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise KeysError(
            f"{home.keys}: damaged ({error}). Restore it, or move it away and add the keys anew."
        ) from error
    return parsed.keys


def _write(home: Home, keys: list[Key]) -> None:
    """All or nothing, and on the disk before anybody is told a key."""
    part = home.keys.with_name(f".{home.keys.name}.part")  # ours alone: we hold the lock
    part.unlink(missing_ok=True)
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(_File(1, keys)), indent=2) + b"\n")
        file.flush()
        os.fsync(fd)
    os.replace(part, home.keys)
    folder = os.open(home.root, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


__all__ = ["PREFIX", "SCOPES", "Key", "Keys", "NewKey", "Principal"]
