"""`vestige bundle validate`: check bundles and runs of other formats against their rules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vestige.cli.github_annotations import annotate, plain, write_summary
from vestige.cli.options import Examples
from vestige.cli.progress import ProgressBar

if TYPE_CHECKING:
    from vestige.formats.artifacts.validation_rules import Profile
    from vestige.formats.protocol import Problem, ValidationResult

Results = list[tuple[str, "ValidationResult"]]


@click.command(
    "validate",
    cls=Examples,
    examples="""
  vestige bundle validate tests/artifacts                  every bundle below a folder
  vestige bundle validate tests/artifacts/e2e/20260210_170000 --profile strict
  vestige bundle validate bundle.zip --format json         an archive, findings as JSON
  vestige bundle validate tests/artifacts --format github  findings as workflow annotations
""",
    exits="0 valid, 1 invalid, 2 path not found, or nothing to validate",
)
@click.argument(
    "paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path)
)
@click.option(
    "--profile",
    default="seed",
    show_default=True,
    type=click.Choice(("seed", "latest", "strict")),
    help="Rules for artifact bundles: seed (the specification as published), latest (with the"
    " rules of later versions), strict (stricter than the specification).",
)
@click.option(
    "--format",
    "format",
    default="text",
    show_default=True,
    type=click.Choice(("text", "json", "github")),
    help="Output format.",
)
def validate(paths: tuple[Path, ...], profile: Profile, format: str) -> None:
    """Check artifact bundles, and runs of other formats, against their rules.

    PATH is a bundle, a folder of bundles, a zipped bundle, or any path that `vestige import`
    reads. All files are hashed. Every problem is listed with its file, position, rule and a hint.
    """
    from vestige.errors import NotFoundError
    from vestige.transfer.validate import validate_path

    results: Results = []
    absent: list[str] = []
    with ProgressBar("Validating", len(paths) if len(paths) > 1 else None) as bar:
        for path in paths:
            bar.update(path.name)
            try:
                for result in validate_path(path, profile):
                    results.append(result)
                    bar.update(f"{len(results):,} validated, {path.name}")
            except NotFoundError as error:
                absent.append(str(error))
            bar.advance()
    for line in _RENDERERS[format](results, profile):
        click.echo(line)
    for message in absent:
        click.echo(f"vestige: {plain(message)}", err=True)
    if absent:
        sys.exit(2)
    if not all(checked.valid for _, checked in results):
        sys.exit(1)


def _as_text(results: Results, profile: str) -> Iterator[str]:
    for name, checked in results:
        for problem in checked.problems:
            mark = "" if problem.severity == "error" else "warning: "
            yield f"  {mark}{plain(str(problem))} [{problem.rule}]"
        by = f" by {profile}" if name == "artifacts" else ""
        errors = sum(problem.severity == "error" for problem in checked.problems)
        verdict = f"invalid{by}, {_counted(errors, 'error')}" if errors else f"valid{by}"
        yield f"{plain(checked.path)}: {verdict} ({name}, {_counted(checked.files, 'file')})"


def _as_json(results: Results, profile: str) -> Iterator[str]:
    import json

    report: dict[str, Any] = {
        "version": 1,
        "profile": profile,
        "valid": bool(results) and all(checked.valid for _, checked in results),
        "checked": [
            {
                "path": checked.path,
                "format": name,
                "valid": checked.valid,
                "files": checked.files,
                "problems": [_problem_data(problem) for problem in checked.problems],
            }
            for name, checked in results
        ],
    }
    yield json.dumps(report, indent=2)


def _problem_data(problem: Problem) -> dict[str, str]:
    names = ("file", "place", "rule", "message", "hint", "severity")
    return {name: getattr(problem, name) for name in names}


def _as_github(results: Results, profile: str) -> Iterator[str]:
    for _, checked in results:
        yield from map(annotate, checked.problems)
        count = sum(problem.severity == "error" for problem in checked.problems)
        verdict = _counted(count, "error") if count else "valid"
        # The prefix keeps a path from starting a workflow command.
        yield f"vestige bundle validate: {plain(checked.path)}: {verdict}"
    write_summary(results)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


_RENDERERS: dict[str, Callable[[Results, str], Iterator[str]]] = {
    "text": _as_text,
    "json": _as_json,
    "github": _as_github,
}
