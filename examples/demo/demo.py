"""Record an agent, kill it during a tool call, and find out what happened. Takes under a minute.

`make demo` runs this. Everything happens on this machine, in build/demo.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import click

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WORK = ROOT / "build" / "demo"
# Concatenated, so that the repository contains nothing that looks like a key.
SECRET = "sk-" + "demo4f9a81c77e20b35d6cQv"


def main() -> int:
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    home = WORK / "home"
    sys.path.insert(0, str(HERE))
    from model import serve

    env = {
        **os.environ,
        "VESTIGE_HOME": str(home),
        "DEMO_MODEL_URL": serve(),
        "DEMO_API_KEY": SECRET,
        "DEMO_MARKER": str(WORK / "marker"),
    }
    print_heading("1. A support agent starts, recorded by Vestige.")
    command = ["vestige", "run", "--", sys.executable, str(HERE / "agent.py")]
    echo("vestige run -- python agent.py")
    agent = subprocess.Popen(vestige(*command[1:]), env=env)
    pid = wait_for_marker(WORK / "marker", agent)

    print_heading("2. It is killed during a tool call, with SIGKILL.")
    echo(f"kill -9 {pid}")
    os.kill(pid, signal.SIGKILL)
    code = agent.wait()
    click.echo(f"The agent is dead. vestige run returned its exit status: {code}")

    print_heading("3. Which runs are there?")
    show(env, "list")
    print_heading("4. What happened until then?")
    show(env, "show")
    print_heading("5. Why? A debugging agent gets the same answer.")
    show(env, "check", bad_news=True)
    print_heading("6. Is the recording complete? Does it contain the API key?")
    show(env, "doctor")
    leaks = find_leaks(home)
    click.echo(f"Files with the API key of the agent: {len(leaks)}")

    print_heading("Next steps")
    activate = Path(sys.executable).parent / "activate"
    if shutil.which("vestige") is None and activate.is_file():
        click.echo(f"  . {from_here(activate)}")
    click.echo(f"  export VESTIGE_HOME={from_here(home)}")
    click.echo("  vestige overview               summarize the run, with the next commands")
    click.echo("  vestige show --errors          only failed spans, with their parents")
    click.echo(
        "  vestige skill                  the playbook for a debugging agent; vestige mcp serves it"
    )
    click.echo("  vestige run -- python YOUR_AGENT.py")
    return 1 if leaks or code != 128 + signal.SIGKILL else 0


def from_here(path: Path) -> Path:
    """Return the path relative to the current directory, if it is below."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def vestige(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "vestige", *arguments]


def show(env: dict[str, str], *arguments: str, bad_news: bool = False) -> None:
    """Print a command and its output. With `bad_news`, exit status 1 is expected."""
    echo("vestige " + " ".join(arguments))
    done = subprocess.run(vestige(*arguments), env=env, check=False)
    if done.returncode != int(bad_news):
        raise SystemExit(f"vestige {arguments[0]} ended with {done.returncode}")


def wait_for_marker(marker: Path, agent: subprocess.Popen[bytes]) -> int:
    while not (marker.exists() and marker.read_text()):
        if agent.poll() is not None:
            raise SystemExit(f"the agent ended early with {agent.returncode}")
        time.sleep(0.05)  # another process writes the marker: poll
    return int(marker.read_text())


def find_leaks(home: Path) -> list[Path]:
    return [
        path for path in home.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()
    ]


def print_heading(text: str) -> None:
    click.echo()
    click.secho(text, bold=True)


def echo(command: str) -> None:
    click.secho(f"$ {command}", fg="cyan")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
