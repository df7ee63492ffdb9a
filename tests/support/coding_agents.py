"""Sessions of real coding agents, made offline: each program works in a home of its own and
talks to a scripted model on loopback.

    python tests/support/coding_agents.py NODE_MODULES OUT [claude codex gemini opencode ...]

NODE_MODULES has @anthropic-ai/claude-code, @openai/codex, @google/gemini-cli, opencode-ai,
node@24, cline, @aaif/goose-binary-linux-x64 and @kilocode/cli-linux-x64 from npm. OpenHands is
run with the Python of $OPENHANDS_PYTHON, which has openhands-sdk and openhands-tools. OUT/<agent>
gets the files that the agent wrote, and `truth.json` with the tokens that the model counted.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support.provider_server import Server
from support.scripted_model import Call, ScriptedModel, Turn

TIMEOUT_S = 240
PACKAGES = {
    "claude": ["@anthropic-ai/claude-code"],
    "codex": ["@openai/codex"],
    "gemini": ["@google/gemini-cli", "node@24"],
    "opencode": ["opencode-ai"],
    "kilo": ["@kilocode/cli-linux-x64"],
    "goose": ["@aaif/goose-binary-linux-x64"],
    "cline": ["cline"],
}
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAFklEQVR4nGP8z8DAwMDAxMDAwMDAAAANHQED"
    "asKb6QAAAABJRU5ErkJggg=="
)
CALC = "def add(a, b):\n    return a + b\n"
EDITED = CALC + "\n\ndef subtract(a, b):\n    return a - b\n"
TESTS = """import unittest
from calc import add, subtract


class CalcTest(unittest.TestCase):
    def test_subtract(self):
        self.assertEqual(subtract(3, 1), 2)
"""
PROMPT = "Add a subtract function to calc.py, and a test."
HELPER = "Count the functions in calc.py."
RESUMED = "Which files did you change?"
FORKED = "Explain the test in one sentence."
LOOK = "Look at picture.png."
BROKEN = "Translate the file into French."


PROGRAMS = {
    "goose": "@aaif/goose-binary-linux-x64/bin/goose",
    "kilo": "@kilocode/cli-linux-x64/bin/kilo",
    "openhands": os.environ.get("OPENHANDS_PYTHON", "/usr/bin/python3"),
}
"""Programs that have no link in the folder `.bin`."""


def find_modules(folder: Path) -> Path:
    """Install the programs from npm, or use those of $AGENT_MODULES. LookupError: impossible."""
    if found := os.environ.get("AGENT_MODULES"):
        return Path(found)
    if shutil.which("npm") is None:
        raise LookupError("npm is not installed")
    names = [name for packages in PACKAGES.values() for name in packages]
    done = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *names],
        capture_output=True,
        timeout=900,
        check=False,
    )
    if done.returncode:
        raise LookupError(f"npm cannot install: {done.stderr[-300:]!r}")
    for package, script in (
        ("@anthropic-ai/claude-code", "install.cjs"),
        ("opencode-ai", "postinstall.mjs"),
    ):
        place = folder / "node_modules" / package
        subprocess.run(["node", script], cwd=place, capture_output=True, timeout=300, check=False)
    return folder / "node_modules"


@dataclass
class Desk:
    """Where one agent works."""

    modules: Path
    home: Path
    work: Path
    server: Server
    prefix: Sequence[str] = ()
    """Words before the program: a launcher, or `vestige run --`."""
    env: Mapping[str, str] = field(default_factory=dict)

    def run(
        self, program: str, *arguments: str, env: dict[str, str], check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in the working folder."""
        path = PROGRAMS.get(program, f".bin/{program}")
        found = subprocess.run(
            [*self.prefix, str(self.modules / path), *arguments],
            cwd=self.work,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.home),
                "LANG": "C.UTF-8",
                "TERM": "dumb",
                "NO_COLOR": "1",
                **env,
                **self.env,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if check and found.returncode:
            raise RuntimeError(f"{program} failed: {found.stdout[-2000:]} {found.stderr[-2000:]}")
        return found


