"""The log of a run: a file to which each event adds one line of JSON.

Knows files and JSON. Knows nothing of what the events mean.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

__all__ = ["Events"]


class Events:
    """Adds lines to `path`. A line that a crash cut short is ended before the next one."""

    def __init__(self, path: Path) -> None:
        whole = not path.exists() or not path.stat().st_size or path.read_bytes()[-1:] == b"\n"
        self._file = path.open("a", encoding="utf-8")
        if not whole:
            self._file.write("\n")

    def add(self, event: str, **values: object) -> dict[str, object]:
        """Write what happened, with the time; returns what was written."""
        line: dict[str, object] = {"event": event, "time": round(time.time(), 3), **values}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        return line

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what is left; safe to repeat."""
        self._file.close()
