"""Bulk embedding: a file of texts to a file of vectors, as a job of `regard.inference.bulk`.

Every block has `lines` (n) and `long` (1: the number of texts that did not fit), and either `vectors` (n, W) or, for
tokens, `lengths` (n), `vectors` (N, W), `offsets` (N, 2), `words` (N) and `tokens` (strings as bytes of JSON).
"""

from __future__ import annotations

import os
import tempfile
import time
import zipfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, computed_field

from regard.checkpoints.loaded_model import LoadedModel
from regard.data.batch import CHARACTERS, group_by_size
from regard.data.files import is_rereadable
from regard.data.readers import TableOptions
from regard.data.rows import RowReader, open_rows
from regard.data.text_inputs import DataFrameSource
from regard.errors import InputError, check_choice
from regard.events import Event, Note
from regard.inference.bulk.job import SHARD_SIZE, BulkProgress, InputRows, Job, scan_rows, spool_folder
from regard.inference.bulk.parts import check_output, expect_rows, import_pyarrow, starts_of, stream_array
from regard.inference.bulk.ray_engine import RayCluster
from regard.inference.bulk.shards import Block, Column, Reader, pack_json, unpack_json
from regard.inference.bulk.workers import Compute, ModelFiles
from regard.inference.embedding.engine import EmbeddingEngine, LongTexts, TextError, describe_missing_head, load_engine
from regard.inference.embedding.sentence_transformers import SentenceSettings, Task
from regard.inference.embedding.sparse import SparseEngine, SparseVectors
from regard.inference.embedding.sparse_files import CHARACTERS as SPARSE_CHARACTERS
from regard.inference.embedding.sparse_files import SUFFIXES as SPARSE_SUFFIXES
from regard.inference.embedding.sparse_files import WriteSparse, by_weight, sparse_block, vectors_of, weights_line
from regard.render.result import Result
from regard.wording import count_of

NumberedText = tuple[int, str]  # line number from 1, and the text
# In memory at once: floats of token vectors, if every character were a token.
FLOATS = 1 << 26
SAMPLED_ROWS = 256  # on which precision auto is decided
DISTANCES = {"euclidean": 2.0, "manhattan": 1.0}
SUFFIXES = (".npy", ".npz", ".parquet")
EmbeddingKind = Literal["dense", "sparse"]
Source = str | os.PathLike[str] | Sequence[str | None] | DataFrameSource


