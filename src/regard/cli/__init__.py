"""The command line: each verb parses, calls one function of the library and prints; no logic lives here.

Knows typer and the terminal. Importing it, and asking for help, imports neither torch nor the library's models.
"""

from __future__ import annotations

import sys
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """The program `regard`, the same as `python -m regard`."""
    try:
        from regard.cli.app import run
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run(sys.argv[1:]))
