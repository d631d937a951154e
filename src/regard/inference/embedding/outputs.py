"""Writes blocks to a .npy, .npz or Parquet file, in constant memory; the file appears once it is complete."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from regard.errors import InputError
from regard.inference.bulk.parts import expect_rows, import_pyarrow
from regard.inference.bulk.shards import Column, Reader, unpack_json

SUFFIXES = (".npy", ".npz", ".parquet")


def check_pooling(path: Path, pooling: str) -> None:
    if pooling == "none" and path.suffix == ".npy":
        raise InputError(f"{path}: pooling none gives each text as many vectors as it has tokens; use .npz or .parquet")


@dataclass(frozen=True)
class WriteVectors:
    """Writes the vectors of all texts, or of one shard, to a file; `tokens`: a text has one for each token."""

    width: int
    tokens: bool

    def __call__(self, path: Path, blocks: Reader, rows: int, metadata: Mapping[bytes, bytes] | None = None, /) -> None:
        if path.suffix == ".parquet":
            self._parquet(path, blocks, rows, metadata)
        elif path.suffix == ".npz":
            self._npz(path, blocks, rows)
        else:
            with path.open("wb") as file:
                _stream(file, (block["vectors"] for block in blocks("vectors")), "<f4", (rows, self.width))

    def _npz(self, path: Path, blocks: Reader, rows: int) -> None:
        """`lines` and `vectors`; of tokens `starts` (rows + 1: where a row's tokens begin), `offsets` and `words`."""
        count = rows
        with zipfile.ZipFile(path, "w") as archive:

            def member(name: str, columns: Iterable[Column], kind: str, *shape: int) -> None:
                # A ZipInfo of our own has no date in it: the same input gives the same bytes.
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                    _stream(file, columns, kind, shape)

            def column(name: str) -> Iterator[Column]:
                return (block[name] for block in blocks(name))

            member("lines", column("lines"), "<i8", rows)
            if self.tokens:
                count = sum(int(lengths.sum()) for lengths in column("lengths"))
                member("starts", _starts(column("lengths")), "<i8", rows + 1)
                member("offsets", column("offsets"), "<i4", count, 2)
                member("words", column("words"), "<i4", count)
            member("vectors", column("vectors"), "<f4", count, self.width)

    def _parquet(self, path: Path, blocks: Reader, rows: int, metadata: Mapping[bytes, bytes] | None) -> None:
        """A row group a block. Columns: line, vector; of tokens: line, tokens, starts, ends, words, vectors."""
        pa, parquet = import_pyarrow()
        vector = pa.list_(pa.float32(), self.width)
        fields = [("line", pa.int64()), ("vector", vector)]
        if self.tokens:
            numbers = [(name, pa.list_(pa.int32())) for name in ("starts", "ends", "words")]
            fields = [("line", pa.int64()), ("tokens", pa.list_(pa.string())), *numbers, ("vectors", pa.list_(vector))]
        schema, names = pa.schema(fields, metadata), ("lengths", "tokens", "offsets", "words") if self.tokens else ()
        # Vectors hardly ever repeat, so a dictionary of them would only cost time.
        count = 0
        checksums = metadata is not None
        with parquet.ParquetWriter(path, schema, use_dictionary=False, write_page_checksum=checksums) as file:
            for block in blocks("lines", "missing", "vectors", *names):
                flat = pa.array(np.ascontiguousarray(block["vectors"], dtype=np.float32).reshape(-1))
                mask = None if self.tokens else pa.array(block["missing"])
                columns = [pa.FixedSizeListArray.from_arrays(flat, self.width, mask=mask)]
                if self.tokens:
                    ends = pa.array(np.concatenate([[0], np.cumsum(block["lengths"])]).astype(np.int32))
                    offsets = np.ascontiguousarray(block["offsets"].T, dtype=np.int32)
                    parts = [pa.array(unpack_json(block["tokens"]), pa.string()), *map(pa.array, offsets)]
                    parts += [pa.array(block["words"].astype(np.int32)), *columns]
                    columns = [pa.ListArray.from_arrays(ends, part) for part in parts]
                lines = pa.array(block["lines"], pa.int64())
                file.write_batch(pa.RecordBatch.from_arrays([lines, *columns], schema=schema))
                count += len(lines)
        expect_rows(rows, count)


def _starts(lengths: Iterable[Column]) -> Iterator[Column]:
    end = 0
    yield np.zeros(1, dtype=np.int64)
    for some in lengths:
        ends = end + np.cumsum(some, dtype=np.int64)
        end = int(ends[-1])
        yield ends


def _stream(file: IO[bytes], columns: Iterable[Column], kind: str, shape: tuple[int, ...]) -> None:
    """An array in numpy's format whose rows come in parts."""
    header = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    count = 0
    for column in columns:
        count += len(column)
        file.write(np.ascontiguousarray(column, dtype=kind).tobytes())
    expect_rows(shape[0], count)
