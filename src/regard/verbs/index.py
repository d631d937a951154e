"""`regard index`: texts with their vectors in a folder, for `regard search`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from regard.errors import InputError
from regard.events import Event, Note
from regard.known import DEFAULT_EMBEDDING_MODEL
from regard.verbs.base import ModelName, Models, PoolingName, Texts, argument, option, verb
from regard.verbs.tables import RowsRequest, table_options

if TYPE_CHECKING:
    from regard.checkpoints.loaded_model import LoadedModel
    from regard.inference.search.results import IndexResult


class IndexRequest(RowsRequest):
    source: Texts = argument(
        help="Texts, one per line, or a table: CSV, TSV, JSONL, Parquet; compressed or not; - is standard input.",
        metavar="FILE",
    )
    output: Path = option(..., "-o", help="Folder of the index.", metavar="DIR", writes=True)
    model: ModelName | None = option(
        None,
        "-m",
        help=f"A model folder, hub name or built-in name. Default: {DEFAULT_EMBEDDING_MODEL}, or that of the index.",
        metavar="MODEL",
    )
    sparse: ModelName | None = option(
        None,
        help="Also write sparse vectors by this model (SPLADE), for --method splade. Default: that of the index.",
        metavar="MODEL",
    )
    keep: list[str] = option([], help="Columns that results carry, or all.", metavar="A,B")
    id: str | None = option(None, help="Column of ids, which must differ. Default: the row's number.", metavar="COLUMN")
    append: bool = option(False, help="Add the texts to the index in DIR.")
    approximate: bool = option(False, help="Also write an approximate index; needs the extra search.")
    pooling: PoolingName | None = option(
        None, "-p", help="How token vectors become one. Default: what the model's folder states, or mean."
    )
    max_length: int | None = option(
        None, help="Maximum number of tokens per text. Default: what the model's files state.", metavar="N", ge=1
    )
    prompt: str | None = option(
        None,
        help="What to put before every text. Default: the prompt for documents of the model's folder.",
        metavar="TEXT",
    )
    prompt_name: str | None = option(
        None, help="A prompt of the model's folder by name, such as document.", metavar="NAME"
    )
    long: Literal["cut", "error", "windows"] = option("cut", help="What to do with texts that are too long.")
    restart: bool = option(False, help="Discard what an interrupted run has finished.")


@verb(IndexRequest, result="regard.inference.search.results:IndexResult", http=False)
def index(request: IndexRequest, models: Models) -> Generator[Event, None, IndexResult]:
    """Embed texts and write an index of them: a folder that `regard search`, `duplicates` and `cluster` read.

    Rows without a text are not indexed and counted; the numbers of the others stay those of the file. After a crash or
    Ctrl-C the same command continues. The prompts for documents and for queries of the model's folder are stored in the
    index and used. An index is searched with the model that made its vectors; another one is
    refused. --append adds texts; until it is finished, the index is as it was.

    Example: regard index reviews.csv --columns text --keep id,date --output reviews.index
    """
    from regard.inference.search.approximate import require_faiss
    from regard.inference.search.build import index_events
    from regard.inference.search.index import open_index
    from regard.inference.search.index_folder import is_index
    from regard.inference.search.results import IndexResult

    if request.approximate:
        require_faiss()
    changed = (request.pooling, request.max_length, request.prompt, request.prompt_name)
    if request.append and (any(one is not None for one in changed) or request.long != "cut"):
        raise InputError(
            "texts that are added are embedded as those of the index: leave out --pooling, --max-length, --prompt, "
            "--prompt-name and --long"
        )
    if request.append and request.sparse and is_index(request.output) and not open_index(request.output).sparse_name:
        raise InputError(f"{request.output} has no sparse vectors of the texts before; leave --sparse out")
    with ExitStack() as stack:

        def load(name: str | None) -> LoadedModel:
            return stack.enter_context(models.use(request.model or name or DEFAULT_EMBEDDING_MODEL))

        def load_sparse(name: str | None) -> LoadedModel | None:
            chosen = request.sparse or name
            return None if chosen is None else stack.enter_context(models.use(chosen))

        try:
            added, _ = yield from index_events(
                request.source,
                request.output,
                load,
                load_sparse=load_sparse,
                table=table_options(request),
                keep=request.keep,
                id_column=request.id,
                append=request.append,
                settings=request.model_dump(include={"pooling", "max_length", "prompt", "prompt_name", "long"}),
                approximate=request.approximate,
                restart=request.restart,
            )
        except (Exception, GeneratorExit):
            raise
        except BaseException:  # Ctrl-C, or a signal that ends the process
            yield Note(message=f"{request.output}: the same command continues; an index that was there is unchanged")
            raise
    found = open_index(request.output)
    first = next(iter(found.segments[-1].documents))
    return IndexResult(
        output=str(request.output),
        rows=len(found),
        added=added,
        width=found.manifest.width,
        model=found.model_name,
        sparse=found.sparse_name,
        columns=list(first.columns),
        prompt=found.manifest.model.prompt,
        query_prompt=found.manifest.model.query_prompt,
    )
