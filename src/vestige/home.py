"""Every path inside a home.

~/.vestige/                 or $VESTIGE_HOME; mode 0700
  config.toml               settings (settings.py)
  journal/                  <writer>.<generation>.ndjson, one per process and generation
  bodies/                   <writer>-<seq>: bodies too long for a journal line, until taken in
                            <writer>-<span>.partial: what has arrived of a streamed answer
  faults/                   <writer>.txt: what faulthandler wrote while its process died
  asks/                     <writer>: that process is asked where it stands (emit/process/stall_watch.py)
  store.db                  the store (SQLite)
  collector.lock            held by whoever takes journals in
  spool/                    <bundle id>/: a home per debug bundle that is being captured
  bundles/                  <bundle id>.wink: those that `vestige recover` made
  keys.json                 who may ask the server (fleet/api_keys.py), hashed
  keys.lock                 held by whoever changes them
  scanners/                 what looks for secrets, compiled (record/redaction/scanner_cache.py); may be removed
  hash.key                  of the hashes that stand for secrets in exports
  shipped.json              how far `vestige ship` has sent the journals on
  outbox/                   journals and long bodies that were taken in here, but not yet sent on
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from vestige._runtime.syscalls import make_folder
from vestige.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path  # 5 ms of imports: loaded with the first home, not with vestige

PARTIAL_SUFFIX = ".partial"
JOURNAL_SUFFIX = ".ndjson"


class Home(msgspec.Struct, frozen=True):
    """The folder that holds everything of one user or application."""

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
    def scanners(self) -> Path:
        """A capture's home has those of the home that it is in."""
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
        """There in the private home of a capture, and locked while its process lives."""
        return self.root / "capture"

    @property
    def exported(self) -> Path:
        """There in a capture's home, and says where, once its bundle was written."""
        return self.root / "exported"

    def journal_file(self, writer: str, generation: int) -> Path:
        return self.journal / f"{writer}.{generation:06d}{JOURNAL_SUFFIX}"

    def spilled_body(self, writer: str, seq: int) -> Path:
        return self.bodies / f"{writer}-{seq}"

    def partial_body(self, writer: str, span_id: str) -> Path:
        """What has arrived of an answer while it is streamed."""
        return self.bodies / f"{writer}-{span_id}{PARTIAL_SUFFIX}"

    def fault_file(self, writer: str) -> Path:
        return self.faults / f"{writer}.txt"

    def ask_file(self, writer: str) -> Path:
        return self.asks / writer

    def journal_files(self, folder: Path | None = None) -> list[tuple[str, int, Path]]:
        """All journal files as (writer, generation, path), oldest generation of a writer first."""
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
        """Create the folders, readable by their owner alone."""
        for folder in (self.root, self.journal, self.bodies, self.faults):
            make_folder(str(folder), 0o700)


def default_root() -> Path:
    """`$VESTIGE_HOME`, or `~/.vestige`."""
    from pathlib import Path

    given = os.environ.get("VESTIGE_HOME")
    if given:
        return Path(given).expanduser()
    try:
        return Path("~/.vestige").expanduser()
    except RuntimeError as error:
        raise UsageError("home: there is no home directory. Set VESTIGE_HOME.") from error


def get_home(root: str | os.PathLike[str] | Home | None = None) -> Home:
    """The home at `root`, or the default one."""
    from pathlib import Path

    if isinstance(root, Home):
        return root
    return Home(Path(os.path.abspath(root if root is not None else default_root())))


def is_default(home: Home) -> bool:
    """Is it where commands look unless told otherwise?"""
    return home.root == get_home(default_root()).root
