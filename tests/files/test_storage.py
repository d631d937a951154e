"""Addresses on the local disk and on an object store."""

from __future__ import annotations

import random
import socket
import sys
import time
from pathlib import Path

import pytest

from regard.errors import InputError, RegardError
from regard.files import storage
from tests.object_store import CREDENTIALS, ObjectStore

NAMES = ("a/1.txt", "a/2.txt", "a/b/3.txt", "a-c/4.txt", "top.txt")


@pytest.fixture
def both(object_store: ObjectStore, tmp_path: Path) -> tuple[str, str]:
    """The same files in a local folder and in a bucket."""
    hidden = ("_SUCCESS", ".hidden", "a/.crc/5.txt")
    object_store.put({name: name.encode() for name in (*NAMES, *hidden)})
    for name in (*NAMES, *hidden):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    return str(tmp_path), object_store.address


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", NAMES),
        ("a", ("a/1.txt", "a/2.txt", "a/b/3.txt")),
        ("top.txt", ("top.txt",)),
        ("*.txt", ("top.txt",)),
        ("a/*.txt", ("a/1.txt", "a/2.txt")),
        ("a/?.txt", ("a/1.txt", "a/2.txt")),
        ("a/[!1].txt", ("a/2.txt",)),
        ("a*/[13-9].txt", ("a/1.txt", "a-c/4.txt")),
        ("**/*.txt", NAMES),
        ("a/**/*.txt", ("a/1.txt", "a/2.txt", "a/b/3.txt")),
        ("a/**", ("a/1.txt", "a/2.txt", "a/b/3.txt")),
    ],
)
def test_lists_in_one_order_on_disk_and_store(both: tuple[str, str], pattern: str, expected: tuple[str, ...]) -> None:
    for base in both:
        found = storage.list_files(storage.join(base, pattern) if pattern else base)
        assert sorted(found, key=lambda name: name.split("/")) == found
        assert {name.removeprefix(base + "/") for name in found} == set(expected)


