"""A local object store for tests: moto's S3 server on 127.0.0.1, in a thread of the test process."""

from __future__ import annotations

import itertools
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "the-secret-of-all-tests"}
FOREIGN = (
    "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION",
    "AWS_SKIP_SIGNATURE",
)  # fmt: skip
# The server looks only at whether a request is signed, unless authentication is on.
SIGNED = "AWS4-HMAC-SHA256 Credential=tester/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
_numbers = itertools.count()


@dataclass(frozen=True)
class ObjectServer:
    """A running S3 server."""

    endpoint: str

    def environment(self) -> dict[str, str]:
        """The variables with which a process reaches the server."""
        return CREDENTIALS | {"AWS_ENDPOINT_URL": self.endpoint, "AWS_EC2_METADATA_DISABLED": "true"}

    def request(self, path: str, data: bytes | None = None, *, method: str = "GET", **headers: str) -> bytes:
        headers = {"Content-Type": "application/octet-stream"} | headers
        request = urllib.request.Request(f"{self.endpoint}/{path}", data=data, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            found: bytes = response.read()
        return found

    @contextmanager
    def authentication(self) -> Iterator[None]:
        """Check credentials in the block; otherwise any are accepted. The server knows none, so all are wrong."""
        self.request("moto-api/reset-auth", b"0", method="POST")
        try:
            yield
        finally:
            self.request("moto-api/reset-auth", b"inf", method="POST")


@dataclass(frozen=True)
class ObjectStore:
    """An empty bucket of a server, for one test."""

    server: ObjectServer
    bucket: str

    @property
    def address(self) -> str:
        return f"s3://{self.bucket}"

    def put(self, files: Mapping[str, bytes]) -> None:
        for key, data in files.items():
            self.server.request(f"{self.bucket}/{key}", data, method="PUT", Authorization=SIGNED)

    def get(self, key: str) -> bytes:
        return self.server.request(f"{self.bucket}/{key}", Authorization=SIGNED)


@contextmanager
def run_object_server() -> Iterator[ObjectServer]:
    """Run a server until the end of the block."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield ObjectServer(f"http://{host}:{port}")
    finally:
        server.stop()


@contextmanager
def empty_bucket(server: ObjectServer) -> Iterator[ObjectStore]:
    """A new bucket; the environment of this process leads to its server until the end of the block."""
    store = ObjectStore(server, f"bucket-{next(_numbers)}")
    server.request(store.bucket, b"", method="PUT")
    with pytest.MonkeyPatch.context() as patch:
        for name in FOREIGN:
            patch.delenv(name, raising=False)
        for name, value in server.environment().items():
            patch.setenv(name, value)
        yield store
