"""The job: check everything, embed the input shard by shard, put the shards together.

Knows the order of the work. Prints nothing: the caller is told of progress.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from regard.checkpoints.loading import find_folder
from regard.errors import InputError
from regard.inference.embedding import finished, outputs
from regard.inference.embedding.embedder import load_engine
from regard.inference.embedding.engine import EmbeddingEngine, LongTexts
from regard.inference.embedding.groups import blocks, check
from regard.inference.embedding.manifest import manifest
from regard.inference.embedding.shards import ShardFolder, locked_shard_folder
from regard.inference.embedding.texts import BlankLines, InputChanged, InputTexts, scan_texts
from regard.known import DEFAULT_MODEL

__all__ = ["SHARD_SIZE", "EmbedProgress", "EmbedResult", "embed_file", "partial_folder"]

SHARD_SIZE = 4096


@dataclass(frozen=True)
class EmbedProgress:
    """`done` of `rows` texts are embedded, `resumed` of them by an earlier run."""

    done: int
    rows: int
    resumed: int


@dataclass(frozen=True)
class EmbedResult:
    """What was done: `cut` texts lost their end, `windowed` ones came in pieces, `blank` ones are zeros or skipped.

    `limit` is the most tokens that a text could have. `seconds` are those of embedding and writing: loading the model
    and checking the input come before. `already_done`: an earlier run had written all of it, and nothing was embedded.
    """

    output: Path
    rows: int
    width: int
    pooling: str
    max_length: int | None
    cut: int
    windowed: int
    blank: int
    resumed: int
    seconds: float
    already_done: bool = False

    @property
    def texts_per_second(self) -> float:
        return (self.rows - self.resumed) / max(self.seconds, 1e-9)


def embed_file(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    model: str | os.PathLike[str] = DEFAULT_MODEL,
    layers: int | str = -1,
    pooling: str | None = None,
    normalize: bool = False,
    max_length: int | None = None,
    column: str | int | None = None,
    long: LongTexts = "cut",
    blank: BlankLines = "error",
    device: str = "auto",
    shard_size: int = SHARD_SIZE,
    restart: bool = False,
    on_progress: Callable[[EmbedProgress], None] = lambda progress: None,
    on_damaged: Callable[[str], None] = lambda problem: None,
) -> EmbedResult:
    """Embed the texts of a file, one a line or one column of it, into a .npy, .npz or .parquet file.

    What can be wrong with the input or the settings is found before the long work. Finished shards of `shard_size`
    texts lie in `output` + ".partial" until the end: after a crash the same call goes on behind them, and a call with
    other settings is refused unless `restart` throws them away. Standard input (`-`) cannot be continued.

    The finished run leaves a record of itself in `output` + ".regard.json": the same call again finds `output` intact
    and embeds nothing, unless `restart`. Damage that is found, and made good by embedding again, is described to
    `on_damaged`.
    """
    output = Path(output)
    if shard_size < 1:
        raise InputError(f"shard_size is {shard_size}; expected a number of texts, at least 1")
    outputs.check(output)
    with tempfile.TemporaryFile("w+", encoding="utf-8", dir=output.parent) as spool:
        texts = scan_texts(source, column=column, blank=blank, spool=spool)
        folder = find_folder(model)
        ready = load_engine(
            folder,
            layers=layers,
            pooling=pooling,
            normalize=normalize,
            max_length=max_length,
            long=long,
            device=device,
        )
        outputs.check_pooling(output, ready.pooling)
        if long == "error":
            check(ready, iter(texts), texts.name)
        settings = {
            "layers": str(layers),
            "pooling": ready.pooling,
            "normalize": normalize,
            "max_length": ready.max_length,
            "column": None if column is None else str(column),
            "long": long,
            "blank": blank,
            "shard_size": shard_size,
        }
        record = manifest(texts=texts.digest, model=folder, continuable=texts.rereadable, settings=settings)
        with locked_shard_folder(partial_folder(output), record, restart=restart) as partial:
            started = time.perf_counter()
            over = None if restart or not texts.rereadable else finished.read(output, record, on_damaged)
            already_done, resumed = over is not None, texts.rows
            if over is None:
                resumed = _embed(ready, texts, partial, shard_size, on_progress, on_damaged)
                over = sum(int(block["long"].sum()) for block in partial.blocks("long"))
                finished.remove(output)
                outputs.write(
                    output, partial.blocks, rows=texts.rows, width=ready.width, tokens=ready.pooling == "none"
                )
                if texts.rereadable:
                    finished.write(output, record, long=over)
            partial.clear()
    return EmbedResult(
        output=output,
        rows=texts.rows,
        width=ready.width,
        pooling=ready.pooling,
        max_length=ready.max_length,
        cut=over if long == "cut" else 0,
        windowed=over if long == "windows" else 0,
        blank=texts.blank,
        resumed=resumed,
        seconds=time.perf_counter() - started,
        already_done=already_done,
    )


def partial_folder(output: str | os.PathLike[str]) -> Path:
    """Where the finished shards of an output lie until it is written."""
    output = Path(output)
    return output.with_name(output.name + ".partial")


def _embed(
    ready: EmbeddingEngine,
    texts: InputTexts,
    partial: ShardFolder,
    size: int,
    tell: Callable[[EmbedProgress], None],
    on_damaged: Callable[[str], None],
) -> int:
    """Make the shards that are missing or damaged; returns how many rows were there already."""
    sizes = {number: min(size, texts.rows - number * size) for number in range(-(-texts.rows // size))}
    partial.remove_damaged(sizes, on_damaged)
    there = set(partial.finished())
    done = resumed = sum(rows for number, rows in sizes.items() if number in there)

    def count(more: int) -> None:
        tell(EmbedProgress(done + more, texts.rows, resumed))

    count(0)
    rows = iter(texts)
    try:
        for number in sizes:
            shard = islice(rows, size)
            if number in there:
                deque(shard, maxlen=0)
                continue
            partial.write(number, blocks(ready, shard, texts.name, count))
            done += sizes[number]
        next(rows, None)  # behind the last text, where a change of the input shows
    except InputChanged:
        partial.clear()
        raise
    return resumed