# --- Claude Code ----------------------------------------------------------------------------------


def claude_scripts(work: Path) -> dict[str, list[Turn]]:
    calc, tests = str(work / "calc.py"), str(work / "test_calc.py")
    edit = {"file_path": calc, "old_string": CALC, "new_string": EDITED}
    agent = {"description": "Count functions", "prompt": HELPER, "subagent_type": "general-purpose"}
    return {
        PROMPT: [
            Turn(
                "I read the file and look at the tests.",
                "The file comes first.",
                [
                    Call("Read", {"file_path": calc}),
                    Call("Bash", {"command": "ls", "description": "List files"}),
                ],
            ),
            Turn("Now I edit it.", calls=[Call("Edit", edit)]),
            Turn(calls=[Call("Write", {"file_path": tests, "content": TESTS})]),
            Turn(calls=[Call("Bash", {"command": "python3 -m unittest -q"})]),
            Turn(calls=[Call("Bash", {"command": "cat missing.txt"})]),
            Turn(calls=[Call("Bash", {"command": "touch /etc/denied"})]),
            Turn("A helper checks it.", calls=[Call("Agent", agent)]),
            Turn("calc.py has a subtract function, and test_calc.py tests it."),
        ],
        HELPER: [
            Turn(calls=[Call("Bash", {"command": "cat calc.py"})]),
            Turn("calc.py has two functions."),
        ],
        RESUMED: [Turn("calc.py and test_calc.py.")],
        FORKED: [Turn("It checks that 3 - 1 is 2.")],
        LOOK: [
            Turn(calls=[Call("Read", {"file_path": str(work / "picture.png")})]),
            Turn("It has four pixels."),
        ],
        BROKEN: [Turn(error=400)],
    }


def make_claude(desk: Desk) -> None:
    config = desk.home / ".claude"
    config.mkdir()
    hook = {"hooks": [{"type": "command", "command": "echo checked"}]}
    settings = {"hooks": {"PostToolUse": [{"matcher": "Write", **hook}], "Stop": [hook]}}
    (config / "settings.json").write_text(json.dumps(settings))
    env = {
        "ANTHROPIC_BASE_URL": desk.server.url,
        "ANTHROPIC_API_KEY": "sk-ant-fake",
        "CLAUDE_CONFIG_DIR": str(config),
        "DISABLE_TELEMETRY": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "MAX_THINKING_TOKENS": "2000",
    }
    allowed = ["Read", "Edit", "Write", "Agent", "Bash(ls)", "Bash(cat:*)", "Bash(python3:*)"]

    def ask(prompt: str, *options: str, check: bool = True) -> None:
        model = ["--model", "claude-sonnet-4-5", "--output-format", "json"]
        desk.run(
            "claude",
            "-p",
            prompt,
            *options,
            *model,
            "--allowedTools",
            *allowed,
            env=env,
            check=check,
        )

    session = "5a3a2b1c-0000-4000-8000-000000000001"
    ask(PROMPT, "--session-id", session)
    ask(RESUMED, "--resume", session)
    ask(FORKED, "--resume", session, "--fork-session")
    ask("/compact", "--resume", session)
    ask(LOOK, "--resume", session)
    ask(BROKEN, "--session-id", "5a3a2b1c-0000-4000-8000-000000000002", check=False)


# --- Codex ----------------------------------------------------------------------------------------


