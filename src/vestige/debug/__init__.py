"""Debug bundles for programmers: capture a run into one file, and open such a file."""

from vestige.debug.agent_filesystem import DirectoryFilesystem, Filesystem, MemoryFilesystem
from vestige.debug.bundle import (
    AgentInfo,
    BundleWarning,
    DebugBundle,
    ExecutionInfo,
    LogEntry,
    SnapshotPayload,
)
from vestige.debug.bundle_builder import DebugBundleBuilder
from vestige.debug.event_dispatcher import Dispatcher, PromptExecuted, PromptRendered, ToolInvoked
from vestige.debug.session import Session, Snapshot
from vestige.debug.spool import LogRotationConfig
from vestige.debug.standalone_captures import archive_filesystem, collect_all_logs, dump_session
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
    "DebugBundleBuilder",
    "DebugBundleError",
    "DirectoryFilesystem",
    "Dispatcher",
    "ExecutionInfo",
    "Filesystem",
    "LogEntry",
    "LogRotationConfig",
    "MemoryFilesystem",
    "PromptExecuted",
    "PromptRendered",
    "Session",
    "Snapshot",
    "SnapshotPayload",
    "ToolInvoked",
    "WinkError",
    "archive_filesystem",
    "collect_all_logs",
    "dump_session",
]
