"""The paths of a home.

~/.vestige/                 or $VESTIGE_HOME; mode 0700
  config.toml               settings (settings.py)
  journal/                  <writer>.<generation>.ndjson, one per process and generation
                            .<writer>.reserve: space for its last records on a full disk
  bodies/                   <writer>-<seq>: bodies too long for a journal line, until imported
                            <writer>-<span>.partial: the received part of a streamed response
  faults/                   <writer>.txt: stacks that faulthandler wrote when the process died
  asks/                     <writer>: a stack request to that process (emit/process/stall_watch.py)
  store.db                  the store (SQLite)
  collector.lock            held by the process that imports journals; contains the id of the home
  spool/                    <bundle id>/: the private home of each debug bundle in progress
  bundles/                  <bundle id>.wink: bundles created by `vestige store recover`
  keys.json                 hashed API keys of the server (fleet/api_keys.py)
  keys.lock                 held while keys.json is changed
  proxies/                  <id>/: certificates and variables of the proxy of a `vestige run`
  scanners/                 compiled scanners (record/redaction/hyperscan_database_cache.py)
  viewer.key                the access key of the viewer on this machine; mode 0600
  hash.key                  the key of the hashes that replace secrets in exports
  shipped.json              how far `vestige server ship` has sent each journal
  outbox/                   imported journals and long bodies that are not sent yet
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vestige._runtime.msgspec_or_fallback import msgspec
from vestige._runtime.syscalls import make_folder
from vestige.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path  # 5 ms of imports: not with `import vestige`

PARTIAL_SUFFIX = ".partial"
JOURNAL_SUFFIX = ".ndjson"


class Home(msgspec.Struct, frozen=True):
    """The data directory of one user or application."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "config.toml"

    @property
    def journal(self) -> Path:
        return self.root / "journal"

    @property
    def bodies(self) -> Path:
        return self.root / "bodies"

    @property
    def faults(self) -> Path:
        return self.root / "faults"

    @property
    def asks(self) -> Path:
        return self.root / "asks"

    @property
    def store(self) -> Path:
        return self.root / "store.db"

    @property
    def lock(self) -> Path:
        return self.root / "collector.lock"

    @property
    def spool(self) -> Path:
        return self.root / "spool"

    @property
    def bundles(self) -> Path:
        return self.root / "bundles"

    @property
    def keys(self) -> Path:
        return self.root / "keys.json"

    @property
    def keys_lock(self) -> Path:
        return self.root / "keys.lock"

    @property
    def hash_key(self) -> Path:
        return self.root / "hash.key"

    @property
    def viewer_key(self) -> Path:
        return self.root / "viewer.key"

    @property
    def scanners(self) -> Path:
        """The scanner cache. The home of a capture shares that of the enclosing home."""
        spool = self.root.parent
        home = spool.parent if spool.name == "spool" else self.root
        return home / "scanners"

    @property
    def shipped(self) -> Path:
        return self.root / "shipped.json"

    @property
    def outbox(self) -> Path:
        return self.root / "outbox"

    @property
    def capture(self) -> Path:
        """Exists in the private home of a capture, and is locked while its process lives."""
        return self.root / "capture"

    @property
    def exported(self) -> Path:
        """Exists in the home of a capture once its bundle is written, and contains its path."""
        return self.root / "exported"

    def journal_file(self, writer: str, generation: int) -> Path:
        return self.journal / f"{writer}.{generation:06d}{JOURNAL_SUFFIX}"

    def reserve_file(self, writer: str) -> Path:
        """Space that a writer releases when the disk is full at its end."""
        return self.journal / f".{writer}.reserve"

    def spilled_body(self, writer: str, seq: int) -> Path:
        return self.bodies / f"{writer}-{seq}"

    def partial_body(self, writer: str, span_id: str) -> Path:
        """The received part of a streamed response."""
        return self.bodies / f"{writer}-{span_id}{PARTIAL_SUFFIX}"

    def fault_file(self, writer: str) -> Path:
        return self.faults / f"{writer}.txt"

    def ask_file(self, writer: str) -> Path:
        return self.asks / writer

    def journal_files(self, folder: Path | None = None) -> list[tuple[str, int, Path]]:
        """Return all journal files as (writer, generation, path), sorted."""
        folder = self.journal if folder is None else folder
        found: list[tuple[str, int, Path]] = []
        try:
            names = os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        for name in names:
            writer, _, rest = name.partition(".")
            number = rest.removesuffix(JOURNAL_SUFFIX)
            if rest.endswith(JOURNAL_SUFFIX) and number.isdecimal():
                found.append((writer, int(number), folder / name))
        return sorted(found)

    def make(self) -> None:
        """Create the folders, readable only by their owner."""
        for folder in (self.root, self.journal, self.bodies, self.faults):
            make_folder(str(folder), 0o700)


def default_root() -> Path:
    """Return `$VESTIGE_HOME`, or `~/.vestige`."""
    from pathlib import Path

    configured = os.environ.get("VESTIGE_HOME")
    if configured:
        return Path(configured).expanduser()
    try:
        return Path("~/.vestige").expanduser()
    except RuntimeError as error:
        raise UsageError("home: the user has no home directory. Set VESTIGE_HOME.") from error


def get_home(root: str | os.PathLike[str] | Home | None = None) -> Home:
    """Return the home at `root`, or the default home."""
    from pathlib import Path

    if isinstance(root, Home):
        return root
    return Home(Path(os.path.abspath(root if root is not None else default_root())))


def is_default(home: Home) -> bool:
    """Return whether commands use this home without `--home`."""
    return home.root == get_home(default_root()).root


def has_nothing(home: Home, store: str | Path) -> bool:
    """Return whether a home does not exist, or is empty and cannot be written."""
    if not home.root.is_dir():
        return True
    used = store != home.store or home.store.exists() or home.journal.exists()
    return not used and not os.access(home.root, os.W_OK | os.X_OK)


def explain_missing(home: Home) -> str:
    """Return why a home does not exist, and what to do: it may be impossible to create it."""
    if home.root.is_dir():
        return (
            f"{home.root}: not writable and empty, so nothing is recorded. Set VESTIGE_HOME to a"
            " directory that you may write."
        )
    existing = home.root
    while not os.path.lexists(existing) and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        problem = f"{existing} is not a directory"
    elif not os.access(existing, os.W_OK | os.X_OK) or existing.is_relative_to("/proc"):
        problem = f"{existing} is not writable"
    else:
        return f"{home.root}: no data directory. Record a run first: `vestige run -- COMMAND`."
    return (
        f"{home.root}: no data directory, and none can be created ({problem}), so nothing is"
        " recorded. Set VESTIGE_HOME to a directory that you may write."
    )