class EmbedResult(Result):
    """`cut` texts were truncated, `windowed` ones were embedded in windows, `missing` ones are zeros or skipped.

    `prompt` was put before every text. `max_length` is the limit in tokens. `seconds` cover embedding and writing, not
    loading the model and checking the input. `already_done`: an earlier run had written the output, and nothing was
    embedded. Without an output file, `vectors` holds the embeddings, and `numpy.asarray(result)` is the same array.
    """

    output: Path | str | None
    rows: int
    width: int
    model: str
    layers: str
    pooling: str
    prompt: str = ""
    cut: int
    windowed: int
    missing: int
    resumed: int
    seconds: float
    max_length: int | None = Field(None, exclude=True)
    already_done: bool = Field(False, exclude=True)
    kind: EmbeddingKind = "dense"
    _vectors: NDArray[np.float32] | None = None
    _sparse: SparseVectors | None = None
    _tokens: tuple[str, ...] = ()  # the names of the columns of sparse vectors
    _settings: SentenceSettings = SentenceSettings()
    _normalize: bool = False
    _empty: frozenset[int] = frozenset()  # rows of `vectors` without a text
    _missing_note: str | None = None
    _head_note: str | None = None

    @property
    def vectors(self) -> NDArray[np.float32]:
        """The embeddings, one row per text; InputError if they were written to a file."""
        if self._sparse is not None:
            raise InputError("these are sparse vectors: result.sparse has them, and result.sparse.toarray() an array")
        if self._vectors is None:
            raise InputError(f"the vectors are in {self.output}; read them with numpy.load, or pandas if it is Parquet")
        return self._vectors

    @property
    def sparse(self) -> SparseVectors:
        """The sparse vectors, one row per text; InputError if they were written to a file, or are dense."""
        if self._sparse is None:
            where = "dense: kind='sparse' gives sparse ones" if self.kind == "dense" else f"in {self.output}"
            raise InputError(f"the vectors are {where}")
        return self._sparse

    @property
    def weights(self) -> list[dict[str, float]]:
        """The tokens of each text with their weights, the largest first."""
        return [by_weight(self._tokens, *row) for row in self.sparse]

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self.width

    def __len__(self) -> int:
        return self.rows

    def __iter__(self) -> Iterator[NDArray[np.float32]]:  # type: ignore[override]
        return iter(self.vectors)

    def __getitem__(self, row: Any) -> Any:
        return self.vectors[row]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.vectors, dtype=dtype) if copy else np.asarray(self.vectors, dtype=dtype)

    def similarity(self, other: EmbedResult | None = None) -> NDArray[np.float32]:
        """How similar every text is to every other one, or to every text of another result; NaN without a text.

        By the cosine, or what the model's sentence-transformers folder states: the inner product, or the negative
        Euclidean or Manhattan distance.
        """
        other = self if other is None else other
        if not isinstance(other, EmbedResult):
            raise InputError("expected vectors: result.similarity(regard.embed(texts))")
        for name in ("model", "layers", "pooling", "width"):
            if getattr(self, name) != getattr(other, name):
                raise InputError(
                    f"these are other vectors: {name} {getattr(self, name)} and {getattr(other, name)}; embed both "
                    "with the same model and options"
                )
        ours, theirs = self._comparable_vectors(), other._comparable_vectors()
        if self._settings.similarity in DISTANCES:
            found = -torch.cdist(
                torch.from_numpy(ours), torch.from_numpy(theirs), p=DISTANCES[self._settings.similarity]
            )
            return found.numpy()
        product: NDArray[np.float32] = ours @ theirs.T
        return product

    def _comparable_vectors(self) -> NDArray[np.float32]:
        """The vectors, of length 1 if they are compared by the cosine; NaN without a text."""
        lengths = np.sqrt(np.square(self.vectors).sum(axis=1, keepdims=True))
        lengths[lengths == 0] = np.nan
        if self._settings.similarity != "cosine":
            lengths[~np.isnan(lengths)] = 1
        unit: NDArray[np.float32] = self.vectors / lengths
        return unit

    @computed_field  # type: ignore[prop-decorator]
    @property
    def texts_per_second(self) -> float:
        return (self.rows - self.resumed) / max(self.seconds, 1e-9)

    def to_dict(self) -> dict[str, Any]:
        notes = [] if self._head_note is None else [self._head_note]
        document = {**super().to_dict(), "notes": [*notes, *self.notes()]}
        if self._sparse is not None:
            rows = [None if row in self._empty else weights for row, weights in enumerate(self.weights)]
            return {**document, "vectors": rows}
        if self._vectors is None:
            return document
        vectors = [None if row in self._empty else vector for row, vector in enumerate(self.vectors.tolist())]
        return {**document, "vectors": vectors}

    def to_text(self) -> str:
        if self._sparse is not None:
            return "\n".join(weights_line(weights) for weights in self.weights)
        if self._vectors is not None:
            return "\n".join("\t".join(f"{value:.6g}" for value in row) for row in self._vectors)
        return f"{self.output}: {count_of(self.rows, 'text')}, {self.width} wide, pooling {self.pooling}"

    def notes(self) -> list[str]:
        """What happened to texts that are too long or missing."""
        notes = []
        if self.already_done:
            notes.append(
                f"{self.output} is finished and intact: nothing was embedded; --restart embeds all texts again"
            )
        long = f"of {self.rows:,} texts had more than {self.max_length} tokens and were"
        if self.cut:
            remedy = "" if self.kind == "sparse" else "; --long windows embeds all of them"
            notes.append(f"{self.cut:,} {long} cut{remedy}")
        if self.windowed:
            notes.append(f"{self.windowed:,} {long} embedded in windows")
        if self._missing_note is not None:
            notes.append(self._missing_note)
        return notes


