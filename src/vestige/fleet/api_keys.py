"""API keys of the server, with their scopes and tenants, in the home's `keys.json`.

    keys = Keys(home)
    new = keys.add("ci", ["runs:write"], tenant="acme")    # new.key is not stored anywhere
    principal = keys.find(new.key, clock.SYSTEM.now_ns())
    principal.may("runs:write")

`keys.json` contains the SHA-256 of each key, not the key. A fast hash is right here: a secret has
256 random bits and cannot be guessed, and a slow hash would let clients with wrong keys keep the
server busy.

Elsewhere: tenant isolation in store/sqlite/tenant_views.py, authentication in server/auth.py.
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
"""Prefix of every key, by which people, secret scanners and the redactor recognize one."""

_SECRET_BYTES = 32
_KEY = re.compile(rf"{PREFIX}([0-9a-f]{{8}})_[A-Za-z0-9_-]{{43}}")
_NO_HASH = "0" * 64
_TIME_MAX = 2**62
"""The year 2116."""


class Principal(msgspec.Struct, frozen=True):
    """The authenticated caller: a key, or the owner of the home."""

    key_id: str
    tenant: str | None
    """None: the owner of the home, who sees every tenant."""
    scopes: frozenset[str]

    def may(self, scope: str) -> bool:
        return scope in self.scopes


class NewKey(msgspec.Struct, frozen=True):
    """A new key. This is the only time that its secret is available."""

    id: str
    key: str
    tenant: str
    scopes: tuple[str, ...]

    def __repr__(self) -> str:
        return f"NewKey(id={self.id!r}, tenant={self.tenant!r}, scopes={self.scopes!r})"


class Key(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stored key."""

    id: str
    name: str
    tenant: str
    scopes: tuple[str, ...]
    sha256: str
    """Hash of the complete key, in hex."""
    created_ns: int
    expires_ns: int | None = None
    revoked_ns: int | None = None

    def state(self, now_ns: int) -> str:
        """Return `active`, `expired` or `revoked`."""
        if self.revoked_ns is not None:
            return "revoked"
        return "expired" if self.expires_ns is not None and self.expires_ns <= now_ns else "active"


class _File(msgspec.Struct, frozen=True):
    version: int
    keys: list[Key]


_decode = msgspec.json.Decoder(_File).decode
_Keys = list[Key]
_Cache = tuple[tuple[int, ...] | None, dict[str, Key]]


class Keys:
    """The keys of a home. Thread-safe; changes by other processes take effect at once."""

    def __init__(self, home: Home, clock: clock.Clock = clock.SYSTEM) -> None:
        self._home = home
        self._clock = clock
        self._cache: _Cache = (None, {})

    def find(self, secret: str, now_ns: int) -> Principal | None:
        """Return the key's principal. None: the key is unknown, expired or revoked."""
        match = _KEY.fullmatch(secret)
        key = self._keys().get(match[1]) if match is not None else None
        # Compared for an unknown key too, so that it takes the same time.
        sha256 = hashlib.sha256(secret.encode(errors="replace")).hexdigest()
        is_equal = hmac.compare_digest(sha256, key.sha256 if key is not None else _NO_HASH)
        if not is_equal or key is None or key.state(now_ns) != "active":
            return None
        return Principal(key.id, key.tenant, frozenset(key.scopes))

    def list(self) -> Sequence[Key]:
        """Return all keys, including revoked ones, oldest first."""
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
        """Create a key. The secret is returned only here."""
        _validate(name, scopes := tuple(scopes), tenant)
        now_ns = self._clock.now_ns()
        if expires_ns is not None and not now_ns < expires_ns < _TIME_MAX:
            raise UsageError(f"{name}: the expiry is in the past or too far in the future.")
        with self._edit() as keys:
            if any(key.name == name and key.state(now_ns) == "active" for key in keys):
                raise UsageError(
                    f"{name}: a key with this name exists. Revoke it, or choose another name."
                )
            used_ids = {key.id for key in keys}
            key_id = next(new_id for new_id in iter(_random_id, None) if new_id not in used_ids)
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
            _drop_inactive(keys, now_ns)
        return NewKey(key_id, text, tenant, ordered)

    def revoke(self, id_or_name: str) -> Key:
        """Revoke a key. It stays in the list."""
        now_ns = self._clock.now_ns()
        with self._edit() as keys:
            found = [key for key in keys if key.id == id_or_name]
            found = found or [
                key for key in keys if key.name == id_or_name and key.revoked_ns is None
            ]
            if len(found) > 1:
                ids = [key.id for key in found]
                raise AmbiguousIdError(
                    f"{id_or_name}: {len(found)} keys have this name ({', '.join(ids)}). Pass an "
                    f"id.",
                    ids,
                )
            if not found and id_or_name.startswith(PREFIX):
                raise NotFoundError(
                    "that is a key, not its id. List ids: `vestige server keys list`."
                )
            if not found:
                raise NotFoundError(
                    f"{id_or_name[:80]!r}: no such key. See `vestige server keys list`."
                )
            revoked: Key = msgspec.structs.replace(
                found[0], revoked_ns=found[0].revoked_ns or now_ns
            )
            keys[keys.index(found[0])] = revoked
        return revoked

    # --- the file ---------------------------------------------------------------------------

    def _keys(self) -> dict[str, Key]:
        """Return the keys by id. The file is read again only after a change."""
        try:
            info = os.stat(self._home.keys)
        except FileNotFoundError:
            return {}
        # The inode detects a replaced file within one tick of the file system's clock.
        marker = (
            info.st_ino,
            info.st_mtime_ns,
            info.st_ctime_ns,
            info.st_size,
            info.st_mode,
            info.st_uid,
        )
        cached_marker, keys = self._cache
        if cached_marker != marker:
            keys = {key.id: key for key in _read(self._home)}
            self._cache = (marker, keys)
        return keys

    @contextmanager
    def _edit(self) -> Iterator[_Keys]:
        """Yield the keys under the file lock, and write them unless the block raises."""
        self._home.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with file_locks.locked(self._home.keys_lock):
            keys = _read(self._home)
            yield keys
            _write(self._home, keys)


