"""Write docs/reference/ and schemas/ from the code itself, so that they cannot say anything else.

    python docs/generate.py             write the pages
    python docs/generate.py --check     exit 1, and name the pages that are stale

Reasons and descriptions come from docstrings. Python drops those that follow a
constant or a field, so they are read from the source (`ast`), not from the module.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import debugger
import schemas

from vestige import errors, limits, settings
from vestige.cli.main import cli
from vestige.formats.artifacts import validation_rules as artifact_rules
from vestige.formats.artifacts.json_files import json_schemas as artifact_schemas
from vestige.formats.openwop import validation_rules as openwop_rules
from vestige.record import types
from vestige.store.sqlite import schema
from vestige.testing import FakeRecorder

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
NOTE = "<!-- Written by docs/generate.py. Do not edit: run `make docs`. -->"


def main(arguments: list[str]) -> int:
    pages = {
        FOLDER / name: f"{NOTE}\n\n{render()}".rstrip() + "\n" for name, render in PAGES.items()
    }
    pages |= {ROOT / "schemas" / name: render() for name, render in schemas.SCHEMAS.items()}
    pages |= {ROOT / "schemas" / name: text for name, text in schema_files()}
    pages[ROOT / "web" / "openapi.json"] = render_openapi()
    stale = [path for path, text in pages.items() if not path.exists() or _read(path) != text]
    if "--check" in arguments:
        for path in stale:
            sys.stderr.write(f"{path.relative_to(ROOT)} is stale. Run `make docs`.\n")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pages[path], encoding="utf-8")
        sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")
    return 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


# --- the API ----------------------------------------------------------------------------


def render_openapi() -> str:
    """What the viewer's types are generated from, so that its build needs no Python of ours."""
    from vestige.home import Home
    from vestige.server.app import make_app
    from vestige.server.routes.openapi import render_document
    from vestige.server.server_state import Server

    document = render_document(make_app(Server(Home(Path("/nowhere")))).routes)
    document["info"]["version"] = ""  # a release alone does not rebuild the page
    return json.dumps(document, indent=1) + "\n"


# --- bundles ----------------------------------------------------------------------------


def schema_files() -> Iterator[tuple[str, str]]:
    """JSON Schemas of the typed files of an artifact bundle."""
    for name, published in artifact_schemas.published().items():
        yield f"artifacts/{name}", json.dumps(published, indent=2) + "\n"


def render_rules() -> str:
    parts = [
        "# Rules of an artifact bundle",
        " ".join((artifact_rules.__doc__ or "").partition("\n")[0].split()),
    ]
    parts.append(
        "`vestige bundle validate` names the rule that is broken. A rule belongs to the first "
        "profile that enforces it: `latest` and `strict` each add to `seed`. JSON Schemas of the "
        "typed files are in `schemas/artifacts/`."
    )
    for profile in artifact_rules.PROFILES:
        rows = [
            (
                f"`{rule.id}`",
                rule.meaning + (" *(warning)*" if rule.warning else ""),
                rule.clause,
                rule.hint,
            )
            for rule in artifact_rules.RULES.values()
            if rule.profile == profile
        ]
        parts += [
            f"## {profile}",
            _table(("rule", "what has to hold", "clause", "what to do"), rows),
        ]
    return "\n\n".join(parts)


def render_openwop_rules() -> str:
    rows = [
        (
            f"`{rule.id}`",
            rule.meaning + (" *(warning)*" if rule.warning else ""),
            rule.clause,
            rule.hint,
        )
        for rule in openwop_rules.RULES.values()
    ]
    introduction = (
        "`vestige bundle validate FILE` reports everything wrong with a bundle at once, each with "
        "its place and its rule. What a published schema says is an error, and so is what the text "
        "says plainly; a warning alone makes no bundle invalid."
    )
    table = _table(("rule", "what has to hold", "who says so", "what to do"), rows)
    return "\n\n".join(["# Rules of an OpenWOP debug bundle", introduction, table])


# --- commands ---------------------------------------------------------------------------


def render_cli() -> str:
    intro = f"{cli.help} Every command has `--help`."
    return "\n\n".join(["# Commands", intro, *map(_command, cli.commands.values())])


def _entries(group: click.Group) -> list[tuple[str, ...]]:
    """Return the commands of a group, with the first sentence of their help."""
    return [
        (f"`vestige {group.name} {name}`", (command.help or "").partition("\n")[0])
        for name, command in group.commands.items()
    ]


