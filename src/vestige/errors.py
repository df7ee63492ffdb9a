"""Every exception that Vestige raises, in one tree.

    VestigeError                        exit code 1
    ├── UsageError (ValueError)         2   an argument or setting is invalid
    │   ├── SettingError                2   a VESTIGE_* variable or a line of config.toml
    │   └── SensitiveDataError          2   passthrough export of sensitive data
    ├── NotFoundError (LookupError)     2   no such run, span, body or path
    │   └── AmbiguousIdError            2   several runs or spans match the id
    ├── ForeignRunError (PermissionError)   2   a record for another tenant's run
    ├── ShipError                       1   records could not be sent to a server
    ├── ModelError                      1   the model of `explain` gave no usable answer
    ├── InvalidSuiteError               1   a suite wrote an invalid bundle
    └── UnreadableError (RuntimeError)  3   input that cannot be used
        ├── StoreError                  3   the store is newer, damaged or locked
        │   └── StoreNotWritableError   3   the store is read-only, or its disk is full
        ├── KeysError                   3   keys.json is damaged, or open to others
        ├── ParcelError                 3   data from another machine is invalid
        │   └── ParcelTooLargeError     3   data from another machine is too large
        └── WinkError                   3   base class of debug bundle errors
            └── DebugBundleError (RuntimeError)       3   a bundle cannot be created or used
                ├── BundleCorruptedError              3   it is damaged or hostile
                ├── BundleNotFoundError (NotFoundError, FileNotFoundError)   2   no such file
                ├── BundleVersionError                3   its version is unknown
                └── BundleComponentMissingError       3   a required part is missing

    AgentDbgGuardrailExceeded (BaseException)   a guardrail of the program (agentdbg/)
    └── AgentDbgLoopAbort                       the guardrail `stop_on_loop`

A message is one line: *where: what is wrong (what was expected). What to do.*
The emitting side raises only guardrails into the program that it records. They derive from
`BaseException`, so that `except Exception` does not catch them.
"""

from __future__ import annotations


class VestigeError(Exception):
    """Base class of all errors of Vestige, except guardrails."""

    exit_code = 1


class UsageError(VestigeError, ValueError):
    """An argument is invalid."""

    exit_code = 2


class SettingError(UsageError):
    """A setting has an invalid value."""


class SensitiveDataError(UsageError):
    """Passthrough export refused: the run contains sensitive data."""


class NotFoundError(VestigeError, LookupError):
    """A run, span, body or path does not exist."""

    exit_code = 2


class AmbiguousIdError(NotFoundError):
    """An id matches several runs or spans, which `candidates` lists."""

    def __init__(self, message: str, candidates: list[str]) -> None:
        super().__init__(message)
        self.candidates = candidates


class ForeignRunError(VestigeError, PermissionError):
    """A record belongs to a run or writer of another tenant, which `run_id` names."""

    exit_code = 2

    def __init__(self, message: str, run_id: str) -> None:
        super().__init__(message)
        self.run_id = run_id


class ShipError(VestigeError, RuntimeError):
    """A server rejects records, or cannot be reached."""


class ModelError(VestigeError, RuntimeError):
    """The model of an investigation cannot be reached, or gave no usable answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status, if there was an answer."""


class InvalidSuiteError(VestigeError, RuntimeError):
    """A suite wrote an invalid bundle. `problems` lists what is wrong, one line each."""

    def __init__(self, message: str, problems: list[str]) -> None:
        super().__init__(message)
        self.problems = problems


class UnreadableError(VestigeError, RuntimeError):
    """Input that cannot be used."""

    exit_code = 3


class StoreError(UnreadableError):
    """The store cannot be opened by this version."""


class StoreNotWritableError(StoreError):
    """The store cannot be written or opened: read-only, or the disk is full."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class KeysError(UnreadableError):
    """The file of API keys cannot be trusted. All keys are rejected until it is fixed."""


class ParcelError(UnreadableError):
    """Journal lines from another machine are invalid."""


class ParcelTooLargeError(ParcelError):
    """A request from another machine is too large, compressed or uncompressed."""


class AgentDbgGuardrailExceeded(BaseException):  # the name that programs import
    """A guardrail stopped the traced code. Has its name, its limit and the actual value."""

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
        # `args` has only the message: without this, a process pool could not pickle it.
        return type(self), (self.guardrail, self.threshold, self.actual, self.message)


class AgentDbgLoopAbort(AgentDbgGuardrailExceeded):
    """The guardrail `stop_on_loop` stopped the traced code: the same calls were repeated."""

    def __init__(self, threshold: int, actual: int, message: str) -> None:
        super().__init__("stop_on_loop", threshold, actual, message)

    def __reduce__(self) -> tuple[type[BaseException], tuple[object, ...]]:
        return type(self), (self.threshold, self.actual, self.message)


class WinkError(UnreadableError):
    """Base class of debug bundle errors, under the name that their users know."""


class DebugBundleError(WinkError, RuntimeError):
    """A debug bundle cannot be created or used."""


class BundleCorruptedError(DebugBundleError):
    """A bundle is damaged, hostile, or differs from its manifest."""


class BundleNotFoundError(DebugBundleError, NotFoundError, FileNotFoundError):
    """No bundle is at this path."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(message)

    def __str__(self) -> str:
        return str(self.args[0])


class BundleVersionError(DebugBundleError):
    """The version of a bundle is unknown to this reader."""


class BundleComponentMissingError(DebugBundleError):
    """A bundle lacks a required part."""
