"""Settings: an argument > a VESTIGE_* variable > config.toml in the home > the default.

    VESTIGE_HOME        the data directory (home.py)
    VESTIGE_DISABLED    1: record nothing
    VESTIGE_LEVEL       debug, info, warn, error: log lines of this level on are recorded, no others
    VESTIGE_SAMPLE      0..1: the fraction of runs that is recorded completely
    VESTIGE_FSYNC       none, periodic, record
    VESTIGE_CRASH_HOOKS  0: install no hooks for uncaught exceptions and signals
    VESTIGE_SILENCE     record all stacks after this time without a record, e.g. 2m; 0: never
    VESTIGE_WIRE        0: do not record HTTP calls to model providers (`vestige run`, pytest)
    VESTIGE_LOGS        0: do not record `logging` (`vestige run`, pytest)
    VESTIGE_PRINTS      0: do not record prints (`vestige run`)
    VESTIGE_INTEGRATIONS  frameworks whose agents and tools are recorded, e.g. `!crewai`; 0: none
    VESTIGE_WIRE_HTTP   1: also record other HTTP calls
    VESTIGE_WIRE_HOSTS  hosts whose calls are recorded, e.g. `*.example.com, !noisy.example.com`
    VESTIGE_WIRE_PATHS  the same for paths, e.g. `!/v1/embeddings`
    VESTIGE_PROXY       0: no proxy for programs that are not Python (`vestige run`)
    VESTIGE_PROXY_HOSTS  more hosts that the proxy intercepts, e.g. `llm.example.com`
    VESTIGE_OPENWOP_REDACTION   mask, omit, hash, passthrough: how secrets are redacted in bundles
    VESTIGE_OPENWOP_BUNDLE      0: serve no debug bundles
    VESTIGE_OPENWOP_FEEDBACK    0: serve and accept no annotations
    VESTIGE_OPENWOP_BUNDLE_BYTES  the maximum size of a bundle, e.g. 8MB
    VESTIGE_RETENTION_AGE         how long runs are kept, e.g. 7d
    VESTIGE_RETENTION_BODY_BYTES  how many bytes of bodies are kept, e.g. 256MB
    VESTIGE_SEGMENTS    where servers write files for a loader: s3://BUCKET/PREFIX or a folder
    VESTIGE_STORE       the address of a store on a server, e.g. clickhouse://db:8123/vestige

In config.toml the names are lower case without the prefix: `level = "info"`. The prices of your own
models can only be set there: `[prices."my-model"]` (`ModelPrice`).
Set by Vestige itself for child processes: VESTIGE_PARENT, VESTIGE_OPEN_RUN, VESTIGE_SUPERVISOR,
VESTIGE_START, VESTIGE_REPLAY.
Only `vestige server ship` reads VESTIGE_SHIP_KEY, and never from config.toml.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige._runtime.syscalls import read_file
from vestige.errors import SettingError, UsageError
from vestige.home import Home, get_home
from vestige.limits import (
    OPENWOP_BUNDLE_MAX,
    OPENWOP_BUNDLE_MIN,
    PRICE_MAX,
    PRICES_MAX,
    RETENTION_AGE_S,
    RETENTION_BODY_BYTES,
    SILENCE_S,
    SUM_MAX,
)

if TYPE_CHECKING:
    from pathlib import Path  # 5 ms of imports: not with `import vestige`

T = TypeVar("T")


class ModelPrice(msgspec.Struct, frozen=True):
    """The price of a model, in US dollars per million tokens.

    Cached tokens cost as much as input unless they have their own price.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None


class Settings(msgspec.Struct, frozen=True):
    """All settings, validated by `read_settings`."""

    disabled: bool = False
    level: str = "debug"
    level_is_set: bool = False
    """True if `level` was chosen, so it applies to lines that the program's handlers drop."""
    sample: float = 1.0
    fsync: str = "periodic"
    crash_hooks: bool = True
    silence_s: float = SILENCE_S
    wire: bool = True
    logs: bool = True
    prints: bool = True
    integrations: tuple[str, ...] = ()
    """Names of integrations/frameworks. `!name` excludes one; without a name, all are included."""
    wire_http: bool = False
    wire_hosts: tuple[str, ...] = ()
    wire_paths: tuple[str, ...] = ()
    proxy: bool = True
    """Record programs that are not Python through a proxy, under `vestige run`."""
    proxy_hosts: tuple[str, ...] = ()
    """Hosts that the proxy intercepts besides the known model hosts. `!host` excludes one."""
    openwop_redaction: str = "mask"
    openwop_bundle: bool = True
    openwop_feedback: bool = True
    openwop_bundle_bytes: int = OPENWOP_BUNDLE_MAX
    retention_age_s: float = RETENTION_AGE_S
    retention_body_bytes: int = RETENTION_BODY_BYTES
    store: str = ""
    """The address of a store on a server. Empty: the file store.db of the home."""
    segments: str = ""
    """The storage of segments for a loader. Empty: the server stores records itself."""
    prices: Mapping[str, ModelPrice] = {}
    """Prices by model name, which override the built-in price table."""


