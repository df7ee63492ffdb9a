"""Every exception that Vestige raises, in one tree.

    VestigeError                        exit code 1
    ├── UsageError (ValueError)         2   an argument or setting makes no sense
    │   ├── SettingError                2   a VESTIGE_* variable or config.toml line
    │   └── SensitiveDataError          2   passthrough was asked for, and there is something to hide
    ├── NotFoundError (LookupError)     2   no such run, span, body, path
    │   └── AmbiguousIdError            2   several things have that id
    ├── ForeignRunError (PermissionError)   2   a record for a run of another tenant
    ├── ShipError                       1   records could not be sent to a server
    ├── InvalidSuiteError               1   a suite's own bundle breaks the rules of its format
    ├── BrokenOffError (RuntimeError)   3   a process that read for us was ended
    └── UnreadableError (RuntimeError)  3   bytes from outside that we cannot use
        ├── StoreError                  3   a store that is newer, damaged or locked
        ├── KeysError                   3   a keys.json that is damaged, or open to others
        ├── ParcelError                 3   what another machine sent cannot be used
        │   └── ParcelTooLargeError     3   ... because it is too much at once
        └── WinkError                   3   the seed's name for what concerns debug bundles
            └── DebugBundleError (RuntimeError)       3   a bundle cannot be made or used
                ├── BundleCorruptedError              3   it is damaged, or not what it says
                ├── BundleNotFoundError (NotFoundError, FileNotFoundError)   2   no such file
                ├── BundleVersionError                3   its version is not known
                └── BundleComponentMissingError       3   a part that it needs is missing

    AgentDbgGuardrailExceeded (BaseException)   a limit that the program asked for (agentdbg/)
    └── AgentDbgLoopAbort                       ... and the limit was `stop_on_loop`

A message is one line: *where: what is wrong (what was expected). What to do.*
The emitting side raises none of these into the program that it records, the guardrails aside:
they are there to stop it, so they are no `Exception`, and `except Exception` does not stop them.
"""

from __future__ import annotations


class VestigeError(Exception):
    """The root: catch this to catch everything of ours."""

    exit_code = 1


class UsageError(VestigeError, ValueError):
    """The caller asked for something that makes no sense."""

    exit_code = 2


class SettingError(UsageError):
    """A setting has a value that it cannot have."""


class SensitiveDataError(UsageError):
    """Nothing is to be redacted, and there is something that has to be."""


class NotFoundError(VestigeError, LookupError):
    """What was asked for is not there."""

    exit_code = 2


class AmbiguousIdError(NotFoundError):
    """An id that fits several things: `candidates` lists them, and none is guessed."""

    def __init__(self, message: str, candidates: list[str]) -> None:
        super().__init__(message)
        self.candidates = candidates


class ForeignRunError(VestigeError, PermissionError):
    """A record for a run (or of a writer) that belongs to another tenant: `run_id` names it."""

    exit_code = 2

    def __init__(self, message: str, run_id: str) -> None:
        super().__init__(message)
        self.run_id = run_id


class ShipError(VestigeError, RuntimeError):
    """Records that a server does not take, or cannot be reached to take."""


class InvalidSuiteError(VestigeError, RuntimeError):
    """What a suite left is no valid bundle: `problems` has all of it, a line each."""

    def __init__(self, message: str, problems: list[str]) -> None:
        super().__init__(message)
        self.problems = problems


class BrokenOffError(VestigeError, RuntimeError):
    """A process that we started to read for us ended before it was done. Nothing is wrong with what it read."""

    exit_code = 3


class UnreadableError(VestigeError, RuntimeError):
    """Bytes from outside that cannot be used."""

    exit_code = 3


class StoreError(UnreadableError):
    """A store that this version cannot open."""


class KeysError(UnreadableError):
    """A file of keys that cannot be trusted. Nobody gets in by it until it is put right."""


class ParcelError(UnreadableError):
    """Journal lines from another machine that cannot be used."""


class ParcelTooLargeError(ParcelError):
    """More than one request may carry, packed or unpacked."""


class AgentDbgGuardrailExceeded(BaseException):  # the name that programs import
    """A guardrail stopped the traced code: which one, its limit, and what was reached."""

    guardrail: str
    threshold: int | float
    actual: int | float
    message: str

    def __init__(
        self, guardrail: str, threshold: int | float, actual: int | float, message: str
    ) -> None:
        super().__init__(message)
        self.guardrail = guardrail
        self.threshold = threshold
        self.actual = actual
        self.message = message

    def __reduce__(self) -> tuple[type[BaseException], tuple[object, ...]]:
        # The arguments are not `args`: without this, a process pool could not hand it over.
        return type(self), (self.guardrail, self.threshold, self.actual, self.message)


class AgentDbgLoopAbort(AgentDbgGuardrailExceeded):
    """`stop_on_loop`: the same calls came again once too often."""

    def __init__(self, threshold: int, actual: int, message: str) -> None:
        super().__init__("stop_on_loop", threshold, actual, message)

    def __reduce__(self) -> tuple[type[BaseException], tuple[object, ...]]:
        return type(self), (self.threshold, self.actual, self.message)


class WinkError(UnreadableError):
    """Whatever concerns debug bundles: the name that their users know."""


class DebugBundleError(WinkError, RuntimeError):
    """A debug bundle that cannot be made, or cannot be used."""


class BundleCorruptedError(DebugBundleError):
    """A bundle that is damaged, hostile, or not what its manifest says."""


class BundleNotFoundError(DebugBundleError, NotFoundError, FileNotFoundError):
    """No bundle under this path."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(message)

    def __str__(self) -> str:
        return str(self.args[0])


class BundleVersionError(DebugBundleError):
    """A bundle of a version that this reader does not know."""


class BundleComponentMissingError(DebugBundleError):
    """A bundle without a part that it needs."""