def codex_scripts(work: Path) -> dict[str, list[Turn]]:
    patch = (
        "*** Begin Patch\n*** Update File: calc.py\n@@\n def add(a, b):\n     return a + b\n"
        "+\n+\n+def subtract(a, b):\n+    return a - b\n"
        "*** Add File: test_calc.py\n"
        + "".join(f"+{line}\n" for line in TESTS.splitlines())
        + "*** End Patch"
    )
    return {
        PROMPT: [
            Turn(
                "I read the file and list the folder.",
                "The file comes first.",
                [
                    Call("exec_command", {"cmd": "cat calc.py"}),
                    Call("exec_command", {"cmd": "ls"}),
                ],
            ),
            Turn("Now I edit it.", calls=[Call("apply_patch", patch)]),
            Turn(calls=[Call("exec_command", {"cmd": "python3 -m unittest -q"})]),
            Turn(calls=[Call("exec_command", {"cmd": "cat missing.txt"})]),
            Turn(calls=[Call("view_image", {"path": str(work / "picture.png")})]),
            Turn(
                "A helper checks it.",
                calls=[Call("multi_agent_v1/spawn_agent", {"message": HELPER})],
            ),
            Turn(calls=[Call("multi_agent_v1/wait_agent", {"targets": ["$AGENT"]})]),
            Turn("calc.py has a subtract function, and test_calc.py tests it."),
        ],
        HELPER: [
            Turn(calls=[Call("exec_command", {"cmd": "cat calc.py"})]),
            Turn("calc.py has two functions."),
        ],
        RESUMED: [Turn("calc.py and test_calc.py.")],
        BROKEN: [Turn(error=400)],
    }


CODEX_CONFIG = """model = "gpt-5.5"
model_provider = "loopback"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.loopback]
name = "loopback"
base_url = "{url}/v1"
env_key = "FAKE_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
supports_websockets = false
"""


def make_codex(desk: Desk) -> None:
    config = desk.home / ".codex"
    config.mkdir()
    (config / "config.toml").write_text(CODEX_CONFIG.format(url=desk.server.url))
    traces = desk.home / "traces"
    env = {"CODEX_HOME": str(config), "FAKE_KEY": "x", "CODEX_ROLLOUT_TRACE_ROOT": str(traces)}
    desk.run("codex", "exec", "--skip-git-repo-check", PROMPT, env=env)
    desk.run("codex", "exec", "--skip-git-repo-check", "resume", "--last", RESUMED, env=env)
    desk.run("codex", "exec", "--skip-git-repo-check", BROKEN, env=env, check=False)


# --- Gemini CLI -----------------------------------------------------------------------------------


def gemini_scripts(work: Path) -> dict[str, list[Turn]]:
    calc, tests = str(work / "calc.py"), str(work / "test_calc.py")
    edit = {
        "file_path": calc,
        "old_string": CALC,
        "new_string": EDITED,
        "instruction": "Add subtract.",
    }
    return {
        PROMPT: [
            Turn(
                "I read the file and list the folder.",
                "**Plan** The file comes first.",
                [
                    Call("read_file", {"file_path": calc}),
                    Call("run_shell_command", {"command": "ls", "description": "List files"}),
                ],
            ),
            Turn("Now I edit it.", calls=[Call("replace", edit)]),
            Turn(calls=[Call("write_file", {"file_path": tests, "content": TESTS})]),
            Turn(calls=[Call("run_shell_command", {"command": "python3 -m unittest -q"})]),
            Turn(calls=[Call("run_shell_command", {"command": "cat missing.txt"})]),
            Turn(calls=[Call("read_file", {"file_path": str(work / "picture.png")})]),
            Turn("calc.py has a subtract function, and test_calc.py tests it."),
        ],
        RESUMED: [Turn("calc.py and test_calc.py.")],
        BROKEN: [Turn(error=400)],
    }


def make_gemini(desk: Desk) -> None:
    (desk.home / ".gemini").mkdir()
    settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    (desk.home / ".gemini" / "settings.json").write_text(json.dumps(settings))
    env = {
        "GEMINI_API_KEY": "x",
        "GOOGLE_GEMINI_BASE_URL": desk.server.url,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "PATH": f"{desk.modules / '.bin'}:{os.environ['PATH']}",
    }
    common = ["--yolo", "-m", "gemini-2.5-pro"]
    desk.run("gemini", "-p", BROKEN, *common, env=env, check=False)
    desk.run("gemini", "-p", PROMPT, *common, env=env)
    desk.run("gemini", "--resume", "latest", "-p", RESUMED, *common, env=env)


