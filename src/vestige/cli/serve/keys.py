"""`vestige server keys add|list|revoke`: access keys of the server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from vestige.cli.options import DURATION, Examples, Home, home_option, json_option

if TYPE_CHECKING:
    from vestige.fleet.api_keys import Key, Keys


@click.command(
    "keys",
    cls=Examples,
    examples="""
  vestige server keys add ci --scope runs:write                       for `vestige server ship`
  vestige server keys add eva --scope runs:read,debug-bundle:read     to read runs and bundles
  vestige server keys add acme --scope runs:write --tenant acme --expires 30d
  vestige server keys list                                           keys themselves are never shown
  vestige server keys revoke ci                                       by name or id, immediately
""",
    exits="0 done, 2 bad argument or key not found, 3 keys.json is damaged or readable by others",
)
@click.argument("action", type=click.Choice(("add", "list", "revoke")))
@click.argument("name", required=False)
@click.option(
    "--scope",
    "scopes",
    metavar="SCOPES",
    help="(add) Permissions, comma-separated: runs:read, runs:write, debug-bundle:read.",
)
@click.option(
    "--tenant",
    metavar="NAME",
    help="(add) Tenant (default: default).",
)
@click.option(
    "--expires",
    type=DURATION,
    metavar="AGE",
    help="(add) Expiry: 12h, 30d (default: never).",
)
@home_option
@json_option
def keys(
    action: str,
    name: str | None,
    scopes: str | None,
    tenant: str | None,
    expires: float | None,
    home: Home,
    as_json: bool,
) -> None:
    """Create, list and revoke access keys of the server.

    A new key is printed once; only its hash is stored. A running server applies changes with the
    next request.
    """
    from vestige.fleet.api_keys import Keys

    if action != "add" and (scopes or tenant or expires is not None):
        raise click.UsageError("--scope, --tenant and --expires apply to `keys add`.")
    if (name is None) != (action == "list"):
        raise click.UsageError(f"keys {action}: NAME is {'not used' if name else 'missing'}.")
    known = Keys(home)
    if action == "list":
        _list(known, as_json)
    elif action == "revoke":
        revoked = known.revoke(name or "")
        click.echo(_json(_data(revoked)) if as_json else f"{revoked.id} {revoked.name}: revoked")
    else:
        _add(known, name or "", scopes, tenant, expires, as_json)


def _add(
    known: Keys,
    name: str,
    scopes: str | None,
    tenant: str | None,
    expires: float | None,
    as_json: bool,
) -> None:
    from vestige._runtime.clock import SYSTEM
    from vestige.record.tenant import DEFAULT_TENANT

    expires_ns = None if expires is None else SYSTEM.now_ns() + int(expires * 1e9)
    requested = [scope.strip() for scope in (scopes or "").split(",") if scope.strip()]
    new = known.add(name, requested, DEFAULT_TENANT if tenant is None else tenant, expires_ns)
    if as_json:
        click.echo(
            _json({"id": new.id, "key": new.key, "tenant": new.tenant, "scopes": list(new.scopes)})
        )
        return
    click.echo(new.key)
    click.echo(
        f"{name} ({new.id}), tenant {new.tenant}, {', '.join(new.scopes)}. Save it now: it is not"
        " shown again.",
        err=True,
    )


def _list(known: Keys, as_json: bool) -> None:
    from vestige._runtime.clock import SYSTEM
    from vestige.query.formatting import single_line
    from vestige.query.text_layout import columns

    found = [_data(key) for key in known.list()]
    if as_json:
        click.echo(_json({"keys": found}))
        return
    if not found:
        click.echo("No keys. Create one: `vestige server keys add NAME --scope runs:read`.")
        return
    now_ns = SYSTEM.now_ns()
    states = {key.id: key.state(now_ns) for key in known.list()}
    table = [["id", "name", "tenant", "scopes", "created", "expires", "state"]]
    table += [
        [
            each["id"],
            single_line(each["name"], 40),
            each["tenant"],
            ",".join(each["scopes"]),
            each["created_at"],
            each["expires_at"] or "-",
            states[each["id"]],
        ]
        for each in found
    ]
    for line in columns(table):
        click.echo(line)


def _data(key: Key) -> dict[str, Any]:
    """Return a key as data, without its hash."""
    from vestige.query.formatting import timestamp

    return {
        "id": key.id,
        "name": key.name,
        "tenant": key.tenant,
        "scopes": list(key.scopes),
        "created_at": timestamp(key.created_ns),
        "expires_at": None if key.expires_ns is None else timestamp(key.expires_ns),
        "revoked_at": None if key.revoked_ns is None else timestamp(key.revoked_ns),
    }


def _json(data: object) -> str:
    return json.dumps(data, ensure_ascii=False, indent=2)
