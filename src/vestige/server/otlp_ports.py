"""The ports on which OpenTelemetry exporters send by default, and the key that they need.

    ports = choose_otlp_ports()      # HTTP on 4318, gRPC on 4317 if grpcio is installed
    key = read_otlp_key(home)        # the same after every start; it can only write runs

The key derives from the viewer's key of the home, so an exporter's configuration stays valid. It
is accepted on this machine only; others use a key with the scope `runs:write`
(`vestige server keys`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from vestige.home import Home
from vestige.server.otlp_grpc import is_installed
from vestige.server.viewer_instance import read_viewer_key, sign

HTTP_PORT: Final = 4318
GRPC_PORT: Final = 4317
_KEY_CHARACTERS: Final = 40


@dataclass(frozen=True, slots=True)
class OtlpPorts:
    """Ports to listen on, besides the server's own."""

    http: int = HTTP_PORT
    grpc: int | None = GRPC_PORT
    """None: grpcio is not installed."""


def choose_otlp_ports(http: int = HTTP_PORT, grpc: int = GRPC_PORT) -> OtlpPorts:
    """Return the ports to listen on: gRPC only if it is installed."""
    return OtlpPorts(http, grpc if is_installed() else None)


def read_otlp_key(home: Home) -> str:
    """Return the key of exporters on this machine, which is created when it is first needed."""
    home.make()
    return sign(read_viewer_key(home), "otlp")[:_KEY_CHARACTERS]
