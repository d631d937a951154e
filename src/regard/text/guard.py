"""Tries a tokenizer.json of unknown origin in a process of its own before the library reads it in ours.

A file that is part of Regard, or that this process wrote itself, is not tried, and the same content is tried once.

The library is written for files that are meant well: one number can make it allocate without end, which aborts the
process, and that no `except` catches.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from regard.errors import InputError, RegardError
from regard.known import is_builtin

__all__ = ["check_tokenizer_file", "trust_tokenizer_file"]

MEMORY = 1 << 30  # bytes of address space that the process may have,
MEMORY_RATIO = 50  # and so many times the size of the file more
SECONDS = 10  # of processor time, and one more for every megabyte
WAIT = 60.0  # seconds that we wait at most, and again one more for every megabyte
PROBE_REPEATS = 1  # how often each text is encoded
PROGRAM = Path(__file__).with_name("guard_process.py")

_tried: set[bytes] = set()


def check_tokenizer_file(text: str, path: Path) -> None:
    """InputError if the file asks for what no tokenizer needs, or parsing and first use go over their limits.

    A file that the library refuses in an orderly way passes: the library says the same here.
    """
    if is_builtin(path):
        return
    data = text.encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(data).digest()
    if digest in _tried:
        return
    if reason := _try(data):
        raise InputError(f"{path} cannot be used: {reason}; fetch or save it again from a source you trust")
    _tried.add(digest)


def trust_tokenizer_file(data: bytes) -> None:
    """Take this content for good: it was made from a tokenizer that is in use in this process."""
    _tried.add(hashlib.sha256(data).digest())


def _try(data: bytes) -> str | None:
    """What is wrong with the content, or None."""
    megabytes = len(data) >> 20
    limits = {
        "memory": MEMORY + MEMORY_RATIO * len(data),
        "seconds": SECONDS + megabytes,
        "repeats": PROBE_REPEATS,
        # The program imports `tokenizers` alone, from where we have it.
        "path": [entry for entry in sys.path if os.path.isabs(entry)],
    }
    wait = WAIT + megabytes
    command = [sys.executable, "-I", "-S", str(PROGRAM), json.dumps(limits)]
    try:
        done = subprocess.run(
            command,
            input=data,
            capture_output=True,
            timeout=wait,
            env={**os.environ, "TOKENIZERS_PARALLELISM": "false", "RUST_BACKTRACE": "0"},
        )
    except subprocess.TimeoutExpired:
        return f"parsing and first use took more than {wait:.0f} seconds"
    except OSError as error:
        raise RegardError(
            f"a tokenizer.json of unknown origin is tried in a process of its own, and none could be started "
            f"({error.strerror or error}); end other processes or give this one more memory"
        ) from error
    verdict = _verdict(done.stdout)
    if verdict is not None:
        return verdict or None
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    if done.returncode == -24 or done.returncode == 152:  # SIGXCPU
        return f"parsing and first use took more than {limits['seconds']} seconds of processor time"
    if any("memory" in line.lower() for line in said):
        return f"parsing and first use need more than {int(str(limits['memory'])) >> 20:,} MiB of memory"
    return f"parsing and first use ended a process ({done.returncode}: {said[-1] if said else 'no message'})"


def _verdict(output: bytes) -> str | None:
    """What the program found wrong, "" for nothing, None where it did not come to an end."""
    try:
        return str(json.loads(output)["wrong"])
    except (ValueError, KeyError, TypeError):
        return None
