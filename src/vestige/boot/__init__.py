"""Start recording in the Python processes under `vestige run`.

The command gets `boot/path` at the front of PYTHONPATH. Every Python process imports
`sitecustomize` from there at its start. That module starts the recorder, and then runs the
`sitecustomize` that it hides.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vestige.wire.replaying.response_player import Player

PATH = Path(__file__).parent / "path"
START_VARIABLE = "VESTIGE_START"
WIRE_VARIABLE = "VESTIGE_WIRE"
LOGS_VARIABLE = "VESTIGE_LOGS"
PRINTS_VARIABLE = "VESTIGE_PRINTS"
REPLAY_VARIABLE = "VESTIGE_REPLAY"


def boot_environment(
    env: Mapping[str, str], *, wire: bool = True, logs: bool = True, prints: bool = True
) -> dict[str, str]:
    """Return an environment in which Python programs record from their start.

    `wire`, `logs` and `prints` switch off HTTP calls to model providers, `logging` and prints.
    """
    rest = env.get("PYTHONPATH")
    return {
        **env,
        "PYTHONPATH": os.pathsep.join([str(PATH), rest]) if rest else str(PATH),
        START_VARIABLE: "1",
        **({} if wire else {WIRE_VARIABLE: "0"}),
        **({} if logs else {LOGS_VARIABLE: "0"}),
        **({} if prints else {PRINTS_VARIABLE: "0"}),
    }


def auto() -> None:
    """Record the model calls, agents and tools of this process from now on, as `vestige run` does.

    Call it first: `import vestige; vestige.auto()`. Clients and frameworks are hooked when the
    program imports them. Logs and prints are not recorded.
    """
    from vestige.integrations import frameworks
    from vestige.process_recorder import default_recorder
    from vestige.wire.capture import active, capture_http

    recorder = default_recorder()
    if recorder.wire and active() is None:
        capture_http()
    frameworks.install(recorder.integrations)


def start() -> None:
    """Start to record this process. Never raise, so that the program starts in any case."""
    try:
        from vestige._runtime.import_hooks import when_imported
        from vestige._runtime.proxy_folder import FOLDER_VARIABLE
        from vestige.boot import child_proxy
        from vestige.process_recorder import default_recorder

        recorder = default_recorder()
        if recorder.logging or recorder.prints:
            from vestige.boot import log_capture

            if recorder.logging:
                log_capture.capture_logs(all_levels=recorder.level_is_set)
            else:
                log_capture.ignore_logs()
        if recorder.prints:
            from vestige.boot.print_capture import capture_prints

            capture_prints()
        if os.environ.get(FOLDER_VARIABLE):
            child_proxy.restore(os.environ)
            when_imported("subprocess", child_proxy.install)
        child_proxy.install_exec()
        replayed = os.environ.get(REPLAY_VARIABLE)
        if recorder.wire or replayed:
            from vestige.wire.capture import capture_http

            capture_http()
            if replayed:
                from vestige.wire import call_selection
                from vestige.wire.replaying.response_player import Player

                call_selection.player = Player(replayed)
                _replay_tools(replayed, call_selection.player)
        from vestige.integrations import frameworks

        frameworks.install(recorder.integrations)
    except Exception as error:  # noqa: BLE001  # the program must start
        import sys

        print(f"vestige: could not start recording ({error!r}).", file=sys.stderr)  # noqa: T201


def _replay_tools(path: str, player: Player) -> None:
    """Replace tools by their recorded results, if the replay has them."""
    from vestige.emit import replayed_tools
    from vestige.wire.replaying.tool_player import ToolPlayer

    if ToolPlayer.exists(path):
        replayed_tools.player = ToolPlayer(path, player)
