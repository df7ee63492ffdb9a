"""How recording enters a child process of `vestige run`.

The child gets `boot/path` at the front of PYTHONPATH. Python imports `sitecustomize`
from there while it starts, in every Python process below as well; that one starts the
recorder, then gives way to the sitecustomize that would have been found without it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

PATH = Path(__file__).parent / "path"
START_VARIABLE = "VESTIGE_START"
WIRE_VARIABLE = "VESTIGE_WIRE"
LOGS_VARIABLE = "VESTIGE_LOGS"
PRINTS_VARIABLE = "VESTIGE_PRINTS"
REPLAY_VARIABLE = "VESTIGE_REPLAY"


def boot_environment(
    env: Mapping[str, str], *, wire: bool = True, logs: bool = True, prints: bool = True
) -> dict[str, str]:
    """An environment in which Python programs record from their first moment.

    `wire=False`: HTTP calls to model providers are not recorded. `logs=False`: nor what is logged.
    `prints=False`: nor what is printed."""
    rest = env.get("PYTHONPATH")
    return {
        **env,
        "PYTHONPATH": os.pathsep.join([str(PATH), rest]) if rest else str(PATH),
        START_VARIABLE: "1",
        **({} if wire else {WIRE_VARIABLE: "0"}),
        **({} if logs else {LOGS_VARIABLE: "0"}),
        **({} if prints else {PRINTS_VARIABLE: "0"}),
    }


def start() -> None:
    """Begin to record this process. Never raises: the program matters more."""
    try:
        from vestige.process_recorder import default_recorder

        recorder = default_recorder()
        if recorder.logging or recorder.prints:
            from vestige.boot import log_capture

            (log_capture.capture_logs if recorder.logging else log_capture.ignore_logs)()
        if recorder.prints:
            from vestige.boot.print_capture import capture_prints

            capture_prints()
        replayed = os.environ.get(REPLAY_VARIABLE)
        if recorder.wire or replayed:
            from vestige.wire.capture import capture_http

            capture_http()
            if replayed:
                from vestige.wire import dispatch
                from vestige.wire.replay import Player

                dispatch.player = Player(replayed)
    except Exception as error:  # noqa: BLE001  # whatever it is, the program starts
        import sys

        print(f"vestige: could not start recording ({error!r}).", file=sys.stderr)  # noqa: T201
