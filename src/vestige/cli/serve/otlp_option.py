"""The option `--otlp` of `vestige server start` and `vestige ui`, and what it prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from vestige.server.otlp_ports import OtlpPorts

_DEFAULT = "4318,4317"


def _parse(ctx: Any, param: Any, value: str | None) -> OtlpPorts | None:
    if value is None:
        return None
    from vestige.server.otlp_ports import choose_otlp_ports

    numbers = value.split(",")
    if len(numbers) != 2 or not all(
        number.isascii() and number.isdecimal() and 0 < int(number) <= 65535 for number in numbers
    ):
        raise click.BadParameter(
            f"{value!r}: not two ports (expected HTTP,GRPC, such as {_DEFAULT})."
        )
    return choose_otlp_ports(int(numbers[0]), int(numbers[1]))


def otlp_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--otlp",
        metavar="[HTTP,GRPC]",
        is_flag=False,
        flag_value=_DEFAULT,
        callback=_parse,
        help=f"Also listen on OpenTelemetry's ports (default: {_DEFAULT}).",
    )(command)


def print_otlp(ports: OtlpPorts, host: str) -> None:
    """Print where exporters may send, and how they are set up."""
    grpc = "" if ports.grpc is None else f" and {host}:{ports.grpc} (gRPC)"
    click.echo(f"OpenTelemetry exporters: http://{host}:{ports.http} (HTTP){grpc}", err=True)
    if ports.grpc is None:
        click.echo("  OTLP/gRPC needs an extra: pip install 'vestige[otlp]'", err=True)
    click.echo("  Set one up: vestige setup otel", err=True)
