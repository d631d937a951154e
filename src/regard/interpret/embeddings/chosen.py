"""Which of too many texts are looked at, and how lines of text that somebody typed are read.

Knows lines, labels and seeds. Knows no model. A view of thousands of texts would neither be computed soon nor be
readable, so some are drawn by lot: the same seed draws the same, and they stay in their order.
"""

from __future__ import annotations

import random
import shlex
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from regard.data.examples import TextExample
from regard.data.readers import read_text_examples
from regard.errors import InputError

__all__ = ["chosen", "drawn", "left_out", "piped", "read_typed"]

PIPED = 12  # lines that still make a command somebody would paste


def drawn(count: int, limit: int, seed: int = 0) -> list[int]:
    """Places of at most `limit` of `count` things, in their order."""
    if limit < 1:
        raise InputError(f"the limit is {limit}; expected 1 or more texts to look at")
    return list(range(count)) if count <= limit else sorted(random.Random(seed).sample(range(count), limit))


def chosen(texts: Sequence[str], limit: int, seed: int = 0) -> list[str]:
    """At most `limit` of the texts."""
    return [texts[place] for place in drawn(len(texts), limit, seed)]


def left_out(total: int, used: int, seed: int) -> list[str]:
    """What to tell where some were left out."""
    if used >= total:
        return []
    return [f"{used:,} of {total:,} texts were drawn by lot (seed {seed}); {total - used:,} are left out"]


def read_typed(lines: str) -> list[TextExample]:
    """Texts one a line, as a file would hold them: a label may stand behind a tab or behind the last | of each line.

    The content of a TSV, CSV or JSON-lines file is read as `regard train` reads that file.
    """
    rows = [line for line in lines.replace("\r\n", "\n").split("\n") if line.strip()]
    if not rows:
        raise InputError("there are no sentences; type one a line")
    if all("|" in row for row in rows) and not any("\t" in row for row in rows):
        parts = [row.rpartition("|") for row in rows]
        return [
            TextExample(text.strip(), label=_label(label, number)) for number, (text, _, label) in enumerate(parts, 1)
        ]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "typed.txt"  # a name that says nothing: the reader looks at the content
        path.write_bytes("\n".join(rows).encode("utf-8", "replace"))
        try:
            return read_text_examples(path, task="classify").examples
        except InputError as error:
            raise InputError(str(error).replace(f"{path} ", "").replace(str(path), "what was typed")) from None


def _label(written: str, number: int) -> str:
    if not written.strip():
        raise InputError(f"line {number} has no label behind its |; give every line one, or none")
    return written.strip()


def piped(texts: Sequence[str], labels: Sequence[str] | None) -> str | None:
    """The beginning of a command line that gives these texts to a verb; None where they are too many for one."""
    if len(texts) > PIPED or any("\n" in text or "\t" in text for text in texts):
        return None
    rows = texts if labels is None else [f"{text}\t{label}" for text, label in zip(texts, labels, strict=True)]
    return f"printf '%s\\n' {' '.join(map(_quoted, rows))} |"


def _quoted(row: str) -> str:
    """For a shell; a tab is spelled, since none would see or keep it."""
    if "\t" not in row:
        return shlex.quote(row)
    escaped = row.replace("\\", "\\\\").replace("'", "\\'").replace("\t", "\\t")
    return f"$'{escaped}'"
