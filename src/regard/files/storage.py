"""Files by address, on the local disk and on object stores: `s3://bucket/key`, `gs://bucket/key`, `file:///path`.

    list_files("s3://bucket/texts/*.jsonl.gz")      # a file, a folder (all files below it) or a glob, sorted
    with open_input("s3://bucket/texts/a.txt") as file: ...
    file_identity(address)                          # size, and ETag or time of modification
    with replace_object(address) as path: ...       # write to a local path; it appears at the address when complete

Object stores are reached through `pyarrow.fs` (the extra `data`), which is imported when the first remote address is
used. Credentials come from the environment and the configuration files of the store's own tools (AWS_ACCESS_KEY_ID,
~/.aws/credentials, ...), never from an address. AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL names another server than
Amazon's, AWS_REGION a region, and AWS_SKIP_SIGNATURE=true reads public buckets without credentials. Connection pools
and background threads of pyarrow do not survive a fork: start other processes with `spawn`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from glob import glob
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from regard.errors import InputError, RegardError, suggest
from regard.files.disk import replace_file
from regard.files.file_input import open_file

Address = str | os.PathLike[str]

STORES = {"s3": "Amazon S3", "gs": "Google Cloud Storage"}  # and servers that speak the same protocol
CONNECT_SECONDS, REQUEST_SECONDS, ATTEMPTS = 5.0, 15.0, 3  # limits of a request, so that no failure takes minutes
BUFFER = 4 << 20  # bytes per request of a sequential read
# One slash is enough: pathlib makes `s3:/bucket/key` of `s3://bucket/key`.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+-]+):/(.*)", re.DOTALL)
_WILDCARDS = re.compile(r"[*?\[]")


class _Location(NamedTuple):
    scheme: str
    path: str  # bucket/key, as pyarrow names objects

    @property
    def bucket(self) -> str:
        return self.path.partition("/")[0]

    @property
    def address(self) -> str:
        return f"{self.scheme}://{self.path}"


@dataclass(frozen=True)
class FileIdentity:
    """What tells two versions of a file apart: its size, and its ETag (object stores) or time of modification."""

    size: int
    version: str


def is_remote(address: Address) -> bool:
    """Return whether an address is on an object store.

    Raises InputError for a malformed address and for a scheme that is not supported.
    """
    return _location(address) is not None


def is_pattern(address: Address) -> bool:
    """Return whether an address has the wildcards of a glob: `*`, `**`, `?` or `[...]`."""
    return _WILDCARDS.search(os.fspath(address)) is not None


def normalize(address: Address) -> str:
    """Return an address in the form for messages and manifests: two slashes after the scheme, local paths as paths."""
    location = _location(address)
    return os.fspath(local_path(address)) if location is None else location.address


def local_path(address: Address) -> Path:
    """Return the path of an address on the local disk, which may start with `file://`."""
    text = os.fspath(address)
    match = _ADDRESS.fullmatch(text)
    if match is None or match[1].lower() != "file":
        return Path(address)
    return Path("/" + match[2].lstrip("/"))


def join(address: Address, *names: str) -> str:
    """Return the address of a file in a folder."""
    if is_remote(address):
        return "/".join([normalize(address).rstrip("/"), *names])
    return os.path.join(local_path(address), *names)


def list_files(address: Address, *, missing_ok: bool = False) -> list[str]:
    """Return the files that an address names, in sorted order: a file itself, all files below a folder, or a glob.

    A glob is `*` and `?` within a name and `**` for any number of folders. Files whose name, or a folder below the
    given one, starts with a dot or an underscore (`_SUCCESS`) are not part of a folder. Names are compared folder by
    folder, so a local folder and its copy on an object store have the same order. Raises InputError if there is none,
    unless `missing_ok`.
    """
    location = _location(address)
    found = _list_local(local_path(address)) if location is None else _list_remote(location)
    if not found and not missing_ok:
        what = "no file matches" if is_pattern(address) else "there is no file in"
        raise InputError(f"{what} {normalize(address)}; check the address")
    return sorted(found, key=lambda name: name.split("/"))


def open_input(address: Address) -> BinaryIO:
    """Open a file for reading bytes; it can seek. Raises InputError if it cannot be opened."""
    location = _location(address)
    if location is None:
        try:
            return cast("BinaryIO", open_file(local_path(address)))
        except OSError as error:
            raise InputError(f"{address} cannot be read: {error.strerror or error}") from None
    with _errors(location):
        file = _filesystem(location).open_input_file(location.path)
    return cast("BinaryIO", io.BufferedReader(RemoteFile(file, location), BUFFER))


def read_bytes(address: Address) -> bytes:
    """Return the content of a file."""
    with open_input(address) as file:
        return file.read()


def file_identity(address: Address) -> FileIdentity:
    """Return the identity of a file: it changes when the file is written again."""
    location = _location(address)
    if location is None:
        try:
            state = local_path(address).stat()
        except OSError as error:
            raise InputError(f"{address} cannot be read: {error.strerror or error}") from None
        return FileIdentity(state.st_size, str(state.st_mtime_ns))
    with _errors(location), _filesystem(location).open_input_file(location.path) as file:
        details = {key.decode() if isinstance(key, bytes) else key: value for key, value in file.metadata().items()}
        version = details.get("ETag") or details.get("etag") or details.get("Last-Modified") or b""
        return FileIdentity(file.size(), version.decode().strip('"'))


def exists(address: Address) -> bool:
    """Return whether there is a file or a folder at an address. An unreachable store is an error, not False."""
    location = _location(address)
    if location is None:
        return local_path(address).exists()
    return _kind(location) != "NotFound"


@contextmanager
def replace_object(address: Address) -> Iterator[Path]:
    """Yield a local path to write to; the file appears at the address when the block ends without an error.

    On a disk it is renamed, as by `replace_file`. To an object store it is uploaded when it is complete: nobody sees a
    part of it, and a failure leaves what was there before.
    """
    location = _location(address)
    if location is None:
        with replace_file(local_path(address)) as temporary:
            yield temporary
        return
    with tempfile.TemporaryDirectory(prefix="regard-upload-") as folder:
        temporary = Path(folder, "object" + Path(location.path).suffix)
        yield temporary
        upload(temporary, address)


def write_bytes(address: Address, data: bytes) -> None:
    """Write `data` to an address completely or not at all."""
    with replace_object(address) as path:
        path.write_bytes(data)


def fetch(address: Address, path: Path) -> None:
    """Copy a file of an object store to a local path, which exists in parts until it is complete."""
    location = _location(address)
    if location is None:
        raise InputError(f"{address} is not on an object store; there is nothing to fetch")
    _import_pyarrow(location.address)
    from pyarrow import fs

    with _errors(location):
        fs.copy_files(
            location.path, str(path), source_filesystem=_filesystem(location),
            destination_filesystem=fs.LocalFileSystem(), chunk_size=BUFFER,
        )  # fmt: skip


def upload(path: Path, address: Address) -> None:
    """Copy a local file to an object store, where it appears when it is complete."""
    location = _location(address)
    if location is None:
        raise InputError(f"{address} is not on an object store; copy local files yourself")
    _import_pyarrow(location.address)
    from pyarrow import fs

    if "/" not in location.path:
        raise InputError(f"{location.address} is a bucket, expected a file; add its name")
    store = _filesystem(location)
    # One call: a stream of pyarrow that is interrupted between two writes would complete a truncated object.
    with _errors(location):
        fs.copy_files(
            str(path), location.path, source_filesystem=fs.LocalFileSystem(), destination_filesystem=store,
            chunk_size=BUFFER,
        )  # fmt: skip
        size = store.get_file_info(location.path).size
    if size != path.stat().st_size:
        raise RegardError(f"{location.address}: {size} of {path.stat().st_size} bytes arrived; write it again")


def remove(address: Address) -> None:
    """Remove a file, or everything below a prefix of an object store; nothing happens if there is nothing."""
    location = _location(address)
    if location is None:
        try:
            return local_path(address).unlink(missing_ok=True)
        except OSError as error:
            raise RegardError(f"{address} cannot be deleted ({error.strerror or error}); delete it") from error
    if "/" not in location.path:
        raise InputError(f"{location.address} is a whole bucket; name a folder in it")
    kind = _kind(location)
    with _errors(location):
        if kind == "File":
            _filesystem(location).delete_file(location.path)
        elif kind == "Directory":
            _filesystem(location).delete_dir(location.path)


class RemoteFile(io.RawIOBase):
    """A file of pyarrow whose errors are RegardErrors: an OSError in a reader would be taken for a damaged file."""

    def __init__(self, file: Any, location: _Location) -> None:
        self._file, self._location = file, location

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        with _errors(self._location):
            return int(self._file.readinto(buffer))

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        with _errors(self._location):
            return int(self._file.seek(offset, whence))

    def size(self) -> int:
        """Return the size of the file in bytes."""
        return int(self._file.size())

    def close(self) -> None:
        if not self.closed:
            with contextlib.suppress(OSError):
                self._file.close()
        super().close()


def _location(address: Address) -> _Location | None:
    """Parse an address; None if it is local. Raises InputError if it is malformed."""
    match = _ADDRESS.fullmatch(os.fspath(address))
    if match is None or match[1].lower() == "file":
        return None
    scheme, rest = match[1].lower(), match[2].removeprefix("/")
    if scheme not in STORES:
        if os.path.exists(address):
            return None
        schemes = [f"{name}://" for name in (*STORES, "file")]
        raise InputError(f"{_without_user(address)}: unknown kind of address; {suggest(f'{scheme}://', schemes)}")
    bucket = rest.partition("/")[0]
    if "@" in bucket:
        raise InputError(
            f"{scheme}://... holds a user name or a key, which would end up in logs and manifests; set "
            f"{'AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY' if scheme == 's3' else 'GOOGLE_APPLICATION_CREDENTIALS'}"
        )
    if not re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9._-]{1,221}", bucket) or "//" in rest:
        raise InputError(
            f"{scheme}://{rest} is not an address of {STORES[scheme]}; expected {scheme}://BUCKET/FOLDER/FILE"
        )
    return _Location(scheme, rest.rstrip("/"))


def _without_user(address: Address) -> str:
    return re.sub(r"//[^/@]*@", "//...@", os.fspath(address))


def _filesystem(location: _Location) -> Any:
    _import_pyarrow(location.address)
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None
    anonymous = os.environ.get("AWS_SKIP_SIGNATURE", "").lower() in ("1", "true")
    user = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_PROFILE")
    if location.scheme == "gs":
        return _google()
    return _amazon(location.bucket if not endpoint and not region else "", endpoint, region, anonymous, user, _limits())


def _limits() -> tuple[float, float, int]:
    return CONNECT_SECONDS, REQUEST_SECONDS, ATTEMPTS


@lru_cache(maxsize=16)
def _amazon(
    bucket: str,
    endpoint: str | None,
    region: str | None,
    anonymous: bool,
    user: tuple[str | None, str | None],
    limits: tuple[float, float, int],
) -> Any:
    """The connection of these settings. `user` is part of the key only: pyarrow reads the environment itself."""
    from pyarrow import fs

    if region is None:
        region = "us-east-1" if endpoint else fs.resolve_s3_region(bucket)
    return fs.S3FileSystem(
        endpoint_override=endpoint,
        region=region,
        anonymous=anonymous,
        connect_timeout=limits[0],
        request_timeout=limits[1],
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=limits[2]),
    )


@lru_cache(maxsize=1)
def _google() -> Any:
    from pyarrow import fs

    return fs.GcsFileSystem(retry_time_limit=timedelta(seconds=REQUEST_SECONDS))


def _import_pyarrow(address: str) -> None:
    try:
        import pyarrow.fs  # noqa: F401
    except ImportError:
        raise InputError(f'{address} needs pyarrow, which is not installed: pip install "regard[data]"') from None


def _kind(location: _Location) -> str:
    with _errors(location):
        return str(_filesystem(location).get_file_info(location.path).type.name)


def _list_local(path: Path) -> list[str]:
    if path.is_file():
        return [os.fspath(path)]
    if path.is_dir():
        found = []
        for parent, folders, names in os.walk(path):
            folders[:] = filter(_is_visible, folders)
            found += [os.path.join(parent, name) for name in names if _is_visible(name)]
        return found
    if is_pattern(path):
        return [name for name in glob(os.fspath(path), recursive=True) if os.path.isfile(name)]
    raise InputError(f"there is no file or folder {path}; check the name")


def _list_remote(location: _Location) -> list[str]:
    from_key = len(location.path) + 1
    kind = _kind(location)
    if kind == "File":
        return [location.address]
    if kind == "Directory":
        inside = (name for name in _objects(location) if all(map(_is_visible, name[from_key:].split("/"))))
        return [f"{location.scheme}://{name}" for name in inside]
    if not is_pattern(location.path):
        raise _missing(location)
    parts = location.path.split("/")
    first = next(index for index, part in enumerate(parts) if is_pattern(part))
    base = location._replace(path="/".join(parts[:first]))
    matches = _glob_expression(parts).fullmatch
    found = _objects(base, recursive=first < len(parts) - 1 or parts[-1] == "**")
    return [f"{location.scheme}://{name}" for name in found if matches(name)]


def _objects(folder: _Location, *, recursive: bool = True) -> list[str]:
    from pyarrow import fs

    with _errors(folder):
        found = _filesystem(folder).get_file_info(fs.FileSelector(folder.path, recursive=recursive))
    return [info.path for info in found if info.type == fs.FileType.File]


def matches(pattern: Address, path: Address) -> bool:
    """Return whether a local path, or the record beside it, is one of the files of a glob."""
    expression = _glob_expression(os.path.abspath(local_path(pattern)).split(os.sep))
    written = os.path.abspath(local_path(path))
    return any(expression.fullmatch(name) for name in (written, f"{written}.regard.json"))


def _is_visible(name: str) -> bool:
    return not name.startswith((".", "_"))


def _glob_expression(parts: Sequence[str]) -> re.Pattern[str]:
    """Return the regular expression of a glob, given by its names."""
    expression = ""
    for part in parts[:-1]:
        expression += r"(?:(?!\.)[^/]+/)*" if part == "**" else _name_expression(part) + "/"
    last = r"(?:(?!\.)[^/]+/)*(?!\.)[^/]+" if parts[-1] == "**" else _name_expression(parts[-1])
    return re.compile(expression + last, re.DOTALL)


def _name_expression(part: str) -> str:
    """Return the regular expression of one name; as in a shell, a wildcard does not match a leading dot."""
    expression = r"(?!\.)" if part[:1] in ("*", "?", "[") else ""
    for token in re.findall(r"\[!?\]?[^\]]*\]|\*+|.", part, re.DOTALL):
        if token.startswith("*"):
            expression += "[^/]*"
        elif token == "?":
            expression += "[^/]"
        elif token.startswith("[") and len(token) > 2:
            inner = token[1:-1].replace("\\", "\\\\")
            expression += f"(?!/)[{'^' + inner[1:] if inner[0] == '!' else inner}]"
        else:
            expression += re.escape(token)
    return expression


def _missing(location: _Location) -> InputError:
    with _errors(location):
        kind = _filesystem(location).get_file_info(location.bucket).type.name
    if kind == "NotFound":
        return InputError(f"{location.address}: there is no bucket {location.bucket!r}{_at_endpoint(location)}")
    return InputError(f"there is no file or folder {location.address}; check the address")


def _at_endpoint(location: _Location) -> str:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return f" at {_without_user(endpoint)}" if endpoint and location.scheme == "s3" else ""


@contextmanager
def _errors(location: _Location) -> Iterator[None]:
    """Convert the errors of pyarrow to one line that says what to do. Its own text may hold keys, and is not used."""
    try:
        yield
    except FileNotFoundError:
        raise _missing(location) from None
    except OSError as error:
        raise _translated(location, error) from None
    except (ValueError, NotImplementedError) as error:  # ArrowInvalid: an endpoint that is no address
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise InputError(f"{location.address} cannot be used: {reason}") from None


def _translated(location: _Location, error: OSError) -> RegardError:
    text, address = str(error), location.address
    if isinstance(error, FileExistsError | IsADirectoryError | NotADirectoryError):
        return InputError(f"{address}: is a folder, expected a file, or the reverse; check the address")
    if re.search(r"NO_SUCH_BUCKET|[Bb]ucket '[^']*' not found", text):
        return InputError(f"{address}: there is no bucket {location.bucket!r}{_at_endpoint(location)}")
    if re.search(r"ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE|TOKEN|CREDENTIALS|PERMISSION_DENIED|UNAUTHENTICATED|"
                 r"HTTP Status 40[13]|OAuth2|INVALID_CLIENT", text):  # fmt: skip
        wanted = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE" if location.scheme == "s3" else (
            "GOOGLE_APPLICATION_CREDENTIALS"
        )  # fmt: skip
        return InputError(
            f"{address}: access denied{_at_endpoint(location)}: the credentials are missing, wrong, or not allowed to "
            f"do this; set {wanted}"
        )
    if re.search(r"NETWORK_CONNECTION|curlCode|UNAVAILABLE|REQUEST_TIMEOUT|Could not resolve|DEADLINE", text):
        return RegardError(
            f"{address}: {STORES[location.scheme]} cannot be reached{_at_endpoint(location)} (tried {ATTEMPTS} times); "
            "check the network and AWS_ENDPOINT_URL, then run it again"
        )
    code = re.search(r"AWS Error ([A-Z_]+)", text)
    reason = code[1] if code else (error.strerror or text).splitlines()[0][:120]
    return RegardError(f"{address}: the store answered with an error ({reason}); run it again")