def read_settings(home: Home, env: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of a home. Raise SettingError for an invalid value."""
    source = _Source(home, os.environ if env is None else env)
    read = source.read
    settings = Settings(
        disabled=read("disabled", _flag, False),
        level=read("level", _one_of("debug", "info", "warn", "error"), "debug"),
        level_is_set=source.is_set("level"),
        sample=read("sample", _fraction, 1.0),
        fsync=read("fsync", _one_of("none", "periodic", "record"), "periodic"),
        crash_hooks=read("crash_hooks", _flag, True, old_name="last_words"),
        silence_s=read("silence", parse_duration, SILENCE_S),
        wire=read("wire", _flag, True),
        logs=read("logs", _flag, True),
        prints=read("prints", _flag, True),
        integrations=read("integrations", _integrations, ()),
        wire_http=read("wire_http", _flag, False),
        wire_hosts=read("wire_hosts", _patterns, ()),
        wire_paths=read("wire_paths", _patterns, ()),
        proxy=read("proxy", _flag, True),
        proxy_hosts=read("proxy_hosts", _patterns, ()),
        openwop_redaction=read(
            "openwop_redaction", _one_of("mask", "omit", "hash", "passthrough"), "mask"
        ),
        openwop_bundle=read("openwop_bundle", _flag, True),
        openwop_feedback=read("openwop_feedback", _flag, True),
        openwop_bundle_bytes=read("openwop_bundle_bytes", _bundle_size, OPENWOP_BUNDLE_MAX),
        retention_age_s=read("retention_age", parse_duration, float(RETENTION_AGE_S)),
        retention_body_bytes=read("retention_body_bytes", parse_size, RETENTION_BODY_BYTES),
        store=read("store", _address, ""),
        segments=read("segments", _segments, ""),
        prices=source.prices(),
    )
    source.reject_unread()
    return settings


def read_prices(home: Home) -> Mapping[str, ModelPrice]:
    """Return only the prices of config.toml. Raise SettingError for an invalid value."""
    return _Source(home, {}).prices()


def find_store(home: Home) -> str | Path:
    """Return where the store of a home is: an address if one is set, else its file."""
    if os.path.islink(home.store):  # a file that was opened by its path
        return home.store
    return _Source(home, os.environ).read("store", _address, "") or home.store


def find_segments(home: Home) -> str:
    """Return where the server writes segments for a loader, or an empty string."""
    return _Source(home, os.environ).read("segments", _segments, "")


def find_home(root: str | os.PathLike[str] | Home | None) -> tuple[Home, Settings]:
    """Return the home and its settings. Recording is off if the user has no home directory."""
    try:
        home = get_home(root)
    except UsageError as error:
        print(f"vestige: {error} Not recording.", file=sys.stderr)  # noqa: T201
        return null_home(), Settings(disabled=True)
    return home, _read_settings(home)


def null_home() -> Home:
    """Return the home of a recorder that records nothing."""
    from pathlib import Path

    return Home(Path(os.devnull))


_reported: set[str] = set()
"""Errors of settings that this process has reported: several recorders read the same file."""


def _read_settings(home: Home) -> Settings:
    """Return the settings, or the defaults and a warning: a typo must not stop an agent."""
    if is_disabled(os.environ):
        return Settings(disabled=True)
    try:
        return read_settings(home)
    except SettingError as error:
        if str(error) not in _reported:
            _reported.add(str(error))
            print(f"vestige: {error} Using the defaults.", file=sys.stderr)  # noqa: T201
        return Settings()


def is_disabled(env: Mapping[str, str]) -> bool:
    """Return whether VESTIGE_DISABLED is set. This works even if config.toml is invalid."""
    return env.get("VESTIGE_DISABLED", "").strip().lower() in ("1", "true", "yes", "on")


_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_UNITS_BYTES = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def parse_duration(text: str) -> float:
    """Parse `90s`, `15m`, `12h`, `7d`, `2w`, or bare seconds."""
    found = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,12})?)\s*([smhdw]?)\s*", text.lower())
    if not found:
        raise ValueError("expected a duration such as 90s, 15m, 12h, 7d or 2w")
    return float(found[1]) * _UNITS_S[found[2] or "s"]


def parse_size(text: str) -> int:
    """Parse `256MB`, `1.5 GB`, `64KiB`, or bare bytes."""
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,12})?)\s*([kmgt]?)(i?)b?\s*", text.lower())
    if not found or (found[3] and not found[2]):
        raise ValueError("expected a size such as 500KB, 256MB, 1GiB")
    unit = _UNITS_BYTES[found[2]]
    if found[3]:
        unit = 1024 ** ("kmgt".index(found[2]) + 1)
    size = int(float(found[1]) * unit)
    if size > SUM_MAX:
        raise ValueError("expected a size below 4000000TB")
    return size


def _address(text: str) -> str:
    if text and not re.match(r"(?i)clickhouses?://[^/]", text):
        raise ValueError("expected an address such as clickhouse://db:8123/vestige")
    return text


def _segments(text: str) -> str:
    if "://" in text and not re.match(r"s3://[a-z0-9][a-z0-9.-]{1,61}(/|$)", text):
        raise ValueError("expected s3://BUCKET/PREFIX or a folder")
    return text


class _Source:
    """The environment and config.toml. Errors name the origin of a value."""

    def __init__(self, home: Home, env: Mapping[str, str]) -> None:
        self._env = env
        self._config_path = home.config
        self._config = _read_config(home)
        self._read: list[str] = []

    def reject_unread(self) -> None:
        """Raise SettingError for an unknown name in config.toml."""
        for name in self._config:
            if name not in self._read:
                import difflib

                near = ", ".join(difflib.get_close_matches(name, self._read, 1)) or "see the docs"
                raise SettingError(
                    f"{self._config_path}: {name}: no such setting (nearest: {near})."
                )

    def prices(self) -> Mapping[str, ModelPrice]:
        self._read.append("prices")
        prices = self._config.get("prices", {})
        where = f"{self._config_path}: prices"
        if not isinstance(prices, dict) or not all(isinstance(p, dict) for p in prices.values()):
            raise SettingError(f'{where}: not a table of models (expected [prices."my-model"]).')
        if len(prices) > PRICES_MAX:
            raise SettingError(f"{where}: {len(prices)} models (expected at most {PRICES_MAX}).")
        return {model: _price(f'{where}."{model[:80]}"', table) for model, table in prices.items()}

    def is_set(self, name: str) -> bool:
        return bool(self._env.get(f"VESTIGE_{name.upper()}")) or name in self._config

    def read(self, name: str, parse: Callable[[str], T], default: T, *, old_name: str = "") -> T:
        """Return the value of a setting, which may also be set under its old name."""
        self._read.append(name)
        if old_name:
            default = self.read(old_name, parse, default)
        variable = f"VESTIGE_{name.upper()}"
        if self._env.get(variable):
            where, text = variable, self._env[variable]
        elif name in self._config:
            where, text = f"{self._config_path}: {name}", str(self._config[name])
        else:
            return default
        try:
            return parse(text)
        except ValueError as error:
            raise SettingError(f"{where}: {text!r} is not valid ({error}).") from None


def _read_config(home: Home) -> Mapping[str, Any]:
    try:
        # `read_file` bypasses a test's replacement of `open`.
        text = read_file(str(home.config)).decode()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{home.config}: cannot be read ({error}).") from None
    try:
        import tomllib  # only needed if the file exists
    except ImportError:
        return _read_flat_toml(text)  # Python 3.10
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingError(
            f"{home.config}: not valid TOML ({error}). Fix or remove the file."
        ) from None


def _read_flat_toml(text: str) -> dict[str, Any]:
    """Return the settings before the first table, for a Python without tomllib."""
    import ast

    found: dict[str, Any] = {}
    for line in text.splitlines():
        if line.lstrip().startswith("["):
            break
        name, equals, value = line.partition("=")
        value = {"true": "True", "false": "False"}.get(value.strip(), value.strip())
        if equals and not name.lstrip().startswith("#"):
            try:
                found[name.strip()] = ast.literal_eval(value.partition(" #")[0])
            except (ValueError, SyntaxError):
                continue
    return found


def _price(where: str, table: Mapping[str, Any]) -> ModelPrice:
    fields = ModelPrice.__struct_fields__
    for name, value in table.items():
        if name not in fields:
            raise SettingError(
                f"{where}: {name[:80]!r} is not known (expected {', '.join(fields)})."
            )
        if type(value) not in (int, float) or not 0 <= value <= PRICE_MAX:
            raise SettingError(
                f"{where}: {name} = {str(value)[:80]!r} is not a price (expected dollars per"
                f" million tokens, from 0 to {PRICE_MAX:.0f})."
            )
    missing = [name for name in ("input", "output") if name not in table]
    if missing:
        raise SettingError(f"{where}: {missing[0]} is missing (expected input and output).")
    return ModelPrice(**{name: float(value) for name, value in table.items()})


def _flag(text: str) -> bool:
    word = text.strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off"):
        return False
    raise ValueError("expected 1 or 0")


def _patterns(text: str) -> tuple[str, ...]:
    """Split at commas. A list in config.toml has Python's notation."""
    words = (word.strip(" []'\"") for word in text.split(","))
    return tuple(word for word in words if word)


def _integrations(text: str) -> tuple[str, ...]:
    """Split at commas. A flag switches all integrations on or off."""
    try:
        return () if _flag(text) else ("!*",)
    except ValueError:
        return _patterns(text)


def _bundle_size(text: str) -> int:
    size = parse_size(text)
    if size < OPENWOP_BUNDLE_MIN:
        raise ValueError(f"expected at least {OPENWOP_BUNDLE_MIN} bytes")
    return size


def _fraction(text: str) -> float:
    fraction = float(text)
    if not 0 <= fraction <= 1:
        raise ValueError("expected a number from 0 to 1")
    return fraction


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return word

    return parse
