"""AgentDbg's settings: AGENTDBG_* > ./.agentdbg/config.yaml > ~/.agentdbg/config.yaml > the
default.

    AGENTDBG_DATA_DIR            where runs/ is (default ~/.agentdbg)
    AGENTDBG_REDACT              0: no rules about keys in the run directory
    AGENTDBG_REDACT_KEYS         keys whose values are secrets too, by comma
    AGENTDBG_MAX_FIELD_BYTES     a longer text is truncated (20000)
    AGENTDBG_LOOP_WINDOW         calls of one round of a loop, at most (12)
    AGENTDBG_LOOP_REPETITIONS    rounds that make a loop (3)
    AGENTDBG_RUN_NAME            the name of every run; only as a variable
    AGENTDBG_IMPLICIT_RUN        1: records outside any run get a run; only as a variable
    AGENTDBG_STOP_ON_LOOP and the other guardrails (guardrails.py)

In config.yaml the names are lower case without the prefix, the guardrails under `guardrails:`.
An invalid value is reported once on stderr and ignored.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from vestige.agentdbg.config_file import SIZE_MAX, Value, parse_config
from vestige.agentdbg.guardrails import Guardrails

T = TypeVar("T")
CONFIG = os.path.join(".agentdbg", "config.yaml")
_warned: set[str] = set()
_WARNED_MAX = 100


class Settings(msgspec.Struct, frozen=True):
    """Every setting, valid. `read_settings` makes it."""

    data_dir: str | None
    """None without a home directory or a setting."""
    redact: bool = True
    redact_keys: tuple[str, ...] = ()
    max_field_bytes: int = 20_000
    loop_window: int = 12
    loop_repetitions: int = 3
    guardrails: Guardrails = Guardrails()


def read_settings() -> Settings:
    """Return the current settings. Never raises."""
    files = [_read_config(path) for path in (CONFIG, os.path.join(os.path.expanduser("~"), CONFIG))]
    source = _Source(files)
    return Settings(
        data_dir=_data_dir(source.read("data_dir", _text, "~/.agentdbg")),
        redact=source.read("redact", _flag, True),
        redact_keys=source.read("redact_keys", _words, ()),
        max_field_bytes=source.read("max_field_bytes", _at_least(100), 20_000),
        loop_window=source.read("loop_window", _at_least(1), 12),
        loop_repetitions=source.read("loop_repetitions", _at_least(2), 3),
        guardrails=_guardrails(source),
    )


def run_name() -> str | None:
    """Return the name that the environment gives to every run."""
    return os.environ.get("AGENTDBG_RUN_NAME", "").strip() or None


def wants_implicit_run() -> bool:
    word = os.environ.get("AGENTDBG_IMPLICIT_RUN", "").strip().lower()
    return word in ("1", "true", "yes", "on")


def warn_once(message: str) -> None:
    """Print a warning once. Wrong settings never stop the program."""
    if message in _warned or len(_warned) >= _WARNED_MAX:
        return
    _warned.add(message)
    try:
        sys.stderr.write(f"vestige.agentdbg: {message}\n")
    except Exception:  # noqa: BLE001  # stderr may be closed, or anything
        pass


class _Source:
    """The source of a setting's value, for the warning."""

    def __init__(self, files: Iterable[tuple[str, dict[str, Value]]]) -> None:
        self._files = list(files)

    def read(self, name: str, parse: Callable[[Any], T], default: T, within: str = "") -> T:
        """Return the first valid value, in the order of precedence."""
        for where, value in self._places(name, within):
            try:
                return parse(value)
            except (ValueError, TypeError, OverflowError) as error:
                warn_once(f"{where}: {_short(value)} is not a valid value ({error}). Ignored.")
        return default

    def _places(self, name: str, within: str) -> Iterable[tuple[str, Value]]:
        variable = f"AGENTDBG_{name.upper()}"
        if os.environ.get(variable, "").strip():
            yield variable, os.environ[variable]
        for path, values in self._files:
            section = values.get(within, {}) if within else values
            value = section.get(name) if isinstance(section, dict) else None
            if value not in (None, ""):
                yield f"{path}: {name}", value


def _guardrails(source: _Source) -> Guardrails:
    def read(name: str, parse: Callable[[Any], T], default: T) -> T:
        return source.read(name, parse, default, "guardrails")

    return Guardrails(
        stop_on_loop=read("stop_on_loop", _flag, False),
        stop_on_loop_min_repetitions=read("stop_on_loop_min_repetitions", _at_least(2), 3),
        max_llm_calls=read("max_llm_calls", _at_least(0), None),
        max_tool_calls=read("max_tool_calls", _at_least(0), None),
        max_events=read("max_events", _at_least(0), None),
        max_duration_s=read("max_duration_s", _seconds, None),
    )


def _read_config(path: str) -> tuple[str, dict[str, Value]]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(SIZE_MAX)
    except (FileNotFoundError, NotADirectoryError):
        return path, {}
    except OSError as error:
        warn_once(f"{path}: cannot be read ({error.strerror}). Ignored.")
        return path, {}
    values, complaints = parse_config(text)
    for complaint in complaints:
        warn_once(f"{path}: {complaint}. Ignored.")
    return path, values


def _data_dir(text: str) -> str | None:
    path = os.path.expanduser(text)
    if path.startswith("~"):
        warn_once("no home directory: runs are not stored. Set AGENTDBG_DATA_DIR.")
        return None
    try:
        return os.path.abspath(path)
    except OSError:  # a working directory that is gone
        return path


# --- validation of values ----------------------------------------------------------------------


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("expected text")
    return value.strip()


def _flag(value: Any) -> bool:
    word = _text(value).lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off"):
        return False
    raise ValueError("expected 1 or 0")


def _words(value: Any) -> tuple[str, ...]:
    items = value if isinstance(value, list) else _text(value).split(",")
    return tuple(word.strip() for word in items if word.strip())


def _at_least(least: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        try:
            number = int(_text(value))
        except ValueError:
            raise ValueError(f"expected a whole number from {least}") from None
        if number < least:
            raise ValueError(f"expected a whole number from {least}")
        return number

    return parse


def _seconds(value: Any) -> float:
    number = float(_text(value))
    if not 0 <= number < float("inf"):
        raise ValueError("expected seconds")
    return number


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
