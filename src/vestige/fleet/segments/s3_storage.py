"""Segments in a bucket of S3, or of a server with the same interface.

Credentials, region and the address of other servers (AWS_ENDPOINT_URL) come from the environment or
the files of the AWS tools, as boto3 reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar

from vestige.errors import StoreError, UsageError
from vestige.fleet.segments.segment_storage import (
    REJECTED,
    SegmentExistsError,
    SegmentInfo,
    is_key,
)

_DELETED_AT_ONCE: Final = 1_000
_EXISTS: Final = ("PreconditionFailed", "412")
Result = TypeVar("Result")


class S3Storage:
    """Segments as objects below a prefix."""

    def __init__(self, bucket: str, prefix: str) -> None:
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError, ClientError
        except ImportError:
            raise UsageError(
                f"s3://{bucket}: the client of S3 is not installed."
                " Run `pip install 'vestige[s3]'`."
            ) from None
        self._bucket = bucket
        self._prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""
        config = Config(
            connect_timeout=10,
            read_timeout=60,
            retries={"mode": "standard", "total_max_attempts": 4},
        )
        self._errors: tuple[type[Exception], ...] = (ClientError, BotoCoreError)
        self._client = self._call("", lambda: boto3.client("s3", config=config))

    def put(self, key: str, data: bytes) -> None:
        try:
            self._call(
                key,
                lambda: self._client.put_object(
                    Bucket=self._bucket, Key=self._prefix + key, Body=data, IfNoneMatch="*"
                ),
            )
        except SegmentExistsError:
            # A request whose answer was lost is repeated: then the object is this one.
            if self.find(key) != data:
                raise

    def list_segments(self) -> list[SegmentInfo]:
        found = [
            SegmentInfo(key, item["Size"], item["LastModified"].timestamp())
            for key, item in self._iter_objects("")
        ]
        return sorted(found, key=lambda info: (info.written_s, info.key))

    def count_rejected(self) -> int:
        return len(self._iter_objects(REJECTED))

    def _iter_objects(self, folder: str) -> list[tuple[str, dict[str, Any]]]:
        def list_all() -> list[tuple[str, dict[str, Any]]]:
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix + folder, Delimiter="/"
            )
            items = [item for page in pages for item in page.get("Contents", ())]
            named = [(item["Key"].removeprefix(self._prefix), item) for item in items]
            return [(key, item) for key, item in named if is_key(key)]

        return self._call(folder, list_all)

    def find(self, key: str) -> bytes | None:
        def read_all() -> bytes | None:
            try:
                found = self._client.get_object(Bucket=self._bucket, Key=self._prefix + key)
            except self._client.exceptions.NoSuchKey:
                return None
            data: bytes = found["Body"].read()
            return data

        return self._call(key, read_all)

    def delete(self, keys: Iterable[str]) -> None:
        names = [{"Key": self._prefix + key} for key in keys]
        for at in range(0, len(names), _DELETED_AT_ONCE):
            part = {"Objects": names[at : at + _DELETED_AT_ONCE], "Quiet": True}
            self._call("", partial(self._delete_some, part))

    def _delete_some(self, part: dict[str, Any]) -> None:
        done = self._client.delete_objects(Bucket=self._bucket, Delete=part)
        for error in done.get("Errors", ()):
            raise StoreError(f"s3://{self._bucket}: {error.get('Key')}: {error.get('Code')}.")

    def _call(self, key: str, call: Callable[[], Result]) -> Result:
        """Call the client. Raise StoreError, which has the code of S3 and no address."""
        try:
            return call()
        except self._errors as error:
            answer = getattr(error, "response", {})
            code = str(answer.get("Error", {}).get("Code", "")) or type(error).__name__
            where = f"s3://{self._bucket}/{self._prefix}{key}"
            if code in _EXISTS:
                raise SegmentExistsError(f"{where}: exists with other contents.") from None
            raise StoreError(f"{where}: {code}.") from error
