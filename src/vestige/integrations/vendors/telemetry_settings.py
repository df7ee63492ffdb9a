"""The settings with which vendors' programs send their telemetry to this machine's Vestige.

    changes = list_changes("claude", Places(user=Path.home(), data=home.root), endpoint, key)

Pure: nothing is read or written here. Elsewhere: settings_files.py applies the changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

Tree = dict[str, Any]

TOOLS: Final = ("claude", "codex", "gemini", "opencode", "otel")


@dataclass(frozen=True, slots=True)
class Places:
    """Directories that contain settings."""

    user: Path
    """The user's home directory."""
    data: Path
    """The data directory of Vestige, for files of variables."""
    variables: Mapping[str, str]
    """The environment: programs may use another directory for their settings."""

    def find(self, variable: str, default: str) -> Path:
        named = self.variables.get(variable)
        return Path(named) if named else self.user / default


@dataclass(frozen=True, slots=True)
class JsonChange:
    """Keys to set in a JSON file; others keep their values."""

    path: Path
    tree: Tree


@dataclass(frozen=True, slots=True)
class VariablesChange:
    """Environment variables, one `NAME=value` per line."""

    path: Path
    variables: dict[str, str]
    is_read_by_program: bool = False
    """False: the user has to load the file in a shell."""


Change = JsonChange | VariablesChange


def list_changes(tool: str, places: Places, endpoint: str, key: str) -> list[Change]:
    """Return what has to change for a tool; `endpoint` is that of OTLP/HTTP."""
    return _BUILDERS[tool](places, endpoint, key)


def _claude(places: Places, endpoint: str, key: str) -> list[Change]:
    variables = {
        "CLAUDE_CODE_ENABLE_TELEMETRY": "1",
        "CLAUDE_CODE_ENHANCED_TELEMETRY_BETA": "1",
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_LOGS_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        # Claude Code sends this text as it is: a percent-encoded space would stay encoded.
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {key}",
        "OTEL_LOG_USER_PROMPTS": "1",
        "OTEL_LOG_TOOL_DETAILS": "1",
        "OTEL_LOG_TOOL_CONTENT": "1",
        "OTEL_LOG_RAW_API_BODIES": "1",
    }
    path = places.find("CLAUDE_CONFIG_DIR", ".claude") / "settings.json"
    return [JsonChange(path, {"env": variables})]


def _gemini(places: Places, endpoint: str, key: str) -> list[Change]:
    folder = places.user / ".gemini"
    telemetry = {
        "enabled": True,
        "target": "local",
        "otlpEndpoint": endpoint,
        "otlpProtocol": "http",
        "logPrompts": True,
    }
    header = {"OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{key}"}
    return [
        JsonChange(folder / "settings.json", {"telemetry": telemetry}),
        VariablesChange(folder / ".env", header, is_read_by_program=True),
    ]


def _opencode(places: Places, endpoint: str, key: str) -> list[Change]:
    folder = places.find("XDG_CONFIG_HOME", ".config") / "opencode"
    return [
        JsonChange(folder / "opencode.json", {"experimental": {"openTelemetry": True}}),
        VariablesChange(places.data / "opencode.env", _exporter(endpoint, key)),
    ]


def _codex(places: Places, endpoint: str, key: str) -> list[Change]:
    """Codex: its OpenTelemetry spans have no content, so its own trace files are read."""
    traces = str(places.data / "codex-traces")
    return [VariablesChange(places.data / "codex.env", {"CODEX_ROLLOUT_TRACE_ROOT": traces})]


def _otel(places: Places, endpoint: str, key: str) -> list[Change]:
    return [VariablesChange(places.data / "otel.env", _exporter(endpoint, key))]


def _exporter(endpoint: str, key: str) -> dict[str, str]:
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{key}",
    }


_BUILDERS: Final = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "opencode": _opencode,
    "otel": _otel,
}