def embed_events(
    source: Source,
    output: str | os.PathLike[str] | None,
    load: Callable[[], LoadedModel],
    *,
    layers: int | str = -1,
    pooling: str | None = None,
    normalize: bool | None = None,
    max_length: int | None = None,
    prompt: str | None = None,
    prompt_name: str | None = None,
    task: Task | None = None,
    table: TableOptions | None = None,
    long: LongTexts = "cut",
    kind: EmbeddingKind = "dense",
    max_active_dims: int | None = None,
    precision: str | None = None,
    shard_size: int = SHARD_SIZE,
    restart: bool = False,
    force: bool = False,
    devices: Sequence[str] | None = None,
    cluster: RayCluster | None = None,
) -> Generator[Event, None, EmbedResult]:
    """Embed the texts of a list, a DataFrame or files into a .npy, .npz or .parquet file; `table`: how to read them.

    An output without a suffix, or on an object store, is a folder of Parquet files, one for each shard. Without an
    output the vectors are returned in memory. A row without a text keeps its place with a vector of zeros (null in
    Parquet), unless `table` skips or refuses it. `load` is called after the input was checked. `Job` explains the other
    options. Standard input (`-`) cannot be continued.
    """
    target = None if output is None else Path(output)
    if shard_size < 1:
        raise InputError(f"shard_size is {shard_size}; expected a number of texts, at least 1")
    if target is not None:
        check_output(target, SPARSE_SUFFIXES if kind == "sparse" else SUFFIXES, force=force)
    options = _options(
        kind,
        {"layers": layers, "pooling": pooling, "normalize": normalize},
        {"max_active_dims": max_active_dims},
    )
    options |= {"max_length": max_length, "long": long, "prompt": prompt, "prompt_name": prompt_name, "task": task}
    with tempfile.TemporaryFile("w+", encoding="utf-8", dir=spool_folder(target)) as spool:
        table = table or TableOptions()
        texts = scan_texts(source, table=table, spool=spool)
        if texts.description:
            yield Note(message=f"{texts.name}: {texts.description}")
        model = load()
        engine = _engine(kind, model, {**options, "precision": precision})
        options |= {"prompt": engine.prompt, "prompt_name": None}
        if engine.prompt:
            yield Note(message=f"before every text: the prompt {engine.prompt!r}")
        head = None if kind == "sparse" else describe_missing_head(model)
        if head is not None and model.fine_tuned is not None:  # for others, loading the model has named the tensors
            yield Note(message=f"warning: {head}")
        engine.choose_precision([text for _, text in islice(texts.read(), SAMPLED_ROWS)])
        if engine.choice:
            yield Note(message=engine.choice)
        elif precision is None and engine.precision == "bf16":
            yield Note(message=f"computing on {engine.device} in bfloat16; --precision fp32 computes in float32")
        if target is not None:
            check_pooling(target, engine.pooling)
        elif engine.pooling == "none":
            raise InputError("pooling none gives a vector per token: name an output file, or use regard.Embedder")
        if long == "error":
            _check_texts(engine, iter(texts), texts.name)
        started = time.perf_counter()
        blocks, resumed, already_done, written = None, 0, False, None
        if target is None:
            blocks = yield from _embed_in_memory(engine, texts)
            not_fitting = sum(int(block["long"].sum()) for block in blocks)
            seconds = time.perf_counter() - started
        else:
            job = Job(
                inputs=texts,
                model=model,
                settings={
                    "layers": str(layers),
                    "pooling": engine.pooling,
                    "normalize": engine.normalize,
                    "max_length": engine.max_length,
                    "table": {name: value for name, value in vars(table).items() if value is not None},
                    "long": long,
                    "precision": engine.precision,
                    **(engine.record() if isinstance(engine, SparseEngine) else {}),
                    **({"prompt": engine.prompt} if engine.prompt else {}),
                    **({"modules": engine.settings.digest} if engine.settings.digest else {}),
                    **({"do_lower_case": True} if engine.settings.do_lower_case else {}),
                },
                compute=lambda rows: _blocks(engine, rows, texts.name),
                load=partial(_load, kind, texts.name, {**options, "precision": engine.precision}),
                write=WriteSparse(engine.columns)
                if isinstance(engine, SparseEngine)
                else WriteVectors(engine.width, engine.pooling == "none"),
                stage="embedding",
                totals=("long",),
                shard_size=shard_size,
                devices=devices,
                cluster=cluster,
            )
            outcome = yield from job.run(target, restart=restart, force=force)
            not_fitting, seconds, written = outcome.totals["long"], outcome.seconds, outcome.output
            resumed, already_done = outcome.resumed, outcome.already_done
    result = EmbedResult(
        output=written,
        rows=texts.count,
        width=engine.width,
        model=model.name,
        layers=str(layers),
        pooling=engine.pooling,
        prompt=engine.prompt,
        max_length=engine.max_length,
        cut=not_fitting if long == "cut" else 0,
        windowed=not_fitting if long == "windows" else 0,
        missing=texts.missing,
        resumed=resumed,
        seconds=seconds,
        already_done=already_done,
        kind=kind,
    )
    result._settings, result._normalize = engine.settings, engine.normalize
    if blocks is not None and isinstance(engine, SparseEngine):
        result._sparse, result._tokens = vectors_of(blocks, engine.width), engine.columns
    elif blocks is not None:
        result._vectors = np.concatenate([block["vectors"] for block in blocks])
    result._missing_note, result._empty, result._head_note = texts.missing_note, texts.empty, head
    return result