def _command(command: Any) -> str:
    context = click.Context(command, info_name=f"vestige {command.name}")
    usage = " ".join([f"vestige {command.name}", *command.collect_usage_pieces(context)])
    options = [
        _option(param)
        for param in command.params
        if isinstance(param, click.Option) and not param.hidden
    ]
    table = _table(("option", "what it does"), options)
    if isinstance(command, click.Group):
        table = _table(("command", "what it does"), _entries(command))
    return "\n\n".join(
        [
            f"## vestige {command.name}",
            f"```text\n{usage}\n```",
            inspect.cleandoc(command.help),
            table,
            f"```text\n{command.examples}\n```",
            f"Exit status: {command.exits}.",
        ]
    )


def _option(option: click.Option) -> tuple[str, ...]:
    name = " ".join([*option.opts, option.metavar or ""]).strip()
    shown = option.show_default  # a text describes it
    default = f" Default: {shown if isinstance(shown, str) else option.default}." if shown else ""
    return f"`{name}`", f"{option.help or ''}{default}".strip()


# --- settings ---------------------------------------------------------------------------


def render_settings() -> str:
    text = settings.__doc__ or ""
    fields = dict(_settings())
    described, rows = re.findall(r"(?m)^ +VESTIGE_(\w+) {2,}(.+)$", text), []
    assert {name.lower() for name, _ in described} >= fields.keys(), (
        "settings.py: say what each is for"
    )
    for variable, meaning in described:
        name = variable.lower()
        in_config = f"`{name}`" if name in fields else "—"
        rows.append(
            (f"`VESTIGE_{variable}`", in_config, f"`{fields.get(name, '~/.vestige')}`", meaning)
        )
    order = text.partition("\n")[0].removeprefix("Settings: ")
    own = re.findall(r"Set by Vestige itself[^.]*\.", text)
    return "\n\n".join(
        [
            f"# Settings\n\nWhat wins: {order}",
            "A program that records never stops over a bad value: it says so and uses the"
            " defaults. Commands refuse it, with exit status 2.",
            _table(("variable", "in config.toml", "default", "meaning"), rows),
            '```toml\n# $VESTIGE_HOME/config.toml\nlevel = "info"\nretention_age = "30d"\n```',
            *own,
            _PRICES,
        ]
    )


_PRICES = """\
## Own prices

If the table of prices does not know a model, or if you pay another price, set the price in
config.toml, in US dollars per million tokens. `input` and `output` are required. Without
`cache_read` and `cache_write`, cached tokens cost as much as input. Use the model's name as in
its calls. A cost that a program records itself (`cost_usd`) overrides your price, and your price
overrides the table.

```toml
# $VESTIGE_HOME/config.toml
[prices."my-model"]
input = 1.5
output = 6.0
cache_read = 0.15
cache_write = 1.9
```"""


def _settings() -> Iterator[tuple[str, str]]:
    """(name, default) of each call of `read` in `read_settings`."""
    defaults = settings.Settings()
    for node in ast.walk(ast.parse(inspect.getsource(settings.read_settings))):
        if not isinstance(node, ast.keyword) or not isinstance(node.value, ast.Call):
            continue
        if isinstance(node.value.func, ast.Name) and node.value.func.id == "read":
            name = ast.literal_eval(node.value.args[0])
            yield name, _default(str(node.arg), getattr(defaults, str(node.arg)))


def _default(field: str, value: Any) -> str:
    if field.endswith("_age_s"):
        return f"{value / 86400:g}d"
    if field.endswith("_bytes"):
        return f"{value // 10**6}MB" if value % 10**6 == 0 else f"{value / limits.MIB:g}MiB"
    return str(int(value)) if isinstance(value, bool) else str(value)


# --- limits, the schema, records -------------------------------------------------------


def render_limits() -> str:
    parts = ["# Limits", (limits.__doc__ or "").strip()]
    source = inspect.getsource(limits)
    for title, body in re.findall(r"(?ms)^# --- (.+?) -+\n(.*?)(?=^# --- |\Z)", source):
        rows = [
            (f"`{name}`", "`" + re.sub(r" \* ([KMG])IB\b", r" \1iB", value) + "`", reason)
            for name, value, reason in _told(ast.parse(body))
        ]
        parts += [f"## {title[0].upper()}{title[1:]}", _table(("name", "value", "why"), rows)]
    return "\n\n".join(parts)


