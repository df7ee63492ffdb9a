"""Debug bundles for programmers: capture a run into one file, and open such a file."""

from vestige.debug.bundle import (
    AgentInfo,
    BundleWarning,
    DebugBundle,
    ExecutionInfo,
    LogEntry,
    SnapshotPayload,
)
from vestige.errors import (
    BundleComponentMissingError,
    BundleCorruptedError,
    BundleVersionError,
    DebugBundleError,
    WinkError,
)

__all__ = [
    "AgentInfo",
    "BundleComponentMissingError",
    "BundleCorruptedError",
    "BundleVersionError",
    "BundleWarning",
    "DebugBundle",
    "DebugBundleError",
    "ExecutionInfo",
    "LogEntry",
    "SnapshotPayload",
    "WinkError",
]
