"""Build an index from a file, a list or a DataFrame, or add texts to one: `regard.index`, `Index.add` and the verbs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from regard.checkpoints.loaded_model import LoadedModel
from regard.checkpoints.reading import CountedModel
from regard.data.files import refuse_file_name, refuse_output_in_input
from regard.data.labels import is_missing
from regard.data.readers import TableOptions
from regard.data.rows import Row, open_rows
from regard.data.text_inputs import read_items
from regard.errors import InputError, suggest
from regard.events import Event, Note, Progress, drain
from regard.files.output_file import refuse_link
from regard.inference.embedding.bulk import embed_events
from regard.inference.embedding.sparse import SparseEngine
from regard.inference.search.documents import Documents, DocumentTexts, IndexedText, write_documents
from regard.inference.search.index import Index, engine_of, sparse_engine_of, weights_of
from regard.inference.search.index_folder import (
    ADDING,
    EVERY,
    SPARSE_VECTORS,
    VECTORS,
    IndexManifest,
    ModelRecord,
    SparseRecord,
    commit_added,
    compact,
    durable_folder,
    finish_segment,
    is_index,
    needs_compaction,
    remove_unused,
)
from regard.known import DEFAULT_EMBEDDING_MODEL
from regard.wording import is_count

ALL = "all"
SHARD_SIZE = 1024  # texts: what a killed run embeds again at most
LoadSparse = Callable[[str | None], LoadedModel | None]


class DocumentSource:
    """The rows of a source as documents. Rows without a text are left out; with `missing` "keep" they are listed in
    `without_text` after reading."""

    def __init__(self, source: Any, table: TableOptions, *, keep: Sequence[str] = (), id_column: str | None = None):
        self.rows = open_rows(source, table)
        self.missing = table.missing or "keep"
        self.id_column = None if id_column is None else self._column(id_column, "--id")
        self.columns = [self._column(name, "--keep") for name in keep if name != ALL]
        if ALL in keep:
            special = {*self.rows.text_columns, self.id_column}
            self.columns = [name for name in self.rows.columns if name not in special]
        self.without_text: list[IndexedText] = []

    def _column(self, name: str, option: str) -> str:
        columns = self.rows.columns
        if name in columns:
            return name
        if is_count(name) and int(name) < len(columns):
            return columns[int(name)]
        raise InputError(f"{option}: {self.rows.name} has no column {name!r}; {suggest(name, columns)}")

    def __iter__(self) -> Iterator[IndexedText]:
        for row in self.rows.read(self.missing):
            document = self._document(row)
            if row.is_missing:
                self.without_text.append(document)
            else:
                yield document

    def _document(self, row: Row) -> IndexedText:
        name: Any = row.number
        if self.id_column is not None:
            name = row.values.get(self.id_column)
            if is_missing(name) and row.is_missing:
                name = row.number
            elif is_missing(name):
                raise InputError(f"{self.rows.location(row)} has no id ({self.id_column}); fix it, or leave out --id")
        columns = {column: row.values.get(column) for column in self.columns}
        return IndexedText(name, row.number, row.texts[0] or "", columns)


def index_events(
    source: Any,
    folder: Path,
    load: Callable[[str | None], LoadedModel],
    *,
    load_sparse: LoadSparse = lambda name: None,
    table: TableOptions | None = None,
    keep: Sequence[str] = (),
    id_column: str | None = None,
    append: bool = False,
    settings: Mapping[str, Any] | None = None,
    approximate: bool = False,
    restart: bool = False,
) -> Generator[Event, None, tuple[int, list[IndexedText]]]:
    """Index the rows of a source; returns the number of added texts and the rows without a text, if they are kept.

    Texts that are added to an index have the columns and the id of the texts before, unless other ones are given.
    """
    if append and is_index(folder):
        manifest = IndexManifest.read(folder)
        keep, id_column = keep or manifest.keep, id_column or manifest.id_column
    documents = DocumentSource(source, table or TableOptions(), keep=keep, id_column=id_column)
    yield Note(message=f"{documents.rows.name}: {documents.rows.description}")
    count = yield from add_documents(
        folder,
        lambda: documents,
        load,
        load_sparse=load_sparse,
        append=append,
        settings=settings,
        keep=keep,
        id_column=id_column,
        approximate=approximate,
        restart=restart,
    )
    if note := documents.rows.missing_note(documents.missing):
        yield Note(message=note)
    return count, documents.without_text


def add_documents(
    folder: Path,
    read: Callable[[], Iterable[IndexedText]],
    load: Callable[[str | None], LoadedModel],
    *,
    load_sparse: LoadSparse = lambda name: None,
    append: bool = False,
    settings: Mapping[str, Any] | None = None,
    keep: Sequence[str] = (),
    id_column: str | None = None,
    approximate: bool = False,
    restart: bool = False,
) -> Generator[Event, None, int]:
    """Write a new index, or add texts to one (`append`); returns the number of added texts.

    `read` returns the documents with their rows from 0; without an `id_column` the id is the row. `load` gets the name
    of the model of the index, or None for a new one; so does `load_sparse`, which returns None if there are to be no
    sparse vectors. `settings` are options of `embed_events` for a new index. A run
    that was killed continues where it was, and leaves the old index as it was until it is finished.
    """
    durable = durable_folder(folder)
    durable.refuse_foreign()
    folder.parent.mkdir(parents=True, exist_ok=True)
    existing = IndexManifest.read(folder) if is_index(folder) else None
    if existing is not None and not append:
        raise InputError(
            f"{folder} holds an index of {existing.rows - existing.num_deleted:,} texts; --append adds to it, or "
            "choose another folder"
        )
    if existing is None and append:
        raise InputError(f"{folder} holds no index to add to; leave --append out to write a new one")
    with durable.locked():
        existing = IndexManifest.read(folder) if existing is not None else None
        durable.begin({}, differences=lambda *_: [])
        adding = folder / ADDING
        if restart and adding.exists():
            shutil.rmtree(adding)
        adding.mkdir(exist_ok=True)
        count = yield from _write_new_documents(folder, existing, read, id_column)
        documents = Documents(adding)
        loaded: list[LoadedModel] = []

        def load_checked() -> LoadedModel:
            loaded.append(load(None if existing is None else existing.model.name))
            if existing is not None:
                engine_of(existing.model, loaded[0], str(folder))
            return loaded[0]

        chosen: dict[str, Any] = {"long": "cut", "task": "document", **(settings or {})}
        if existing is not None:
            chosen = existing.model.options()
        result = yield from embed_events(
            DocumentTexts(documents),
            adding / VECTORS,
            load_checked,
            force=True,
            shard_size=SHARD_SIZE,
            **chosen,
        )
        sparse = yield from _write_sparse_vectors(folder, existing, load_sparse, documents)
        approximate = approximate or (existing is not None and existing.approximate)
        files = yield from finish_segment(adding, approximate=approximate)
        for name in (f"{VECTORS}.*", f"{SPARSE_VECTORS}*"):  # the records of finished jobs, and what is in the postings
            for path in adding.glob(name):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if existing is None:
            name, stated = loaded[0].name, result._settings
            model = ModelRecord(
                _lasting_name(name),
                weights_of(loaded[0], stated),
                result.layers,
                result.pooling,
                result.max_length,
                chosen["long"],
                result._normalize,
                stated.digest,
                result.prompt,
                stated.find_prompt(task="query"),
            )
            if model.query_prompt:
                yield Note(message=f"before every query: the prompt {model.query_prompt!r}")
            existing = IndexManifest(model, result.width, (), tuple(keep), id_column, sparse=sparse, version=0)
        following = documents[count - 1].row + 1
        manifest = commit_added(folder, replace(existing, next_row=following, approximate=approximate), count, files)
        if needs_compaction(manifest):
            manifest = yield from compact(folder, manifest)
        remove_unused(folder, manifest)
    if result.cut:
        yield Note(message=f"{result.cut:,} of {count:,} texts had more than {result.max_length} tokens and were cut")
    return count


def _lasting_name(name: str) -> str:
    """The name of a model, which does not depend on the current folder."""
    return os.path.abspath(name) if os.path.isdir(name) else name


def _write_sparse_vectors(
    folder: Path, existing: IndexManifest | None, load: LoadSparse, documents: Documents
) -> Generator[Event, None, SparseRecord | None]:
    """Embed the documents as sparse vectors, if the index has them or is to have them."""
    record = None if existing is None else existing.sparse
    if existing is not None and record is None:
        return None
    loaded = load(None if record is None else record.name)
    if loaded is None:
        return None
    if record is not None:
        sparse_engine_of(record, loaded, str(folder))
    yield from embed_events(
        DocumentTexts(documents),
        folder / ADDING / SPARSE_VECTORS,
        lambda: loaded,
        kind="sparse",
        max_length=None if record is None else record.max_length,
        force=True,
        shard_size=SHARD_SIZE,
    )
    engine = SparseEngine(loaded)
    weights = weights_of(loaded, engine.settings)
    return record or SparseRecord(_lasting_name(loaded.name), weights, engine.digest(), engine.max_length)


def _write_new_documents(
    folder: Path, existing: IndexManifest | None, read: Callable[[], Iterable[IndexedText]], id_column: str | None
) -> Generator[Event, None, int]:
    first = 0 if existing is None else existing.next_row
    seen: dict[str, int] = {}
    if existing is not None and id_column is not None:
        seen = {str(one.id): one.row for _, one in Index(folder).documents()}

    def numbered() -> Iterator[IndexedText]:
        for one in read():
            row = one.row + first
            if id_column is None:
                yield replace(one, id=row, row=row)
                continue
            if (other := seen.get(str(one.id))) is not None:
                raise InputError(
                    f"row {one.row} has the id {one.id!r}, which row {other} has already; ids must differ: choose "
                    "another column, or delete that text first"
                )
            seen[str(one.id)] = row
            yield replace(one, row=row)

    count = 0
    for count in write_documents(folder / ADDING, numbered()):
        if count % EVERY == 0:
            yield Progress(stage="reading", done=count)
    if not count:
        with suppress(OSError):
            shutil.rmtree(folder / ADDING)
        raise InputError("there are no texts to index; expected at least one")
    yield Progress(stage="reading", done=count, total=count)
    return count


def temporary_index(
    source: Any,
    loaded: LoadedModel,
    *,
    table: TableOptions,
    keep: Sequence[str],
    id_column: str | None,
    sparse: LoadedModel | None = None,
) -> Generator[Event, None, tuple[Index, list[IndexedText]]]:
    """An index that is removed with the last reference to it, and the rows without a text."""
    folder, temporary = _temporary_folder()
    _, without_text = yield from index_events(
        source, folder, lambda _: loaded, load_sparse=lambda _: sparse, table=table, keep=keep, id_column=id_column
    )
    index = Index(folder, temporary=temporary)
    index.use_model(loaded)
    if sparse is not None:
        index.use_sparse_model(sparse)
    return index, without_text


def _temporary_folder() -> tuple[Path, TemporaryDirectory[str]]:
    temporary = TemporaryDirectory(prefix="regard-index-", ignore_cleanup_errors=True)
    return Path(temporary.name) / "index", temporary


def index(
    source: Any,
    output: str | os.PathLike[str] | None = None,
    *,
    model: str | os.PathLike[str] | LoadedModel | tuple[Any, Any] = DEFAULT_EMBEDDING_MODEL,
    sparse: str | os.PathLike[str] | LoadedModel | None = None,
    columns: Sequence[str] | str | None = None,
    keep: Sequence[str] | str = (),
    id: str | None = None,
    missing: str = "keep",
    approximate: bool = False,
    prompt: str | None = None,
    prompt_name: str | None = None,
    device: str = "auto",
    on_event: Callable[[Event], object] | None = None,
) -> Index:
    """Embed texts and return an index of them that can be searched: `regard.index(texts).search("a query")`.

    `source`: a list of texts, a Series, a DataFrame, or the path of a file as `regard index` reads it. `output`: the
    folder of the index; without one it is kept in a temporary folder until `Index.save`. `sparse`: a model of sparse
    vectors (SPLADE), for the method "splade". `columns`: the column of the
    texts, by default inferred. `keep`: other columns that results carry, or "all". `id`: the column of ids, by default
    the row's number. `prompt` is put before every text, or the prompt with the name `prompt_name` in the model's
    sentence-transformers folder; by default its prompt for documents. `missing`: what happens to rows without a text:
    "keep" and "skip" leave them out, "error" refuses them.
    """
    check_source(source)
    if output is not None:
        refuse_link(output)
        if isinstance(source, str | os.PathLike):
            refuse_output_in_input(output, source)
    folder, temporary = _temporary_folder() if output is None else (Path(output), None)
    counted: list[CountedModel] = []
    sparse_model = None if sparse is None else _load(sparse, device)

    def load(name: str | None) -> LoadedModel:
        counted.append(CountedModel(_load(model, device)))
        return counted[0].loaded

    events = index_events(
        source,
        folder,
        load,
        load_sparse=lambda _: sparse_model,
        table=text_table(columns, missing),
        keep=column_list(keep),
        id_column=id,
        approximate=approximate,
        settings={"prompt": prompt, "prompt_name": prompt_name},
    )
    drain(events, on_event)
    found = Index(folder, temporary=temporary)
    found.use_counted(counted[0])
    if sparse_model is not None:
        found.use_sparse_model(sparse_model)
    found.warn()
    return found


def check_source(source: Any) -> None:
    if isinstance(source, str):
        refuse_file_name(source)
        read_items(source)  # which refuses a string


def _load(model: str | os.PathLike[str] | LoadedModel | tuple[Any, Any], device: str) -> LoadedModel:
    if isinstance(model, LoadedModel):
        return model
    if isinstance(model, tuple):
        return LoadedModel("the given model", *model)
    from regard.device import choose_device
    from regard.inference.load_model import load_model

    return load_model(model, device=choose_device(device))


def column_list(value: Sequence[str] | str) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def text_table(columns: Sequence[str] | str | None, missing: str) -> TableOptions:
    names = None if columns is None else tuple(column_list(columns))
    return TableOptions(columns=names, missing=missing)  # type: ignore[arg-type]