# --- OpenCode -------------------------------------------------------------------------------------


def opencode_scripts(work: Path) -> dict[str, list[Turn]]:
    calc, tests = str(work / "calc.py"), str(work / "test_calc.py")
    task = {"description": "Count functions", "prompt": HELPER, "subagent_type": "general"}
    list_files = {"command": "ls", "description": "List files"}
    run_tests = {"command": "python3 -m unittest -q", "description": "Run the tests"}
    show = {"command": "cat missing.txt", "description": "Show a file"}
    count = {"command": "cat calc.py", "description": "Show the file"}
    edit = {"filePath": calc, "oldString": CALC, "newString": EDITED}
    return {
        PROMPT: [
            Turn(
                "I read the file and list the folder.",
                "The file comes first.",
                [Call("read", {"filePath": calc}), Call("bash", list_files)],
            ),
            Turn("Now I edit it.", calls=[Call("edit", edit)]),
            Turn(calls=[Call("write", {"filePath": tests, "content": TESTS})]),
            Turn(calls=[Call("bash", run_tests)]),
            Turn(calls=[Call("bash", show)]),
            Turn(calls=[Call("read", {"filePath": str(work / "nothing.py")})]),
            Turn("A helper checks it.", calls=[Call("task", task)]),
            Turn("calc.py has a subtract function, and test_calc.py tests it."),
        ],
        HELPER: [Turn(calls=[Call("bash", count)]), Turn("calc.py has two functions.")],
        RESUMED: [Turn("calc.py and test_calc.py.")],
        BROKEN: [Turn(error=400)],
    }


def make_opencode(desk: Desk, program: str = "opencode", *options: str) -> None:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "loopback",
        "options": {"baseURL": f"{desk.server.url}/v1", "apiKey": "x"},
        "models": {"scripted": {"name": "scripted"}},
    }
    config = {
        "$schema": "https://opencode.ai/config.json",
        "model": "loopback/scripted",
        "provider": {"loopback": provider},
        "autoupdate": False,
    }
    (desk.work / f"{program}.json").write_text(json.dumps(config))
    env = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    run = ["run", *options]
    desk.run(program, *run, PROMPT, env=env)
    desk.run(program, *run, "--continue", RESUMED, env=env)
    desk.run(program, *run, BROKEN, env=env, check=False)


def make_kilo(desk: Desk) -> None:
    make_opencode(desk, "kilo", "--auto")


# --- Goose ----------------------------------------------------------------------------------------


def goose_scripts(work: Path) -> dict[str, list[Turn]]:
    calc, tests = str(work / "calc.py"), str(work / "test_calc.py")
    edit = {"path": calc, "before": CALC, "after": EDITED}
    return {
        PROMPT: [
            Turn(
                "I read the file and list the folder.",
                "The file comes first.",
                [
                    Call("shell", {"command": "cat calc.py"}),
                    Call("shell", {"command": "ls"}),
                ],
            ),
            Turn("Now I edit it.", calls=[Call("edit", edit)]),
            Turn(calls=[Call("write", {"path": tests, "content": TESTS})]),
            Turn(calls=[Call("shell", {"command": "python3 -m unittest -q"})]),
            Turn(calls=[Call("shell", {"command": "cat missing.txt"})]),
            Turn("A helper checks it.", calls=[Call("delegate", {"instructions": HELPER})]),
            Turn("calc.py has a subtract function, and test_calc.py tests it."),
        ],
        HELPER: [
            Turn(calls=[Call("shell", {"command": "cat calc.py"})]),
            Turn("calc.py has two functions."),
        ],
        RESUMED: [Turn("calc.py and test_calc.py.")],
        BROKEN: [Turn(error=400)],
    }


