"""Tests an untrusted tokenizer.json in a separate process before the library parses it in this one.

The `tokenizers` library assumes benign files: a single number can make it allocate memory without bound, which aborts
the process, and no `except` can catch that. Built-in files and files that this process wrote are not tested, and the
same content is tested only once.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from regard.errors import InputError, RegardError
from regard.known import is_builtin

MEMORY = 1 << 30  # bytes of address space for the process, in addition to
MEMORY_RATIO = 50  # times the size of the file
SECONDS = 10  # CPU time limit, plus one second per megabyte
WAIT = 60.0  # wall-clock limit in seconds, plus one second per megabyte
PROGRAM = Path(__file__).with_name("guard_process.py")

_tested: set[bytes] = set()


def check_tokenizer_file(text: str, path: Path) -> None:
    """Raise InputError if a setting is out of bounds, or if parsing and first use exceed their limits.

    A file that the library rejects with an ordinary error passes: the library raises the same error in this process.
    """
    if is_builtin(path):
        return
    data = text.encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(data).digest()
    if digest in _tested:
        return
    if reason := _test_in_process(data):
        raise InputError(f"{path} cannot be used: {reason}; fetch or save it again from a source you trust")
    _tested.add(digest)


def trust_tokenizer_file(data: bytes) -> None:
    """Mark content as safe: it was written from a tokenizer that is in use in this process."""
    _tested.add(hashlib.sha256(data).digest())


def run_limited(
    program: Path, limits: Mapping[str, object], data: bytes, *, wait: float, what: str
) -> subprocess.CompletedProcess[bytes] | None:
    """Run a program on untrusted content; None if it takes more than `wait` seconds. `what` begins an error.

    The program sets its own limits, imports nothing of Regard, and other packages from the same location as this
    process.
    """
    limits = {**limits, "path": [entry for entry in sys.path if os.path.isabs(entry)]}
    try:
        return subprocess.run(
            [sys.executable, "-I", "-S", str(program), json.dumps(limits)],
            input=data,
            capture_output=True,
            timeout=wait,
            env={**os.environ, "TOKENIZERS_PARALLELISM": "false", "RUST_BACKTRACE": "0"},
        )
    except subprocess.TimeoutExpired:
        return None
    except OSError as error:
        raise RegardError(
            f"{what} in a separate process, which could not be started ({error.strerror or error}); end other "
            "processes or give this one more memory"
        ) from error


def _test_in_process(data: bytes) -> str | None:
    """The reason to reject the content, or None."""
    megabytes = len(data) >> 20
    memory, seconds, wait = MEMORY + MEMORY_RATIO * len(data), SECONDS + megabytes, WAIT + megabytes
    limits = {"memory": memory, "seconds": seconds}
    process = run_limited(PROGRAM, limits, data, wait=wait, what="an untrusted tokenizer.json is tested")
    if process is None:
        return f"parsing and first use took more than {wait:.0f} seconds"
    with suppress(ValueError, KeyError, TypeError):  # it did not finish
        return str(json.loads(process.stdout)["wrong"]) or None
    messages = process.stderr.decode("utf-8", "replace").strip().splitlines()
    if process.returncode == -24 or process.returncode == 152:  # SIGXCPU
        return f"parsing and first use took more than {seconds} seconds of CPU time"
    if any("memory" in line.lower() for line in messages):
        return f"parsing and first use need more than {memory >> 20:,} MiB of memory"
    return f"parsing and first use ended a process ({process.returncode}: {messages[-1] if messages else 'no message'})"
