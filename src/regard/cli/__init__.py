"""The command line: each verb parses, calls one function of the library and prints; no logic lives here.

Knows typer and the terminal. Importing it, and asking for help, imports neither torch nor the library's models.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # importing `typing` takes as long as what comes before the signal handlers are set
if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """The program `regard`, the same as `python -m regard`."""
    try:
        from regard.cli.signals import exiting
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    with exiting():
        from regard.cli.app import run

        sys.exit(run(sys.argv[1:]))
