"""Lead child processes that are not Python to the recording proxy of `vestige run`.

A recorded Python process records its own calls, so it gets the user's variables back. When it
starts a program that is not Python, that program gets those of the proxy
(proxy/environment_variables.py). The proxy is started when the first program needs it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from vestige._runtime.clock import monotonic, sleep
from vestige._runtime.proxy_folder import FOLDER_VARIABLE, MISSING, VARIABLES

REQUEST_FILE = "start"
"""A file in the folder: a child process waits for the proxy."""

_WAIT_S = 5.0
_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*$")
_SYSTEM = ("/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/libexec/")
_CALLERS = frozenset(
    [
        "bash",
        "bun",
        "bunx",
        "claude",
        "codex",
        "curl",
        "dash",
        "deno",
        "docker",
        "env",
        "fish",
        "gemini",
        "go",
        "java",
        "make",
        "nice",
        "node",
        "nohup",
        "npm",
        "npx",
        "opencode",
        "perl",
        "php",
        "pnpm",
        "ruby",
        "sh",
        "timeout",
        "wget",
        "xargs",
        "yarn",
        "zsh",
    ]
)
"""Programs in system folders that call hosts, or start other programs. The rest call no model."""


def needs_proxy(program: str, env: Mapping[str, str]) -> bool:
    """Return whether a program may call models without being recorded by the Python recorder."""
    path = shutil.which(program, path=env.get("PATH")) or program
    name = os.path.basename(program)
    if _PYTHON.search(name) or _PYTHON.search(os.path.basename(os.path.realpath(path))):
        return False
    if name in _CALLERS:
        return True
    return not path.startswith(_SYSTEM) and not _is_python_script(path)


def _is_python_script(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            first = file.readline(300)
    except OSError:
        return False
    return first.startswith(b"#!") and b"python" in first


def read_variables(folder: str) -> dict[str, Any] | None:
    """Return the variables of the proxy. None: it has not started."""
    try:
        with open(os.path.join(folder, VARIABLES), encoding="utf-8") as file:
            content: dict[str, Any] = json.load(file)
    except (OSError, ValueError):
        return None
    return content


def with_variables(
    env: Mapping[str, str], variables: Mapping[str, Any], parent: str
) -> dict[str, str]:
    """Return an environment with the proxy's variables, except those that the program changed."""
    result = dict(env)
    for name, value in variables["set"].items():
        if env.get(name) == variables["before"].get(name) or _is_set(env.get(name), value):
            result[name] = value.replace("{parent}", parent)
    return result


def _is_set(value: str | None, template: str) -> bool:
    head, _, tail = template.partition("{parent}")
    return value is not None and value.startswith(head) and value.endswith(tail)


def restore(env: Any) -> None:
    """Give this process the user's own variables back."""
    folder = env.get(FOLDER_VARIABLE)
    variables = read_variables(folder) if folder and folder != MISSING else None
    if variables is None:
        return
    for name, value in variables["set"].items():
        if _is_set(env.get(name), value):
            before = variables["before"].get(name)
            if before is None:
                del env[name]
            else:
                env[name] = before


def install(module: ModuleType) -> None:
    """Give child processes the variables of the proxy. `module` is subprocess."""
    cls: Any = module.Popen
    original: Callable[..., Any] = cls._execute_child

    def _execute_child(
        self: Any,
        args: Any,
        executable: Any,
        preexec_fn: Any,
        close_fds: Any,
        pass_fds: Any,
        cwd: Any,
        env: Any,
        *rest: Any,
        **more: Any,
    ) -> Any:
        env = _find_environment_safely(args, executable, env)
        return original(
            self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest, **more
        )

    cls._execute_child = _execute_child


def install_exec() -> None:
    """Let a program that replaces this process be recorded, and end the recording of this one.

    `os.execvp` and the other functions call these two.
    """
    original_execv, original_execve = os.execv, os.execve

    def execv(path: Any, args: Any, /) -> Any:
        env = _end_recording(args, path, None)
        return original_execv(path, args) if env is None else original_execve(path, args, env)

    def execve(path: Any, argv: Any, env: Any) -> Any:
        return original_execve(path, argv, _end_recording(argv, path, env))

    os.execv, os.execve = execv, execve


def _end_recording(args: Any, path: Any, env: Any) -> Any:
    """Close the recorder and return the environment of a program that replaces this process.

    Nothing changes if it cannot be started: `os.execvp` tries many paths.
    """
    try:
        if isinstance(path, int) or not os.access(path, os.X_OK):
            return env
        found = _find_environment_safely(args, path, env)
        from vestige.process_recorder import default_recorder

        default_recorder().close()
    except Exception:  # noqa: BLE001  # the program must start
        return env
    return found


def _find_environment_safely(args: Any, executable: Any, env: Any) -> Any:
    try:
        return _find_environment(args, executable, env)
    except Exception:  # noqa: BLE001  # the program must start
        return env


def _find_environment(args: Any, executable: Any, env: Any) -> Any:
    current = os.environ if env is None else env
    folder = current.get(FOLDER_VARIABLE)  # A program may remove it: then nothing is added.
    if not folder or not isinstance(folder, str):
        return env
    words = [args] if isinstance(args, (str, bytes, os.PathLike)) else list(args)
    program = os.fsdecode(executable or words[0])
    if not needs_proxy(program, current):
        return env
    if folder == MISSING:
        _report_missing(os.path.basename(program))
        return env
    variables = read_variables(folder) or _wait_for(folder)
    if variables is None:
        return env
    return with_variables(current, variables, _find_parent(os.path.basename(program)))


def _wait_for(folder: str) -> dict[str, Any] | None:
    if not os.path.isdir(folder):
        return None
    with open(os.path.join(folder, REQUEST_FILE), "w"):
        pass
    deadline = monotonic() + _WAIT_S
    while monotonic() < deadline:
        variables = read_variables(folder)
        if variables is not None:
            return variables
        sleep(0.01)
    return None


def _find_parent(program: str) -> str:
    from vestige.emit import context
    from vestige.process_recorder import default_recorder

    span = context.current()
    if span is not None and not span.muted:
        return join_parent(span, "" if span.type == "agent" else program)
    emitter = default_recorder()._emitter
    return f"{emitter.process_run_id}.{emitter.process_span_id}.{_clean(program)}"


def join_parent(span: Any, program: str) -> str:
    """Return the place of a program in a run, as a part of a URL (proxy/server.py)."""
    return f"{span.run_id}.{span.id}.{_clean(program)}"


def _clean(program: str) -> str:
    return re.sub(r"[^\w.-]", "-", program, flags=re.ASCII)[:60]


def _report_missing(name: str) -> None:
    if name not in ("claude", "codex", "gemini", "opencode", "node", "npx", "bun", "deno"):
        return
    from vestige.wire import call_selection, capture
    from vestige.wire.unrecorded_calls import record_gap

    policy = capture.active()
    context = None if policy is None else call_selection.find_span_context(policy)
    if context is not None:
        install = "Run `pip install 'vestige[proxy]'` where vestige runs"
        record_gap(context, f"model calls of {name} were not recorded. {install}")
