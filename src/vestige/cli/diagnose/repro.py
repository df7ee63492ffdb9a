"""`vestige bundle repro`: run the failures of an artifact bundle again."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from vestige.cli.options import Examples


@click.command(
    "repro",
    cls=Examples,
    examples="""
  vestige bundle repro tests/artifacts/shop/20260210_170000               run failed tests again
  vestige bundle repro tests/artifacts/shop/20260210_170000 --case card   only this case
  vestige bundle repro ./bundle --print                                   print the command
""",
    exits="that of the command; 128 + n if signal n killed it;"
    " 2 bundle or case not found, or could not be started; 3 bundle unreadable",
)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--case", metavar="ID", help="Name of a case, or a unique part of it.")
@click.option("--print", "print_only", is_flag=True, help="Print the command; do not run it.")
def repro(bundle: Path, case: str | None, print_only: bool) -> None:
    """Run the failed tests of BUNDLE again, with the command in its repro.txt.

    The same tests run in the same order, with the recorded seed and variables, in the original
    folder (or here, if it does not exist). A warning is printed if the code has changed. The
    command runs as written: only use bundles that you trust.
    """
    from vestige.artifacts import replay_command
    from vestige.artifacts.finalize import failed_cases
    from vestige.errors import NotFoundError, UsageError
    from vestige.formats.artifacts import constants
    from vestige.formats.artifacts.write import read_cases

    bundle = bundle.parent if bundle.name == constants.BUNDLE else bundle
    if not bundle.is_dir():
        raise NotFoundError(f"{bundle}: bundle not found (expected a directory).")
    _check_hashes(bundle, print_only)
    recorded = replay_command.read_repro(bundle)
    cases = read_cases(bundle)[0] if (bundle / constants.TRACE).is_file() else []
    chosen = failed_cases(cases)
    if case is not None:
        if recorded.vestige is None or not recorded.vestige.by_case:
            raise UsageError(f"{bundle}: its command runs the complete suite. Omit --case.")
        chosen = [replay_command.find_case([each.name for each in cases], case)]
    words, folder = replay_command.words_to_run(recorded, chosen)
    environment = replay_command.read_environment(bundle)
    folder = _existing(folder)
    _warn_about_git(bundle, Path(folder or "."))
    command = [*(f"{name}={value}" for name, value in environment.items()), *words]
    click.echo(
        f"cd {shlex.quote(folder or os.getcwd())} && env {shlex.join(command)}", err=not print_only
    )
    if not print_only:
        sys.exit(_run(words, folder, environment))


def _check_hashes(bundle: Path, print_only: bool) -> None:
    """Refuse a command that was changed after the bundle was written; warn if only printing.

    An unfinished bundle has no hashes.
    """
    import hashlib
    import json

    from vestige.errors import UsageError
    from vestige.formats.artifacts import constants

    try:
        files = json.loads((bundle / constants.BUNDLE).read_bytes())["files"]
        listed = {entry["path"]: entry["sha256"] for entry in files}
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(
            f"{bundle / constants.BUNDLE}: cannot be read. See `vestige bundle validate`."
        ) from None
    for name in ("repro.txt", "repro.json", "repro.env", constants.TRACE):
        path = bundle / name
        if name not in listed or not path.is_file():
            continue
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != listed[name]:
            problem = f"{path}: was changed after the bundle was written (sha256 mismatch)."
            if not print_only:
                raise UsageError(f"{problem} Inspect it: `vestige bundle repro --print {bundle}`.")
            click.echo(f"vestige: warning: {problem}", err=True)


def _existing(folder: str | None) -> str | None:
    if folder is None or os.path.isdir(folder):
        return folder
    click.echo(f"vestige: {folder}: not on this machine; running here instead.", err=True)
    return None


def _warn_about_git(bundle: Path, folder: Path) -> None:
    from vestige.artifacts.git import differences, read_git
    from vestige.artifacts.suite_start_facts import read_start

    then = read_start(bundle, "", "", 0).facts["git"]
    for difference in differences(then, read_git(folder, bundle.parent.parent)):
        click.echo(f"vestige: warning: {difference}.", err=True)


def _run(words: list[str], folder: str | None, environment: Mapping[str, str]) -> int:
    from vestige.errors import UsageError

    try:
        done = subprocess.run(words, cwd=folder, env={**os.environ, **environment}, check=False)
    except OSError as error:
        raise UsageError(f"{words[0]}: could not be started ({error.strerror}).") from None
    return done.returncode if done.returncode >= 0 else 128 - done.returncode
