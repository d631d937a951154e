"""Build an index from a file, a list or a DataFrame: `regard.index`, `Index.add` and the verbs."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
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
from regard.events import Event, Note, drain
from regard.files.output_file import refuse_link
from regard.inference.search.documents import IndexedText
from regard.inference.search.index import EmbeddingSettings, Index, add_documents
from regard.inference.search.index_folder import IndexManifest, is_index
from regard.known import DEFAULT_EMBEDDING_MODEL
from regard.wording import is_count

ALL = "all"


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
    table: TableOptions | None = None,
    keep: Sequence[str] = (),
    id_column: str | None = None,
    append: bool = False,
    settings: EmbeddingSettings | None = None,
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


def temporary_index(
    source: Any,
    load: Callable[[str | None], LoadedModel],
    *,
    table: TableOptions | None = None,
    keep: Sequence[str] = (),
    id_column: str | None = None,
) -> Generator[Event, None, tuple[Index, list[IndexedText]]]:
    """An index that is removed with the last reference to it, and the rows without a text."""
    temporary = TemporaryDirectory(prefix="regard-index-", ignore_cleanup_errors=True)
    folder = Path(temporary.name) / "index"
    loaded: list[LoadedModel] = []

    def load_once(name: str | None) -> LoadedModel:
        loaded.append(load(name))
        return loaded[0]

    _, without_text = yield from index_events(source, folder, load_once, table=table, keep=keep, id_column=id_column)
    index = Index(folder, temporary=temporary)
    index.use_model(loaded[0])
    return index, without_text


def index(
    source: Any,
    output: str | os.PathLike[str] | None = None,
    *,
    model: str | os.PathLike[str] | LoadedModel | tuple[Any, Any] = DEFAULT_EMBEDDING_MODEL,
    columns: Sequence[str] | str | None = None,
    keep: Sequence[str] | str = (),
    id: str | None = None,
    missing: str = "keep",
    approximate: bool = False,
    device: str = "auto",
    on_event: Callable[[Event], object] | None = None,
) -> Index:
    """Embed texts and return an index of them that can be searched: `regard.index(texts).search("a query")`.

    `source`: a list of texts, a Series, a DataFrame, or the path of a file as `regard index` reads it. `output`: the
    folder of the index; without one it is kept in a temporary folder until `Index.save`. `columns`: the column of the
    texts, by default inferred. `keep`: other columns that results carry, or "all". `id`: the column of ids, by default
    the row's number. `missing`: what happens to rows without a text: "keep" and "skip" leave them out, "error" refuses
    them.
    """
    _check_source(source)
    table = _table(columns, missing)

    counted: list[CountedModel] = []

    def load(name: str | None) -> LoadedModel:
        counted.append(CountedModel(_load(model, device)))
        return counted[0].loaded

    def use_counted(found: Index) -> Index:
        found.use_counted(counted[0])
        counted[0].warn(found.model_name)
        return found

    options: Any = {"table": table, "keep": _names(keep), "id_column": id}
    if output is None:
        found, _ = drain(temporary_index(source, load, **options), on_event)
        return use_counted(found)
    refuse_link(output)
    if isinstance(source, str | os.PathLike):
        refuse_output_in_input(output, source)
    drain(index_events(source, Path(output), load, approximate=approximate, **options), on_event)
    return use_counted(Index(Path(output)))


def add_to_index(
    index: Index,
    source: Any,
    *,
    columns: Sequence[str] | str | None,
    keep: Sequence[str] | str,
    id: str | None,
    missing: str,
    on_event: Callable[[Event], object] | None,
) -> int:
    """`Index.add`."""
    _check_source(source)
    events = index_events(
        source,
        index.folder,
        lambda name: index.loaded_model(),
        table=_table(columns, missing),
        keep=_names(keep),
        id_column=id,
        append=True,
    )
    added, _ = drain(events, on_event)
    index.reopen()
    index.warn()
    return added


def _check_source(source: Any) -> None:
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


def _names(value: Sequence[str] | str) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _table(columns: Sequence[str] | str | None, missing: str) -> TableOptions:
    names = None if columns is None else tuple(_names(columns))
    return TableOptions(columns=names, missing=missing)  # type: ignore[arg-type]
