"""The intact parts of a damaged bundle, as the content of a new one.

    written = write_bundle(intact(content), target)

Every line that can be unpacked is kept as it is, malformed ones too. A file that is damaged is
left out, and the new manifest says so. A bundle in which nothing is damaged stays the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from vestige.formats.wink.bundle_content import BundleContent, ContentFile, Extra
from vestige.formats.wink.manifest import FILES, Component, Manifest, Skipped


class IntactContent:
    """Content without its damaged files. Implements `BundleContent`."""

    def __init__(self, content: BundleContent, damaged: dict[str, str]) -> None:
        self._content = content
        self._damaged = damaged

    @property
    def manifest(self) -> Manifest:
        manifest = self._content.manifest
        files = manifest.component("files") or Component(FILES)
        left_out = [
            Skipped(path, f"damaged: {reason}") for path, reason in sorted(self._damaged.items())
        ]
        files = msgspec.structs.replace(files, skipped=[*(files.skipped or ()), *left_out])
        return msgspec.structs.replace(manifest, components={**manifest.components, "files": files})

    def snapshots(self) -> Iterator[str]:
        return self._content.snapshots()

    def logs(self) -> Iterator[str]:
        return self._content.logs()

    def files(self) -> Iterator[ContentFile]:
        return (file for file in self._content.files() if file.path not in self._damaged)

    def extras(self) -> Iterator[Extra]:
        return self._content.extras()


def intact(content: BundleContent) -> BundleContent:
    """Return the content itself, or without the files that are damaged."""
    damaged = dict(getattr(content, "damaged_files", ()))
    return IntactContent(content, damaged) if damaged else content