def _options(kind: str, dense: dict[str, Any], sparse: dict[str, Any]) -> dict[str, Any]:
    """The options of a kind of vectors; those of the other kind must have been left out."""
    check_choice("kind", kind, get_args(EmbeddingKind))
    given, foreign, other = (dense, sparse, "sparse") if kind == "dense" else (sparse, dense, "dense")
    for name, value in foreign.items():
        if value is not None and (name, str(value)) != ("layers", "-1"):
            raise InputError(f"{name} {value} is for {other} vectors; leave it out, or choose kind {other}")
    return {name: value for name, value in given.items() if kind == "dense" or value is not None}


def _engine(kind: str, model: LoadedModel, options: dict[str, Any]) -> EmbeddingEngine:
    return SparseEngine(model, **options) if kind == "sparse" else load_engine(model, **options)


def _load(kind: str, name: str, options: dict[str, Any], files: ModelFiles, device: torch.device) -> Compute:
    """What embeds shards in another process; `name` is that of the input, `options` are those of the engine."""
    engine = _engine(kind, files.load(device), options)
    return lambda rows: _blocks(engine, rows, name)


def _embed_in_memory(engine: EmbeddingEngine, texts: InputTexts) -> Generator[Event, None, list[Block]]:
    blocks = []
    for item in _blocks(engine, iter(texts), texts.name):
        if isinstance(item, int):
            yield BulkProgress(stage="embedding", done=item, total=texts.count, resumed=0)
        else:
            blocks.append(item)
    return blocks


def _check_texts(engine: EmbeddingEngine, rows: Iterator[NumberedText], name: str) -> None:
    """Refuse the first text that the engine would refuse, by its line."""
    for group in group_by_size(rows, _length):
        with _line_named(name, group):
            engine.check_texts([text for _, text in group if not is_blank(text)])


