"""An S3 server for tests: moto, in a thread of this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import boto3
import pytest


@contextmanager
def serve_s3(patch: pytest.MonkeyPatch, bucket: str) -> Iterator[str]:
    """Yield the address of a server with an empty bucket, which the environment names."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        for name, value in (
            ("AWS_ENDPOINT_URL", url),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_DEFAULT_REGION", "us-east-1"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
        ):
            patch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket=bucket)
        yield url
    finally:
        server.stop()
