"""The interface of a store: all that code outside store/ can do with one.

Code outside store/ calls only this interface, so another engine can replace SQLite. It opens a
store with `store/open.py`. A method that fails raises StoreError, whatever the engine is.

Elsewhere: the methods and their types, by question, in store/interface/.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, Self

from vestige.store.interface.bodies import BodySource
from vestige.store.interface.changes import ChangeFeed, Changes, Cursor, LogChange, SpanChange
from vestige.store.interface.ingest import (
    OpenSpan,
    Position,
    ReadSpill,
    RecordWriter,
    RootlessTrace,
    SupervisedEnd,
    WriterInfo,
    WriterReader,
)
from vestige.store.interface.notes_and_findings import CheckResult, NoteStore, NoteSummary
from vestige.store.interface.retention import (
    DEFAULT_RETENTION,
    PruneResult,
    RetentionPolicy,
    RetentionStore,
    StoreSizes,
)
from vestige.store.interface.runs import (
    ConversationInfo,
    Op,
    RunFilter,
    RunInputsOutputs,
    RunPage,
    RunReader,
    RunSort,
    Term,
)
from vestige.store.interface.search import (
    Hit,
    QueryRows,
    SearchQuery,
    SearchResult,
    StoreSchema,
    TableInfo,
    TextSearcher,
)
from vestige.store.interface.spans import (
    Ancestor,
    Losses,
    OutlineLink,
    OutlineLog,
    OutlineReader,
    OutlineRows,
    OutlineSpan,
    SpanFacts,
    SpanReader,
    SpanRef,
)
from vestige.store.interface.stats import (
    GROUPS,
    USAGE_KEYS,
    LatestCall,
    ModelSum,
    RecordedSum,
    StatsReader,
    Sum,
)


class Store(
    RecordWriter,
    WriterReader,
    RunReader,
    SpanReader,
    OutlineReader,
    BodySource,
    TextSearcher,
    StatsReader,
    NoteStore,
    RetentionStore,
    ChangeFeed,
    Protocol,
):
    """An open store."""

    @property
    def path(self) -> Path | None:
        """The file of an embedded store. None for a store on a server."""

    @property
    def root(self) -> Path | None:
        """The data directory that chose a store on a server, whose settings apply to it."""

    @property
    def tenant(self) -> str | None:
        """The tenant whose runs are visible. None: all runs are visible."""

    def is_current(self) -> bool:
        """Return whether later writes are visible and readable: False if it must be reopened."""

    def find_problems(self) -> Sequence[str]:
        """Return problems of the engine, such as too little space, for `vestige doctor`."""

    def interrupt(self) -> None:
        """Stop the query that runs now; any thread may call it."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None: ...


__all__ = [
    "DEFAULT_RETENTION",
    "GROUPS",
    "USAGE_KEYS",
    "Ancestor",
    "BodySource",
    "ChangeFeed",
    "Changes",
    "CheckResult",
    "ConversationInfo",
    "Cursor",
    "Hit",
    "LatestCall",
    "LogChange",
    "Losses",
    "ModelSum",
    "NoteStore",
    "NoteSummary",
    "Op",
    "OpenSpan",
    "OutlineLink",
    "OutlineLog",
    "OutlineReader",
    "OutlineRows",
    "OutlineSpan",
    "Position",
    "PruneResult",
    "QueryRows",
    "ReadSpill",
    "RecordWriter",
    "RecordedSum",
    "RetentionPolicy",
    "RetentionStore",
    "RootlessTrace",
    "RunFilter",
    "RunInputsOutputs",
    "RunPage",
    "RunReader",
    "RunSort",
    "SearchQuery",
    "SearchResult",
    "SpanChange",
    "SpanFacts",
    "SpanReader",
    "SpanRef",
    "StatsReader",
    "Store",
    "StoreSchema",
    "StoreSizes",
    "Sum",
    "SupervisedEnd",
    "TableInfo",
    "Term",
    "TextSearcher",
    "WriterInfo",
    "WriterReader",
]
