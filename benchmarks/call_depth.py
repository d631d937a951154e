"""How deep a command is when the first attention is computed: what a reader passes through to understand it.

    python -m benchmarks.call_depth [--verbose] [--save]

Counts the frames of Regard's files on the stack, from the command's main function to the first method of `Attention`
that is called, and how often the file changes from one frame to the next. Frames of libraries do not count. An
inference copy calls no `Attention.forward`; the method that it calls instead counts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import regard
from benchmarks.timing import save_results
from regard import cli
from regard.nn.attention import Attention

SOURCES = Path(regard.__file__).parent
LIMITS = {"train": (18, 11), "embed": (15, 9)}  # frames, and changes of the file
METHODS = ("forward", "attend_packed", "attend_padded")
Frame = tuple[str, str]  # the file and the function


class Reached(BaseException):
    """The first attention is computed: the rest of the command is not needed."""


def own_frames(frame: FrameType | None) -> list[Frame]:
    """The frames of Regard's files, outermost first."""
    found = []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(SOURCES):
            found.append((path.relative_to(SOURCES).as_posix(), frame.f_code.co_qualname))
        frame = frame.f_back
    return found[::-1]


def switches(stack: Sequence[Frame]) -> int:
    """How often the file changes."""
    return sum(before[0] != after[0] for before, after in pairwise(stack))


@contextmanager
def first_attention() -> Iterator[list[Frame]]:
    """A list that gets the stack of the first attention in the block, which ends there with `Reached`."""
    found: list[Frame] = []
    file = Path(sys.modules[Attention.__module__].__file__ or "").relative_to(SOURCES).as_posix()

    def method(name: str) -> Any:
        def reach(attention: Attention, *args: object, **options: object) -> None:
            found[:] = found or [*own_frames(sys._getframe(1)), (file, f"Attention.{name}")]
            raise Reached

        return reach

    with ExitStack() as stack:
        for name in METHODS:
            stack.enter_context(patch.object(Attention, name, method(name)))
        yield found


def measure(arguments: Sequence[str]) -> list[Frame]:
    """The stack of a command at the first attention."""
    with (
        patch.object(sys, "argv", ["regard", *arguments]),
        redirect_stdout(StringIO()),
        redirect_stderr(StringIO()) as errors,
        first_attention() as stack,
        suppress(Reached, SystemExit),
    ):
        cli.main()
    if not stack:
        raise SystemExit(f"{arguments[0]} ended before the first attention: {errors.getvalue()}")
    return stack


def commands(folder: Path) -> dict[str, list[str]]:
    """The commands by name; their input is written to a folder."""
    rows = [f"{'a fine day' if number % 2 else 'a dull day'} {number}\t{number % 2}" for number in range(40)]
    data = folder / "rows.tsv"
    data.write_text("text\tlabel\n" + "\n".join(rows) + "\n", encoding="utf-8")
    (folder / "texts.txt").write_text("a fine day\na dull day\n", encoding="utf-8")
    tuning = ["train", "classify", "--train", str(data), "--model", "regard-bert", "--device", "cpu"]
    return {
        "train": [*tuning, "--output", str(folder / "run")],
        "embed": ["embed", str(folder / "texts.txt"), "--output", str(folder / "vectors.npy"), "--device", "cpu"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbose", action="store_true", help="print the frames")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/call_depth.json")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments in commands(Path(folder)).items():
            stack = measure(arguments)
            frames, files = LIMITS[name]
            changes = switches(stack)
            results[name] = {"frames": len(stack), "file_changes": changes, "stack": [" ".join(one) for one in stack]}
            print(f"{name}: {len(stack)} frames (at most {frames}), {changes} changes of file (at most {files})")
            for file, function in stack if options.verbose else ():
                print(f"    {file:<48} {function}")
    if options.save:
        print(save_results("call_depth", {"commands": results}))


if __name__ == "__main__":
    main()