def _blocks(engine: EmbeddingEngine, rows: Iterator[NumberedText], name: str) -> Iterator[Block | int]:
    """Embed rows: yields the number of finished rows so far, and blocks as they are complete."""
    done, tokens = 0, engine.pooling == "none"
    budget = SPARSE_CHARACTERS if isinstance(engine, SparseEngine) else CHARACTERS
    for group in group_by_size(rows, _length, budget=FLOATS // engine.width if tokens else budget):
        before = engine.truncated
        with _line_named(name, group):
            if tokens:
                block = _token_block(engine, group)
            elif isinstance(engine, SparseEngine):
                for item in sparse_block(engine, [text for _, text in group]):
                    if isinstance(item, int):
                        yield done + item
                    else:
                        block = item
            else:
                indices = [index for index, (_, text) in enumerate(group) if not is_blank(text)]
                found = np.empty((len(indices), engine.width), dtype=np.float32)
                with closing(engine.embed_steps([group[index][1] for index in indices], found)) as steps:
                    for finished in steps:
                        yield done + finished
                vectors = np.zeros((len(group), engine.width), dtype=np.float32)
                vectors[indices] = found
                block = {"vectors": vectors}
        lines = np.array([line for line, _ in group])
        missing = np.array([is_blank(text) for _, text in group])
        yield {**block, "lines": lines, "missing": missing, "long": np.array([engine.truncated - before])}
        done += len(group)
        yield done


def _token_block(engine: EmbeddingEngine, group: list[NumberedText]) -> Block:
    """Blank texts have no tokens."""
    texts = engine.embed_tokens([text for _, text in group if not is_blank(text)])
    lengths = iter([len(one.tokens) for one in texts])
    empty = np.zeros(0, dtype=np.int32)
    return {
        "lengths": np.array([0 if is_blank(text) else next(lengths) for _, text in group]),
        "vectors": np.concatenate([np.zeros((0, engine.width), dtype=np.float32), *(one.vectors for one in texts)]),
        "offsets": np.concatenate([empty.reshape(0, 2), *(one.offsets for one in texts)]).astype(np.int32),
        "words": np.concatenate([empty, *(one.words for one in texts)]).astype(np.int32),
        "tokens": pack_json([token for one in texts for token in one.tokens]),
    }


@contextmanager
def _line_named(name: str, group: list[NumberedText]) -> Iterator[None]:
    """Add the line to the error about a text."""
    try:
        yield
    except TextError as error:
        line = [line for line, text in group if not is_blank(text)][error.index]
        raise InputError(f"{name} line {line} {error.reason}") from None


@dataclass(frozen=True)
class InputTexts(InputRows[NumberedText]):
    """The texts of an input, and how a table was read.

    `missing` rows have no text, which `missing_note` describes; `empty` are those that are kept.
    """

    description: str = ""
    missing: int = 0
    missing_note: str | None = None
    empty: frozenset[int] = frozenset()


def scan_texts(source: Source, *, table: TableOptions, spool: IO[str]) -> InputTexts:
    """Read the texts of a source. Standard input or a pipe is copied to `spool` for the second time."""
    missing = table.missing or "keep"
    again = not isinstance(source, str | os.PathLike) or is_rereadable(source)
    reader = open_rows(source, table)

    def texts(rows: RowReader) -> Iterator[NumberedText]:
        return ((row.line, row.texts[0] or "") for row in rows.read(missing))

    empty: list[int] = []

    def noted(rows: Iterator[NumberedText]) -> Iterator[NumberedText]:
        for number, (line, text) in enumerate(rows):
            if not text:
                empty.append(number)
            yield line, text

    reread = (lambda: texts(open_rows(source, table))) if again else None
    rows = scan_rows(noted(texts(reader)), name=reader.name, again=reread, rereadable=again, spool=spool)
    if rows.count == len(empty):
        raise InputError(f"{reader.name} has no row with a text; expected at least one")
    return InputTexts(
        **vars(rows),
        description=reader.description if reader.is_table else "",
        missing=reader.num_missing,
        missing_note=reader.missing_note(missing),
        empty=frozenset(empty),
    )


def _length(row: NumberedText) -> int:
    return len(row[1])


def is_blank(text: str) -> bool:
    return not text.strip()


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
                stream_array(file, (block["vectors"] for block in blocks("vectors")), "<f4", (rows, self.width))

    def _npz(self, path: Path, blocks: Reader, rows: int) -> None:
        """`lines` and `vectors`; of tokens `starts` (rows + 1: where a row's tokens begin), `offsets` and `words`."""
        count = rows
        with zipfile.ZipFile(path, "w") as archive:

            def member(name: str, columns: Iterable[Column], kind: str, *shape: int) -> None:
                # A ZipInfo of our own has no date in it: the same input gives the same bytes.
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                    stream_array(file, columns, kind, shape)

            def column(name: str) -> Iterator[Column]:
                return (block[name] for block in blocks(name))

            member("lines", column("lines"), "<i8", rows)
            if self.tokens:
                count = sum(int(lengths.sum()) for lengths in column("lengths"))
                member("starts", starts_of(column("lengths")), "<i8", rows + 1)
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