def make_goose(desk: Desk) -> None:
    env = {
        "OPENAI_API_KEY": "x",
        "OPENAI_HOST": desk.server.url,
        "GOOSE_PROVIDER": "openai",
        "GOOSE_MODEL": "gpt-4o",
        "GOOSE_MODE": "auto",
        "GOOSE_DISABLE_KEYRING": "1",
        "GOOSE_TELEMETRY_ENABLED": "false",
    }
    desk.run("goose", "run", "--with-builtin", "developer", "-t", PROMPT, env=env)
    desk.run("goose", "run", "--resume", "-t", RESUMED, env=env)
    desk.run("goose", "run", "-t", BROKEN, env=env, check=False)


# --- Cline ----------------------------------------------------------------------------------------


def cline_scripts(work: Path) -> dict[str, list[Turn]]:
    patch = (
        f"*** Begin Patch\n*** Update File: {work / 'calc.py'}\n@@\n def add(a, b):\n"
        "     return a + b\n+\n+\n+def subtract(a, b):\n+    return a - b\n"
        f"*** Add File: {work / 'test_calc.py'}\n"
        + "".join(f"+{line}\n" for line in TESTS.splitlines())
        + "*** End Patch"
    )
    return {
        PROMPT: [
            Turn(
                "I read the file and list the folder.",
                "The file comes first.",
                [
                    Call("run_commands", {"commands": ["cat calc.py"]}),
                    Call("run_commands", {"commands": ["ls"]}),
                ],
            ),
            Turn("Now I edit it.", calls=[Call("apply_patch", {"input": patch})]),
            Turn(calls=[Call("run_commands", {"commands": ["python3 -m unittest -q"]})]),
            Turn(calls=[Call("run_commands", {"commands": ["cat missing.txt"]})]),
            Turn(
                "A helper checks it.",
                calls=[Call("spawn_agent", {"task": HELPER, "systemPrompt": "You count."})],
            ),
            Turn("calc.py has a subtract function, and test_calc.py tests it."),
        ],
        HELPER: [
            Turn(calls=[Call("run_commands", {"commands": ["cat calc.py"]})]),
            Turn("calc.py has two functions."),
        ],
        RESUMED: [Turn("calc.py and test_calc.py.")],
        BROKEN: [Turn(error=400)],
    }


def make_cline(desk: Desk) -> None:
    url = f"{desk.server.url}/v1"
    env = {"CLINE_TELEMETRY_DISABLED": "1"}
    login = ["auth", "openai-compatible", "-k", "x", "-m", "gpt-4o", "-b", url]
    try:
        desk.run("cline", *login, env=env)
        desk.run("cline", PROMPT, env=env)
        (session,) = (desk.home / ".cline" / "data" / "sessions").iterdir()
        desk.run("cline", "--id", session.name, RESUMED, env=env, check=False)
        desk.run("cline", BROKEN, env=env, check=False)
    finally:
        _stop_hub(desk.home / ".cline" / "data" / "locks" / "hub" / "production.json")


def _stop_hub(path: Path) -> None:
    """Stop the process that Cline leaves behind."""
    if path.exists():
        with contextlib.suppress(ProcessLookupError):
            os.kill(json.loads(path.read_text())["pid"], signal.SIGTERM)


# --- OpenHands ------------------------------------------------------------------------------------

