"""Files of sparse vectors: JSON lines of tokens with their weights, arrays as scipy's, and Parquet.

The blocks of a job have `lengths` (n), `indices` (N) and `values` (N) instead of the `vectors` of dense ones.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.inference.bulk.parts import expect_rows, import_pyarrow, starts_of, stream_array
from regard.inference.bulk.shards import Block, Column, Reader
from regard.inference.embedding.sparse import SparseEngine, SparseVectors

SUFFIXES = (".jsonl", ".npz", ".parquet")
CHARACTERS = 1 << 17  # of texts in memory at once: a model that is not trained for it gives every token a weight
MAX_TOKENS = 24  # tokens of a text in the terminal


def sparse_block(engine: SparseEngine, texts: Sequence[str]) -> Iterator[int | Block]:
    """Encode texts, of which blank ones have no tokens: yields how many are finished, and then their block."""
    rows = np.full(len(texts), -1)
    present = [number for number, text in enumerate(texts) if text.strip()]
    rows[present] = np.arange(len(present))
    with closing(engine.encode_steps([texts[number] for number in present])) as steps:
        while True:
            try:
                yield next(steps)
            except StopIteration as end:
                found: SparseVectors = end.value.select(rows)
                break
    yield {"lengths": found.lengths, "indices": found.indices, "values": found.values}


def vectors_of(blocks: Sequence[Block], width: int) -> SparseVectors:
    """The rows of all blocks."""
    parts = []
    for block in blocks:
        starts = np.concatenate([[0], np.cumsum(block["lengths"])]).astype(np.int64)
        parts.append(SparseVectors(starts, block["indices"], block["values"], width))
    return SparseVectors.join(parts, width)


def by_weight(tokens: Sequence[str], indices: Column, values: Column) -> dict[str, float]:
    """The tokens of a text with their weights, the largest first."""
    order = np.lexsort((indices, -values))
    return {tokens[indices[position]]: float(f"{values[position]:.7g}") for position in order}


def weights_line(weights: Mapping[str, float]) -> str:
    """The tokens of a text on a line of the terminal."""
    listed = [f"{token} {weight:.3f}" for token, weight in list(weights.items())[:MAX_TOKENS]]
    more = [f"and {len(weights) - MAX_TOKENS:,} more"] if len(weights) > MAX_TOKENS else []
    return ", ".join(listed + more) or "no tokens"


@dataclass(frozen=True)
class WriteSparse:
    """Writes the sparse vectors of all texts, or of one shard; `tokens` are the names of the columns."""

    tokens: tuple[str, ...]

    def __call__(self, path: Path, blocks: Reader, rows: int, metadata: Mapping[bytes, bytes] | None = None, /) -> None:
        if path.suffix == ".parquet":
            self._parquet(path, blocks, rows, metadata)
        elif path.suffix == ".npz":
            self._npz(path, blocks, rows)
        else:
            self._jsonl(path, blocks, rows)

    def _jsonl(self, path: Path, blocks: Reader, rows: int) -> None:
        """A line per text: its line in the input, and its tokens with their weights; null for a row without a text."""
        count = 0
        with path.open("w", encoding="utf-8") as file:
            for block in blocks("lines", "missing", "lengths", "indices", "values"):
                vectors = vectors_of([block], len(self.tokens))
                for line, missing, row in zip(block["lines"], block["missing"], vectors, strict=True):
                    weights = None if missing else by_weight(self.tokens, *row)
                    file.write(json.dumps({"line": int(line), "weights": weights}, ensure_ascii=False) + "\n")
                    count += 1
        expect_rows(rows, count)

    def _npz(self, path: Path, blocks: Reader, rows: int) -> None:
        """The arrays of scipy.sparse.save_npz: format, shape, indptr, indices, data; and lines."""
        count = sum(int(block["lengths"].sum()) for block in blocks("lengths"))
        small: dict[str, Any] = {"format": np.array(b"csr"), "shape": np.array([rows, len(self.tokens)])}
        with zipfile.ZipFile(path, "w") as archive:
            for name, value in small.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w") as file:
                    np.lib.format.write_array(file, value, allow_pickle=False)
            columns = [("lines", "lines", "<i8", rows), ("indices", "indices", "<i4", count)]
            for name, column, kind, size in (*columns, ("data", "values", "<f4", count)):
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                    stream_array(file, (block[column] for block in blocks(column)), kind, (size,))
            with archive.open(zipfile.ZipInfo("indptr.npy"), "w", force_zip64=True) as file:
                stream_array(file, starts_of(block["lengths"] for block in blocks("lengths")), "<i8", (rows + 1,))

    def _parquet(self, path: Path, blocks: Reader, rows: int, metadata: Mapping[bytes, bytes] | None) -> None:
        """A row group a block. Columns: line, indices, tokens, weights; null for a row without a text."""
        pa, parquet = import_pyarrow()
        lists = [("indices", pa.int32()), ("tokens", pa.string()), ("weights", pa.float32())]
        schema = pa.schema([("line", pa.int64()), *((name, pa.list_(kind)) for name, kind in lists)], metadata)
        names, count = pa.array(self.tokens, pa.string()), 0
        with parquet.ParquetWriter(path, schema, write_page_checksum=metadata is not None) as file:
            for block in blocks("lines", "missing", "lengths", "indices", "values"):
                ends = np.concatenate([[0], np.cumsum(block["lengths"])]).astype(np.int32)
                offsets = pa.array(ends, mask=np.append(block["missing"], False))
                indices = pa.array(block["indices"].astype(np.int32))
                parts = [indices, names.take(indices), pa.array(block["values"].astype(np.float32))]
                columns = [pa.ListArray.from_arrays(offsets, part) for part in parts]
                file.write_batch(pa.RecordBatch.from_arrays([pa.array(block["lines"]), *columns], schema=schema))
                count += len(block["lines"])
        expect_rows(rows, count)
