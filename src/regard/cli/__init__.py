"""The command line. Importing it and printing help pages imports neither torch nor any model."""

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
        from regard.engine.memory import limit_kernel_cache

        limit_kernel_cache()
        sys.exit(run(sys.argv[1:]))
