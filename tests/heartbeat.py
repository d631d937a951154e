"""What a command in another process prints when it is slow."""

from __future__ import annotations

import re

# As `regard.cli.output.Heartbeat` prints it.
LINE = re.compile(r"^running, [^\n]* so far(, after: [^\n]*)?\n", re.MULTILINE)


def without_heartbeat(printed: str) -> str:
    """What was printed, without the lines that say only that a job still runs: a busy machine has them, others not."""
    return LINE.sub("", printed)
