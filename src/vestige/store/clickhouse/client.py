"""The connection to ClickHouse: bound parameters, bounded queries, converted errors.

    client = Client.connect(address)
    client.query("SELECT name FROM runs WHERE run_id = {run_id:String}", run_id=text)
    client.insert("spans", columns, rows)

Values are always sent as parameters of the query, never as part of its text. Each query has limits
of time, memory and result size. A network error leaves it unknown whether a write has arrived, so
only reads are repeated (`ingest/commit_log.py` finds out for writes).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from vestige.errors import StoreError, StoreNotWritableError, UsageError
from vestige.limits import MIB
from vestige.store.cancellation import check_cancelled
from vestige.store.clickhouse.address import Address

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client as HttpClient
else:
    HttpClient = Any

QUERY_S: Final = 30
"""The longest time of one query."""

READ_SETTINGS: Final[dict[str, Any]] = {
    "max_execution_time": QUERY_S,
    "max_memory_usage": 2_048 * MIB,
    "max_result_bytes": 1_024 * MIB,
    "result_overflow_mode": "throw",
    "max_bytes_before_external_sort": 512 * MIB,
    "max_bytes_before_external_group_by": 512 * MIB,
    "max_query_size": 16 * MIB,
    "max_partitions_per_insert_block": 0,
    "async_insert": 0,
}
"""The limits of every query."""

IDLE_MAX: Final = 16
"""Connections that stay open for the next store. To connect takes several queries."""

_idle: Final[dict[Address, list[HttpClient]]] = {}

Rows = Sequence[Sequence[Any]]


class Client:
    """A connection to one database. It is used by one thread at a time."""

    def __init__(self, http: HttpClient, address: Address) -> None:
        self._http = http
        self.address = address

    @classmethod
    def connect(cls, address: Address) -> Client:
        """Connect, or reuse a connection that was closed."""
        try:
            return cls(_idle[address].pop(), address)
        except (KeyError, IndexError):
            pass
        try:
            import clickhouse_connect
            from clickhouse_connect import common
        except ImportError:
            raise UsageError(
                f"{address}: the client of ClickHouse is not installed."
                " Run `pip install 'vestige[clickhouse]'`."
            ) from None
        common.set_setting("autogenerate_session_id", False)
        # Otherwise each result is a `UUID` that names this program and its machine.
        common.set_setting("send_os_user", False)
        try:
            http = clickhouse_connect.get_client(
                host=address.host,
                port=address.port,
                username=address.user,
                password=address.password,
                secure=address.secure,
                database="default",  # that of the store may not exist yet
                connect_timeout=10,
                send_receive_timeout=QUERY_S + 30,
                query_retries=1,
                compress=False,
            )
        except Exception as error:  # the driver and urllib3 have no common base
            raise _convert(error, address) from error
        http.database = address.database
        return cls(http, address)

    @contextmanager
    def outside_database(self) -> Iterator[None]:
        """Run statements that must work before the database of the store exists."""
        before, self._http.database = self._http.database, "default"
        try:
            yield
        finally:
            self._http.database = before

    def query(
        self,
        sql: str,
        settings: Mapping[str, Any] | None = None,
        *,
        as_bytes: Sequence[str] = (),
        **parameters: Any,
    ) -> Rows:
        """Return the rows of a query. Columns in `as_bytes` are bytes, which need not be text."""
        return self.query_with_names(sql, settings, as_bytes=as_bytes, **parameters)[1]

    def query_with_names(
        self,
        sql: str,
        settings: Mapping[str, Any] | None = None,
        *,
        as_bytes: Sequence[str] = (),
        **parameters: Any,
    ) -> tuple[Sequence[str], Rows]:
        """Return the names of the columns, and the rows."""
        check_cancelled()
        try:
            result = self._http.query(
                sql,
                parameters=parameters or None,
                settings={**READ_SETTINGS, **(settings or {})},
                column_formats=dict.fromkeys(as_bytes, "bytes") or None,
            )
            # The rows are read from the connection here, which may break meanwhile.
            return result.column_names, result.result_rows
        except Exception as error:
            check_cancelled()
            raise _convert(error, self.address) from error

    def value(self, sql: str, **parameters: Any) -> Any:
        """Return the first value of a query, or None if it has no rows."""
        rows = self.query(sql, **parameters)
        return rows[0][0] if rows else None

    def command(self, sql: str, **parameters: Any) -> None:
        """Run a statement without a result."""
        try:
            self._http.command(sql, parameters=parameters or None, settings=dict(READ_SETTINGS))
        except Exception as error:
            raise _convert(error, self.address) from error

    def insert(
        self,
        table: str,
        columns: Mapping[str, str],
        rows: Rows,
        token: str | None = None,
    ) -> None:
        """Insert rows as one block. `columns` are names and types.

        `token`: the server drops the block if it has stored one with the same token.
        """
        if not rows:
            return
        settings = {**READ_SETTINGS, "max_insert_block_size": 10_000_000}
        if token is not None:
            settings["insert_deduplication_token"] = token
        try:
            self._http.insert(
                table,
                rows,
                column_names=list(columns),
                column_type_names=list(columns.values()),
                settings=settings,
            )
        except Exception as error:
            raise _convert(error, self.address, writing=True) from error

    def close(self) -> None:
        """Keep the connection for the next store with this address."""
        idle = _idle.setdefault(self.address, [])
        if len(idle) < IDLE_MAX:
            idle.append(self._http)
        else:
            self._http.close()


def _convert(error: Exception, address: Address, writing: bool = False) -> StoreError:
    """Return the StoreError for an error of the driver, without addresses of the network."""
    text = str(error).partition(" (for url")[0]
    code = ""
    if "Code: " in text:
        text = text[text.rindex("Code: ") :] if text.count("Code: ") == 1 else text
        code = text.partition("Code: ")[2].partition(".")[0]
        text = text.partition("DB::Exception: ")[2] or text
    text = " ".join(text.split())[:500]
    message = f"{address}: {text}"
    if writing and code in _NOT_WRITABLE:
        return StoreNotWritableError(message, text)
    return ClickHouseError(message, code)


class ClickHouseError(StoreError):
    """An error of ClickHouse, with its number."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


_NOT_WRITABLE: Final = frozenset(("164", "242", "243", "497", "999"))
"""Numbers of errors: read-only user, read-only table, full disk, no rights, no Keeper."""
