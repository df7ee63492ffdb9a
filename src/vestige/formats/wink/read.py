"""Read a bundle from an untrusted source: every statement in it is checked before it is used.

    content = ZipContent(path)        # directory and manifest; nothing is unpacked
    for line in content.logs(): ...   # streamed; sizes, checksums and hashes checked on the way
    content.verify()                  # read all of it, and compare everything
    content.problems                  # mismatches, missing parts, skipped parts

Nothing is unpacked under a name from the file, no more is read than was declared, and only one line
or chunk is in memory at a time. Threads may share an object.

A hostile zip, or one without a readable manifest, is refused. Other damage is reported in
`problems`: all readable lines of a damaged member are returned, a damaged file raises when it is
read, and other members are read as usual.

Elsewhere: the zip and its members are in formats/wink/archive/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from vestige.errors import (
    BundleComponentMissingError,
    BundleCorruptedError,
)
from vestige.formats.wink.archive.member_names import find_fault
from vestige.formats.wink.archive.zip_members import Members
from vestige.formats.wink.bundle_content import ContentFile, Extra
from vestige.formats.wink.manifest import (
    FILES,
    MANIFEST,
    Component,
    Manifest,
    parse_manifest,
)
from vestige.formats.wink.sort_by_time import TimeOrder, log_time, snapshot_time
from vestige.limits import (
    BUNDLE_MANIFEST_MAX,
    BUNDLE_MEMBERS_MAX,
)


class ZipContent(Members):
    """The content of a bundle's zip. Implements `BundleContent`."""

    def __init__(self, source: Path | Members, *, partial: bool = False) -> None:
        """`partial`: snapshots or logs that are missing are a problem, not an error."""
        super().__init__(source)
        if not self.has(MANIFEST):
            raise BundleComponentMissingError(
                f"{self.path}: no {MANIFEST} in it (a bundle has one). Is it a debug bundle?"
            )
        raw = self.read(MANIFEST, BUNDLE_MANIFEST_MAX)
        self._manifest = parse_manifest(raw, str(self.path), self._report_manifest)
        self._partial = partial
        self._orders = {"snapshots": TimeOrder(snapshot_time), "logs": TimeOrder(log_time)}
        self._hashes: dict[str, str] | None = None
        self._damaged: dict[str, str] | None = None
        self._check_components()

    @property
    def manifest(self) -> Manifest:
        return self._manifest

    # --- what it holds -------------------------------------------------------------------------

    def snapshots(self) -> Iterator[str]:
        return self._in_order("snapshots")

    def logs(self) -> Iterator[str]:
        return self._in_order("logs")

    def _in_order(self, name: str) -> Iterator[str]:
        order = self._orders[name]
        return order.sorted(lambda: self._entries(name), lambda: self._entries(name, keep=True))

    def numbered(self, name: str) -> Iterator[tuple[str, int, str]]:
        """Yield the member, number and text of each line of a component, as they are in the
        file."""
        component = self._manifest.components[name]
        if self.has(component.path):
            for number, line in self.lines(component.path, component.sha256):
                yield component.path, number, line.decode(errors="surrogateescape")

    def files(self) -> Iterator[ContentFile]:
        """Yield the files under the safe names of their members, never under the original names."""
        for name in self._file_names():
            yield ContentFile(name.removeprefix(self._root), self.size(name), self.opener(name))

    def extras(self) -> Iterator[Extra]:
        """Yield each member once. A part of the format's own components is yielded as that part."""
        files = self._manifest.component("files")
        seen = {MANIFEST, *(self._manifest.components[name].path for name in ("snapshots", "logs"))}
        seen |= {files.listing} if files and files.listing else set()
        for name, component in self._manifest.components.items():
            path = component.path
            if name == "files" or not self.has(path) or path in seen:
                continue
            if path.startswith(self._root):
                continue
            seen.add(path)
            yield Extra(name, path, component.entry_count, self._again(component))

    def _again(self, component: Component) -> Callable[[], Iterator[bytes]]:
        return lambda: self.salvaged(component.path, component.sha256)

    def _entries(self, name: str, *, keep: bool = False) -> Iterator[str]:
        component = self._manifest.components[name]
        if not self.has(component.path):
            return
        count = 0
        for _, line in self.lines(component.path, component.sha256, keep=keep):
            count += 1
            # Bytes that are no UTF-8 stay what they are, and are written back so.
            yield line.decode(errors="surrogateescape")
        if component.entry_count is not None and count != component.entry_count:
            self.warn(
                component.path,
                "",
                "entry-count",
                f"{count} entries (the manifest says {component.entry_count}).",
            )

    @property
    def _root(self) -> str:
        component = self._manifest.component("files")
        return component.path if component else FILES

    def _file_names(self) -> Iterator[str]:
        return (name for name in self.names() if name.startswith(self._root))

    # --- checks ----------------------------------------------------------------------------------

    def verify(self, keep: int = 0) -> None:
        """Read all of it, and compare every size, checksum and hash there is.

        What does not match is in `problems`. Once is enough: an open file does not change.
        """
        if self._damaged is not None:
            return
        for name, component in self._manifest.components.items():
            if name != "files" and self.has(component.path):
                chunks: list[bytes] | None = []
                for chunk in self.salvaged(component.path, component.sha256):
                    keep -= len(chunk)
                    if keep >= 0 and chunks is not None:
                        chunks.append(chunk)
                    else:
                        chunks = None
                if chunks is not None:
                    self._cached_parts[component.path] = chunks
        self._damaged = self._find_damaged_files()

    @property
    def damaged_files(self) -> dict[str, str]:
        """Paths of files that are not what the bundle says, each with what is wrong."""
        self.verify()
        assert self._damaged is not None
        return self._damaged

    def _find_damaged_files(self) -> dict[str, str]:
        damaged: dict[str, str] = {}
        for name in self._file_names():
            reason = self.find_damage(name)
            if reason is not None:
                damaged[name.removeprefix(self._root)] = reason
                self.report(name, "", "file-damaged", reason)
            elif self._hashes and name not in self._hashes:
                self.warn(name, "", "file-unlisted", "is not in the bundle's list of files.")
        for name in self._hashes or ():
            if not self.has(name):
                self.report(name[:200], "", "file-missing", "is missing from the bundle.")
        return damaged

    def file_hashes(self) -> dict[str, str]:
        """Return the hash of each file by the name of its member, if the bundle has a listing."""
        component = self._manifest.component("files")
        if component is None or component.listing is None:
            return {}
        listing = component.listing
        if not self.has(listing):
            self.report(listing[:200], "", "listing-missing", "is missing from the bundle.")
            return {}
        hashes: dict[str, str] = {}
        for number, line in self.lines(listing, component.sha256):
            digest, separator, name = line.decode(errors="surrogateescape").partition("  ")
            if len(hashes) >= BUNDLE_MEMBERS_MAX:
                self.report(
                    listing, "", "listing-too-long", f"more than {BUNDLE_MEMBERS_MAX} lines."
                )
                break
            if not separator or len(digest) != 64:
                self.report(listing, f"line {number}", "listing-malformed", "no `sha256  name`.")
            else:
                hashes[name] = digest
        return hashes

    def expected(self, name: str) -> str | None:
        if self._hashes is None:
            self._hashes = self.file_hashes()
        return self._hashes.get(name)

    def _report_manifest(self, place: str, message: str) -> None:
        self.warn(MANIFEST, place, "manifest-value", message)

    def _check_components(self) -> None:
        expected = {MANIFEST}
        for name, component in self._manifest.components.items():
            if name == "files":
                if not component.path.endswith("/") or find_fault(component.path):
                    raise BundleCorruptedError(
                        f"{self.path}: its files are in {component.path[:60]!r} (expected a folder"
                        " of the bundle). The file is damaged, or was changed."
                    )
                if component.listing is not None:
                    expected.add(component.listing)
            else:
                expected.add(component.path)
                self._check_member(name, component)
        root = self._root if "files" in self._manifest.components else None
        for name in self.names():
            if name not in expected and not (root and name.startswith(root)):
                self.warn(name[:200], "", "member-unlisted", "is not in the manifest; passed over.")
        self._check_files()

    def _check_member(self, name: str, component: Component) -> None:
        if not self.has(component.path):
            if name in ("snapshots", "logs") and not self._partial:
                raise BundleComponentMissingError(
                    f"{self.path}: no {component.path[:100]!r} in it, though the manifest lists it"
                    f" as {name}. `vestige store recover` makes a bundle of what is there."
                )
            shown = f"component {name[:100]!r} ({component.path[:100]!r}) is not there."
            self.report(MANIFEST, "", "component-missing", shown)
        elif component.size_bytes is not None and self.size(component.path) != component.size_bytes:
            self.report(
                component.path,
                "",
                "size-mismatch",
                f"{self.size(component.path)} bytes (the manifest says {component.size_bytes}).",
            )

    def _check_files(self) -> None:
        component = self._manifest.component("files")
        if component is None:
            return
        names = list(self._file_names())
        expected = component.file_count
        if expected is not None and len(names) != expected:
            self.report(
                self._root,
                "",
                "file-count",
                f"{len(names)} files (the manifest says {expected}).",
            )
        elif component.total_size_bytes is not None:
            total = sum(self.size(name) for name in names)
            if total != component.total_size_bytes:
                self.report(
                    self._root,
                    "",
                    "size-mismatch",
                    f"{total} bytes of files (the manifest says {component.total_size_bytes}).",
                )