def _random_id() -> str:
    return clock.random_bytes(4).hex()


def _validate(name: str, scopes: Sequence[str], tenant: str) -> None:
    if not name.strip() or len(name) > KEY_NAME_MAX or not name.isprintable():
        raise UsageError(
            f"{name[:80]!r}: invalid key name (expected 1 to {KEY_NAME_MAX} printable characters)."
        )
    if name.startswith(PREFIX):
        raise UsageError("that is a key (expected a name for a new key).")
    if not is_tenant(tenant):
        raise UsageError(
            f"{tenant[:80]!r}: invalid tenant name (expected up to 64 of a-z, 0-9, '.', '_', '-',"
            " the first a letter or digit)."
        )
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        problem = f"{unknown[0][:80]!r}: no such scope" if unknown else "a key needs a scope"
        raise UsageError(f"{problem} (expected some of {', '.join(SCOPES)}).")


def _drop_inactive(keys: list[Key], now_ns: int) -> None:
    """Remove the oldest expired and revoked keys beyond KEYS_MAX, to keep the file small."""
    while len(keys) > KEYS_MAX:
        inactive = next((key for key in keys if key.state(now_ns) != "active"), None)
        if inactive is None:
            raise UsageError(f"there are {KEYS_MAX} active keys already. Revoke an unused one.")
        keys.remove(inactive)


def _read(home: Home) -> list[Key]:
    try:
        fd = os.open(home.keys, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise KeysError(f"{home.keys}: cannot be read ({error.strerror}).") from error
    with os.fdopen(fd, "rb") as file:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise KeysError(
                f"{home.keys}: not a file. Move it away; `vestige server keys add` creates one."
            )
        if info.st_uid not in (os.geteuid(), 0):
            raise KeysError(
                f"{home.keys}: belongs to user {info.st_uid} (expected {os.geteuid()}, the current"
                f" user). Check who created it, then: chown {os.geteuid()} {home.keys}"
            )
        if info.st_mode & 0o077:
            raise KeysError(
                f"{home.keys}: other users can read or write it (mode {info.st_mode & 0o777:04o},"
                f" expected 0600). Check who changed it, then: chmod 600 {home.keys}"
            )
        data = file.read(KEYS_FILE_MAX + 1)
    if len(data) > KEYS_FILE_MAX:
        raise KeysError(f"{home.keys}: too large (expected at most {KEYS_FILE_MAX} bytes).")
    try:
        parsed = _decode(data)
        if parsed.version != 1:
            raise KeysError(
                f"{home.keys}: version {parsed.version}, this vestige reads 1. Upgrade vestige."
            )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise KeysError(
            f"{home.keys}: damaged ({error}). Restore it, or move it away and create new keys."
        ) from error
    return parsed.keys


def _write(home: Home, keys: list[Key]) -> None:
    """Replace the file atomically. It is durable before a new key is returned."""
    part = home.keys.with_name(f".{home.keys.name}.part")  # exclusive: the caller has the lock
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