def test_a_local_glob_is_relative_to_the_working_folder(both: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(both[0])
    assert storage.list_files("a/*.txt") == ["a/1.txt", "a/2.txt"]


def test_names_with_wildcards_that_exist_are_files(object_store: ObjectStore, tmp_path: Path) -> None:
    object_store.put({"x%5B1%5D.txt": b"1"})
    (tmp_path / "x[1].txt").write_bytes(b"1")
    assert storage.list_files(f"{object_store.address}/x[1].txt") == [f"{object_store.address}/x[1].txt"]
    assert storage.list_files(tmp_path / "x[1].txt") == [str(tmp_path / "x[1].txt")]


def test_reads_seeks_and_identifies(both: tuple[str, str]) -> None:
    for base in both:
        address = storage.join(base, "a", "b", "3.txt")
        with storage.open_input(address) as file:
            assert (file.seek(2), file.read(), file.seek(0), file.read(1)) == (2, b"b/3.txt", 0, b"a")
        before = storage.file_identity(address)
        assert before.size == 9 and before.version
        assert storage.file_identity(address) == before
        storage.write_bytes(address, b"other 789")
        after = storage.file_identity(address)
        assert after.size == 9 and after.version != before.version
        assert storage.read_bytes(address) == b"other 789"


def test_a_failed_write_leaves_what_was_there(both: tuple[str, str]) -> None:
    def write(address: str) -> None:
        with storage.replace_object(address) as path:
            path.write_bytes(b"half")
            raise RuntimeError("stopped")

    for base in both:
        for name, before in (("top.txt", b"top.txt"), ("new.txt", None)):
            with pytest.raises(RuntimeError):
                write(storage.join(base, name))
            address = storage.join(base, name)
            assert (storage.read_bytes(address) if storage.exists(address) else None) == before


def test_a_large_object_is_uploaded_in_parts(object_store: ObjectStore, tmp_path: Path) -> None:
    data = random.Random(0).randbytes(12 << 20)
    storage.write_bytes(f"{object_store.address}/large.bin", data)
    assert object_store.get("large.bin") == data
    storage.fetch(f"{object_store.address}/large.bin", tmp_path / "large.bin")
    assert (tmp_path / "large.bin").read_bytes() == data
    assert [path.name for path in tmp_path.iterdir()] == ["large.bin"]


def test_existence_and_removal_below_a_prefix(both: tuple[str, str]) -> None:
    base = both[1]
    assert storage.exists(f"{base}/a")
    assert storage.exists(f"{base}/top.txt")
    assert not storage.exists(f"{base}/none")
    storage.remove(f"{base}/a")
    assert {name.removeprefix(f"{base}/") for name in storage.list_files(base)} == {"a-c/4.txt", "top.txt"}
    storage.remove(f"{base}/top.txt")
    storage.remove(f"{base}/none")
    assert storage.list_files(base) == [f"{base}/a-c/4.txt"]
    with pytest.raises(InputError, match="whole bucket"):
        storage.remove(base)


def test_addresses(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("text")
    assert not storage.is_remote("texts/x.txt") and not storage.is_remote("file:///x") and not storage.is_remote("-")
    assert storage.is_remote("s3://bucket/key") and storage.is_remote("gs://bucket") and storage.is_remote("S3://bkt")
    assert storage.is_remote(Path("s3://bucket/key")), "pathlib removes one of the slashes"
    assert storage.normalize(Path("s3://bucket/key")) == "s3://bucket/key"
    assert storage.list_files(f"file://{tmp_path}") == [str(tmp_path / "x.txt")]
    assert storage.read_bytes(f"file://{tmp_path}/x.txt") == b"text"


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("s3://", "expected s3://BUCKET/FOLDER/FILE"),
        ("s3:///key", "expected s3://BUCKET/FOLDER/FILE"),
        ("s3://bucket//key", "expected s3://BUCKET/FOLDER/FILE"),
        ("s3://b ucket/key", "expected s3://BUCKET/FOLDER/FILE"),
        ("ftp://host/file", "unknown kind of address.*choices: file://, gs://, s3://"),
        ("s3n://bucket/key", "did you mean 's3://'"),
    ],
)
def test_malformed_addresses(address: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        storage.open_input(address)


def test_credentials_in_an_address_are_refused_and_not_repeated() -> None:
    for address in ("s3://key:secret@bucket/x", "ftp://user:secret@host/x"):
        with pytest.raises(InputError) as caught:
            storage.list_files(address)
        assert "secret" not in str(caught.value)


def failure(address: str) -> str:
    with pytest.raises(RegardError) as caught:
        storage.read_bytes(address)
    message = str(caught.value)
    assert "\n" not in message and not any(value in message for value in CREDENTIALS.values())
    with pytest.raises(RegardError) as listed:
        storage.list_files(address)
    with pytest.raises(RegardError) as identified:
        storage.file_identity(address)
    assert str(listed.value) == str(identified.value) == message
    return message


def test_missing_keys_and_buckets(object_store: ObjectStore) -> None:
    assert failure(f"{object_store.address}/no.txt").startswith("there is no file or folder s3://")
    assert "there is no bucket 'no-such-bucket' at http://127.0.0.1" in failure("s3://no-such-bucket/no.txt")
    with pytest.raises(InputError, match="there is no bucket 'no-such-bucket'"):
        storage.write_bytes("s3://no-such-bucket/x", b"")
    with pytest.raises(InputError, match=r"no file matches s3://.*\*\.txt"):
        storage.list_files(f"{object_store.address}/*.txt")
    with pytest.raises(InputError, match="there is no bucket"):
        storage.list_files("s3://no-such-bucket/*.txt")


def test_wrong_credentials(object_store: ObjectStore) -> None:
    object_store.put({"x.txt": b"x"})
    with object_store.server.authentication():
        message = failure(f"{object_store.address}/x.txt")
        with pytest.raises(InputError, match="access denied"):
            storage.write_bytes(f"{object_store.address}/y.txt", b"y")
    assert "access denied" in message and "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in message


def test_missing_credentials(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    object_store.put({"x.txt": b"x"})
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"access denied.*missing"):
        storage.read_bytes(f"{object_store.address}/x.txt")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    object_store.server.request(f"{object_store.bucket}/public.txt", b"x", method="PUT", **{"x-amz-acl": "public-read"})
    assert storage.read_bytes(f"{object_store.address}/public.txt") == b"x"


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_unreachable_endpoint(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, but nobody listens
        monkeypatch.setenv(variable, f"http://127.0.0.1:{closed.getsockname()[1]}")
        monkeypatch.setattr(storage, "ATTEMPTS", 1)
        assert "cannot be reached at http://127.0.0.1" in failure(f"{object_store.address}/x.txt")


def test_a_server_that_never_answers(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(storage, "ATTEMPTS", 2)
        monkeypatch.setattr(storage, "REQUEST_SECONDS", 1.0)
        started = time.monotonic()
        with pytest.raises(RegardError, match="cannot be reached"):
            storage.read_bytes(f"{object_store.address}/x.txt")
        assert time.monotonic() - started < 60


def test_pyarrow_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.fs", None)
    with pytest.raises(InputError, match=r'pip install "regard\[data\]"'):
        storage.list_files("s3://bucket/texts")