OPENHANDS = """
import sys
from pydantic import SecretStr
from openhands.sdk import LLM, Agent, Conversation, Tool, register_agent
from openhands.tools.file_editor import FileEditorTool
from openhands.tools.task import TaskToolSet
from openhands.tools.terminal import TerminalTool

url, work, folder, *prompts = sys.argv[1:]
names = [TerminalTool.name, FileEditorTool.name, TaskToolSet.name]
helper = lambda llm: Agent(llm=llm, tools=[Tool(name=TerminalTool.name)])
register_agent("helper", helper, "Helps.")
llm = LLM(model="openai/gpt-4o", base_url=url, api_key=SecretStr("x"), num_retries=0)
agent = Agent(llm=llm, tools=[Tool(name=name) for name in names])
conversation = Conversation(
    agent=agent, workspace=work, persistence_dir=folder, visualizer=None
)
for prompt in prompts:
    conversation.send_message(prompt)
    conversation.run()
conversation.close()
"""


def openhands_scripts(work: Path) -> dict[str, list[Turn]]:
    calc, tests = str(work / "calc.py"), str(work / "test_calc.py")
    edit = {"command": "str_replace", "path": calc, "old_str": CALC, "new_str": EDITED}
    create = {"command": "create", "path": tests, "file_text": TESTS}
    task = {"description": "Count functions", "prompt": HELPER, "subagent_type": "helper"}
    done = "calc.py has a subtract function, and test_calc.py tests it."
    return {
        PROMPT: [
            Turn(
                "I read the file and list the folder.",
                "The file comes first.",
                [
                    Call("terminal", {"command": "cat calc.py"}),
                    Call("terminal", {"command": "ls"}),
                ],
            ),
            Turn("Now I edit it.", calls=[Call("file_editor", edit)]),
            Turn(calls=[Call("file_editor", create)]),
            Turn(calls=[Call("terminal", {"command": "python3 -m unittest -q"})]),
            Turn(calls=[Call("terminal", {"command": "cat missing.txt"})]),
            Turn("A helper checks it.", calls=[Call("task", task)]),
            Turn(done),
        ],
        HELPER: [
            Turn(calls=[Call("terminal", {"command": "cat calc.py"})]),
            Turn("calc.py has two functions."),
        ],
        RESUMED: [Turn("calc.py and test_calc.py.")],
        BROKEN: [Turn(error=400)],
    }


def make_openhands(desk: Desk) -> None:
    env = {"OPENHANDS_SUPPRESS_BANNER": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    folder = str(desk.home / ".openhands" / "conversations")
    first = ["-c", OPENHANDS, f"{desk.server.url}/v1", str(desk.work), folder]
    desk.run("openhands", *first, PROMPT, RESUMED, env=env)
    desk.run("openhands", *first, BROKEN, env=env, check=False)


MAKERS = {
    "claude": (make_claude, claude_scripts),
    "codex": (make_codex, codex_scripts),
    "gemini": (make_gemini, gemini_scripts),
    "opencode": (make_opencode, opencode_scripts),
    "kilo": (make_kilo, opencode_scripts),
    "goose": (make_goose, goose_scripts),
    "cline": (make_cline, cline_scripts),
    "openhands": (make_openhands, openhands_scripts),
}


def make_samples(modules: Path, out: Path, agents: Sequence[str]) -> None:
    """Make the sessions of each agent in a folder of its own."""
    for agent in agents:
        make, scripts = MAKERS[agent]
        desk_root = out / agent
        shutil.rmtree(desk_root, ignore_errors=True)
        work = make_workplace(desk_root)
        model = ScriptedModel(scripts(work))
        with Server(model) as server:
            make(Desk(modules.resolve(), desk_root / "home", work, server))
        truth = [asdict(answer) for answer in model.answers]
        (desk_root / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")


def make_workplace(root: Path) -> Path:
    """Make a home folder, and a repository to work in. Return the latter."""
    home, work = root / "home", root / "work"
    home.mkdir(parents=True)
    work.mkdir()
    (work / "calc.py").write_text(CALC)
    (work / "picture.png").write_bytes(PICTURE)
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=work, check=True)
    return work


if __name__ == "__main__":
    make_samples(Path(sys.argv[1]), Path(sys.argv[2]).resolve(), sys.argv[3:] or list(MAKERS))
