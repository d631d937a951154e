"""API keys: read from a file, one per line, and compared in constant time; and when a server needs them."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from regard.errors import InputError

MIN_CHARACTERS = 16
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class ApiKeys:
    """Keys of which only hashes are kept."""

    def __init__(self, keys: Sequence[str]) -> None:
        if not all(keys):
            raise ValueError("a key is empty; expected one made by generate_token(), or those of a file")
        self._digests = [_digest(key) for key in keys]

    def __len__(self) -> int:
        return len(self._digests)

    def find(self, given: str) -> int | None:
        """The number of a key, from 0, or None. Takes the same time for every key and for none."""
        digest, found = _digest(given), None
        for number, known in enumerate(self._digests):
            if hmac.compare_digest(digest, known):
                found = number
        return found


def read_api_keys(path: str | os.PathLike[str]) -> ApiKeys:
    """The keys of a file, one per line; blank lines and lines that begin with # are skipped."""
    file = Path(os.path.expanduser(path))
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}; --api-key-file expects a file with one key per line") from None
    except UnicodeDecodeError:
        raise InputError(f"{file} is not text; --api-key-file expects a file with one key per line") from None
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not keys:
        raise InputError(f"{file} has no key; write one per line, for example with: openssl rand -hex 24 > {file}")
    for number, line in enumerate(lines, start=1):
        key = line.strip()
        if key and not key.startswith("#") and (len(key) < MIN_CHARACTERS or not key.isascii() or " " in key):
            raise InputError(
                f"{file}, line {number}: a key needs at least {MIN_CHARACTERS} ASCII characters without spaces; make "
                "one with: openssl rand -hex 24"
            )
    return ApiKeys(keys)


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach a server at this host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, key_file: str | None, *, command: str) -> None:
    """InputError for a server that others could reach, and use, without a key."""
    if key_file is None and not is_loopback(host):
        raise InputError(
            f"--host {host} lets anyone who can reach this machine's port use the models; give a file with keys: "
            f"regard {command} --host {host} --api-key-file FILE (one key per line)"
        )


def accepted_hosts(host: str) -> list[str]:
    """The Host headers that a server answers: other names for its address are refused (DNS rebinding). A server on all
    addresses cannot know its names; there the key protects it."""
    if host in ("0.0.0.0", "::"):
        return ["*"]
    return list(dict.fromkeys([host, *LOOPBACK]))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