def render_schema() -> str:
    introduction = (
        "One SQLite file, `store.db` in the home. Each step brings an older store to the next"
        " version; `PRAGMA user_version` is the version of a file. Read it with any SQLite"
        " tool; write to it only through Vestige."
    )
    steps = [
        f"## Version {n}\n\n```sql\n{sql.strip()}\n```" for n, sql in enumerate(schema.STEPS, 1)
    ]
    return "\n\n".join(["# The store's schema", introduction, *steps])


def render_record() -> str:
    introduction = inspect.cleandoc(types.__doc__ or "").partition("Types here")[0].strip()
    parts = ["# The record", introduction]
    for node in ast.parse(inspect.getsource(types)).body:
        if not isinstance(node, ast.ClassDef) or node.name == "Unknown":
            continue
        tags = [ast.literal_eval(word.value) for word in node.keywords if word.arg == "tag"]
        rows = [
            (f"`{name}`", f"`{kind}`", text)
            for name, kind, text in _told(node, ast.AnnAssign)
            if name != "extra"  # never on the line: what it holds is written back where it was
        ]
        parts += [
            f"## {(tags or [node.name])[0]}",
            ast.get_docstring(node) or "",
            _table(("field", "type", "meaning"), rows),
        ]
    return "\n\n".join([*parts, "## An example", f"```json\n{_example()}\n```"])


def _example() -> str:
    """The lines of a small run, from a recorder whose clock and ids count."""
    for name in [name for name in os.environ if name.startswith("VESTIGE_")]:
        del os.environ[name]  # the caller may be recorded, or have disabled recording
    recorder = FakeRecorder()
    run = recorder.run("triage", conversation_id="ticket-9")
    with run, run.span("search", type="tool", body='{"q": "refunds"}') as span:
        span.set_attributes(tool_call_id="call_7")
        span.log.info("asking", api_key="not-a-real-key")
        span.end(body="3 pages")
    lines = [line for line in recorder.journal.lines if run.run_id.encode() in line]
    recorder.close()
    return b"".join(lines).decode().strip()


# --- errors -----------------------------------------------------------------------------


def render_errors() -> str:
    return "\n\n".join(
        [
            "# Errors",
            "Everything that Vestige raises is a `VestigeError`. A command that fails prints one"
            " line and leaves with the exit code of its error. Recording raises none of these into"
            " the program that it records; only a call that makes no sense, such as an unknown"
            " level, is refused.",
            _table(("error", "exit code", "also a", "meaning"), list(_errors(errors.VestigeError))),
            "A message reads: *where: what is wrong (what was expected). What to do.*",
            "Guardrails of `vestige.agentdbg` are no errors of ours but stops that a program asked"
            " for: `AgentDbgGuardrailExceeded` and its child `AgentDbgLoopAbort` are each a"
            " `BaseException`, so that `except Exception` does not swallow them.",
        ]
    )


def _errors(cls: type[Any], depth: int = 0) -> Iterator[tuple[str, ...]]:
    also = [f"`{base.__name__}`" for base in cls.__bases__ if base.__module__ == "builtins"]
    meaning = (cls.__doc__ or "").partition("\n")[0]
    yield f"{'&emsp;' * depth}`{cls.__name__}`", str(cls.exit_code), ", ".join(also), meaning
    for child in cls.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _errors(child, depth + 1)


# --- shared -----------------------------------------------------------------------------


def _told(tree: Any, kind: type[Any] = ast.Assign) -> Iterator[tuple[str, str, str]]:
    """(name, value or type, the docstring after it) of each assignment in a body."""
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, kind):
            target = node.targets[0] if kind is ast.Assign else node.target
            value = node.value if kind is ast.Assign else node.annotation
            is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            text = " ".join(str(after.value.value).split()) if is_text else ""
            yield ast.unparse(target), ast.unparse(value), text


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines
    )


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": render_cli,
    "settings.md": render_settings,
    "limits.md": render_limits,
    "schema.md": render_schema,
    "record.md": render_record,
    "errors.md": render_errors,
    "checks.md": lambda: debugger.render_checks(_table),
    "rules.md": render_rules,
    "openwop-rules.md": render_openwop_rules,
    "verbs.md": lambda: debugger.render_verbs(_table),
}

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
