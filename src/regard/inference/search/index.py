"""`Index`: texts with their vectors in a folder, which can be searched, extended and thinned out."""

from __future__ import annotations

import os
import shutil
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from regard.checkpoints.loaded_model import LoadedModel
from regard.checkpoints.loading import find_folder
from regard.checkpoints.reading import CountedModel
from regard.engine.precision import InferencePrecision
from regard.errors import InputError, RegardError, check_choice
from regard.events import Event, drain
from regard.files.disk import replace_folder
from regard.inference.bulk.shards import weights_digest
from regard.inference.embedding.engine import EmbeddingEngine, load_engine
from regard.inference.embedding.sentence_transformers import SentenceSettings
from regard.inference.embedding.sparse import SparseEngine
from regard.inference.reranking import Reranker
from regard.inference.search.bm25 import find_words, fuse_ranks, search_bm25, words_of
from regard.inference.search.documents import IndexedText
from regard.inference.search.exact import Positions, Ranking, Vectors
from regard.inference.search.explain import Explainer, Explanation, explain_bm25, explain_fusion, explain_sparse
from regard.inference.search.index_folder import (
    IndexManifest,
    ModelRecord,
    Segment,
    SparseRecord,
    compact,
    durable_folder,
    is_index,
    needs_compaction,
    open_segments,
    read_deleted,
    remove_unused,
    verify,
    write_deleted,
)
from regard.inference.search.inverted import SparseRow, search_sparse
from regard.inference.search.maxsim import MaxSimReranker, is_multi_vector
from regard.inference.search.results import Hit, QueryResult, SearchResult, check_queries
from regard.tasks.fine_tuned_model import FineTunedModel, fine_tuned_of, load_fine_tuned, require_fine_tuned

if TYPE_CHECKING:
    from regard.inference.search.clusters import ClusterResult
    from regard.inference.search.duplicates import DuplicatesResult

Method = Literal["dense", "bm25", "splade", "hybrid"]
AnyReranker = Reranker | MaxSimReranker
FUSED = 100  # candidates of each method that hybrid search combines, at least
BATCH = 256  # queries


class Index:
    """The index of a folder, opened in constant time: vectors are memory-mapped, and texts are read when found.

    An index without a folder of its own lives in a temporary one until it is saved. Another process may change the
    folder meanwhile; this object keeps the state that it has opened.
    """

    def __init__(self, folder: Path, *, temporary: TemporaryDirectory[str] | None = None) -> None:
        self.folder, self._temporary = folder, temporary
        if temporary is not None:
            weakref.finalize(self, temporary.cleanup)
        self._engine: EmbeddingEngine | None = None
        self._loaded: LoadedModel | None = None
        self._sparse: SparseEngine | None = None
        self._sparse_loaded: LoadedModel | None = None
        self._counted: CountedModel | None = None
        self.reopen()

    def reopen(self) -> None:
        """See what another process, or another object, has changed in the folder."""
        self.__dict__.pop("deleted", None)
        self.manifest = IndexManifest.read(self.folder)
        try:  # once more if another process replaces segments in between
            self.segments: list[Segment] = open_segments(self.folder, self.manifest)
        except RegardError:
            if IndexManifest.read(self.folder) == self.manifest:
                raise
            self.manifest = IndexManifest.read(self.folder)
            self.segments = open_segments(self.folder, self.manifest)
        self.bases = np.concatenate([[0], np.cumsum([one.rows for one in self.segments])]).astype(np.int64)

    @cached_property
    def deleted(self) -> Positions:
        """The positions of deleted rows."""
        return read_deleted(self.folder, self.manifest)

    def __len__(self) -> int:
        return self.manifest.rows - self.manifest.num_deleted

    def __repr__(self) -> str:
        return f"Index({str(self.folder)!r}, {len(self):,} texts, model {self.manifest.model.name!r})"

    @property
    def name(self) -> str:
        """The folder; texts that were given have none of their own."""
        return "the texts" if self._temporary is not None else str(self.folder)

    @property
    def model_name(self) -> str:
        return self.manifest.model.name

    @property
    def sparse_name(self) -> str | None:
        """The name of the model of the sparse vectors; None if there are none."""
        return None if self.manifest.sparse is None else self.manifest.sparse.name

    def document(self, position: int) -> IndexedText:
        """The document at a position, counted over all segments."""
        number = int(np.searchsorted(self.bases, position, side="right")) - 1
        return self.segments[number].documents[position - int(self.bases[number])]

    def positions(self) -> Positions:
        """The positions of all rows that are not deleted."""
        return np.setdiff1d(np.arange(self.manifest.rows), self.deleted, assume_unique=True)

    def documents(self) -> Iterator[tuple[int, IndexedText]]:
        """All documents that are not deleted, with their positions."""
        deleted, position = set(self.deleted.tolist()), 0
        for segment in self.segments:
            for document in segment.documents:
                if position not in deleted:
                    yield position, document
                position += 1

    def vectors(self, positions: Positions) -> Vectors:
        """The vectors at positions that are in order, of length 1: their inner products are cosines."""
        parts = []
        for segment, base in zip(self.segments, self.bases, strict=False):
            first, last = np.searchsorted(positions, (base, base + segment.rows))
            parts.append(segment.vectors[positions[first:last] - base])
        found = np.concatenate(parts) if parts else np.empty((0, self.manifest.width), dtype=np.float32)
        if not self.manifest.model.normalize:
            found /= np.linalg.norm(found, axis=1, keepdims=True).clip(1e-12)
        return found

    def use_model(self, loaded: LoadedModel) -> None:
        """Embed queries with a loaded model; InputError unless it is the one that made the vectors."""
        self._engine = engine_of(self.manifest.model, loaded, self.name)
        self._loaded = loaded

    def use_sparse_model(self, loaded: LoadedModel) -> None:
        """Encode queries with a loaded sparse model; InputError unless it is the one that made the sparse vectors."""
        if self.manifest.sparse is not None:
            self._sparse = sparse_engine_of(self.manifest.sparse, loaded, self.name).for_task("query")
            self._sparse_loaded = loaded

    def loaded_sparse_model(self) -> LoadedModel | None:
        """The sparse model of the index, loaded if it is not yet; None if the index has no sparse vectors."""
        from regard.device import choose_device
        from regard.inference.load_model import load_model

        if self._sparse is None and self.manifest.sparse is not None:
            self.use_sparse_model(load_model(self.manifest.sparse.name, device=choose_device("auto")))
        return self._sparse_loaded

    def use_prompt(self, prompt: str | None, prompt_name: str | None, method: Method) -> None:
        """Put another prompt before queries than the one of the index; None is that one."""
        if prompt is None and prompt_name is None:
            if self._engine is not None:
                self._engine.use_prompt(self.manifest.model.query_prompt)
            return
        if method not in ("dense", "hybrid"):
            raise InputError(f"a prompt is for the method dense or hybrid; found {method}")
        self.loaded_model()
        assert self._engine is not None
        self._engine.use_prompt(self._engine.settings.find_prompt(prompt, prompt_name))

    def load_model(self, model: str | os.PathLike[str] | None = None, *, device: str = "auto") -> None:
        """Load the model that embeds queries: that of the index, or a copy of it in another place."""
        from regard.device import choose_device
        from regard.inference.load_model import load_model

        self.use_counted(CountedModel(load_model(model or self.model_name, device=choose_device(device))))

    def use_counted(self, counted: CountedModel) -> None:
        """`use_model` for Python code, which is warned of texts that the model cannot read."""
        self.use_model(counted.loaded)
        self._counted = counted

    def warn(self) -> None:
        if self._counted is not None:
            self._counted.warn(self.model_name)

    def search(
        self,
        queries: str | Sequence[str],
        top: int = 10,
        *,
        method: Method = "dense",
        approximate: bool = False,
        rerank: FineTunedModel | AnyReranker | str | os.PathLike[str] | None = None,
        rerank_top: int = 50,
        prompt: str | None = None,
        prompt_name: str | None = None,
        explain: bool = False,
    ) -> SearchResult:
        """The `top` texts for each query.

        `method`: "dense" compares vectors, "bm25" counts the words in common, "splade" compares sparse vectors, if the
        index has them; "hybrid" combines the ranks of all that there are.
        `approximate` uses the approximate index where there is one. `rerank` is a model that scores pairs of texts
        (see `Reranker`), or its name: it scores the best `rerank_top` again. `prompt`, or the model's prompt with the
        name `prompt_name`, is put before queries instead of the prompt for queries that the index has stored. `explain`
        says for every hit what adds up to its score, for the methods bm25 and splade without a reranker; the function
        `regard.search` explains all.
        """
        if explain and (method not in ("bm25", "splade") or rerank is not None):
            raise InputError("vectors and rerankers are explained by regard.search(FOLDER, QUERY, explain=True)")
        self.use_prompt(prompt, prompt_name, method)
        reranker = None if rerank is None else "the given model"
        if isinstance(rerank, str | os.PathLike):
            reranker, rerank = os.fspath(rerank), load_reranker(rerank)
        checked = check_queries(queries)
        options: Any = {"method": method, "approximate": approximate, "rerank": rerank, "rerank_top": rerank_top}
        options["explain"] = explain
        found = list(self.search_steps(checked, top, **options))
        self.warn()
        return self.search_result(found, method=method, approximate=approximate, rerank=reranker)

    def search_result(
        self, found: list[QueryResult], *, method: Method, approximate: bool, rerank: str | None
    ) -> SearchResult:
        return SearchResult(
            source=self.name,
            rows=len(self),
            model=self._model_of(method),
            method=method,
            approximate=approximate,
            rerank=rerank,
            results=found,
        )

    def _model_of(self, method: Method) -> str:
        if method == "splade":
            return self.sparse_name or ""
        return "" if method == "bm25" else self.model_name

    def search_steps(
        self,
        queries: Iterable[str],
        top: int = 10,
        *,
        method: Method = "dense",
        approximate: bool = False,
        rerank: FineTunedModel | AnyReranker | None = None,
        rerank_top: int = 50,
        explain: bool = False,
        explainers: Sequence[Explainer] = (),
    ) -> Iterator[QueryResult]:
        """`search` for any number of queries, in batches that share a pass over the vectors. `explainers` explain what
        models compute, besides what `explain` does."""
        check_choice("method", method, get_args(Method))
        if top < 1:
            raise InputError(f"top is {top}; expected a number of texts, at least 1")
        reranker = Reranker(rerank) if isinstance(rerank, FineTunedModel) else rerank
        if approximate:
            self._check_approximate()
        if method == "splade" and self.manifest.sparse is None:
            raise InputError(
                f"no sparse vectors in {self.name}; name a model for them when the texts are indexed (--sparse MODEL), "
                "or choose another method"
            )
        if method in ("splade", "hybrid"):
            self.loaded_sparse_model()
        if method in ("dense", "hybrid") and self._engine is None:
            self.load_model()
        wanted = max(top, rerank_top) if rerank is not None else top
        source = iter(queries)
        while batch := list(islice(source, BATCH)):
            try:
                rankings = self._rank(batch, wanted, method, approximate)
            except IndexError:  # a file names rows that do not exist
                raise RegardError(f"{self.name} is damaged; restore it from a copy, or build the index again") from None
            for query, ranking in zip(batch, rankings, strict=True):
                positions, scores = self._best(query, ranking, top, reranker)
                reasons = self._explain(query, positions, method, wanted, approximate) if explain else None
                yield self._result(query, positions, scores, reasons, explainers)

    def _check_approximate(self) -> None:
        from regard.inference.search.approximate import MIN_ROWS

        if not any(one.is_approximate for one in self.segments):
            raise InputError(
                f"{self.name} has no approximate index; build one of at least {MIN_ROWS:,} texts with "
                "`regard index --approximate`, or search exactly"
            )

    def _rank(self, queries: list[str], top: int, method: Method, approximate: bool) -> list[Ranking]:
        if not len(self):
            return [Ranking.empty() for _ in queries]
        if method == "dense":
            return self._rank_dense(queries, top, approximate)
        if method == "splade":
            return self._rank_sparse(queries, top)
        words = [segment.postings for segment in self.segments]
        depth = max(FUSED, top) if method == "hybrid" else top
        found = [search_bm25(query, words, depth, deleted=self.deleted) for query in queries]
        if method == "bm25":
            return found
        parts = [self._rank_dense(queries, depth, approximate), found]
        if self.manifest.sparse is not None:
            parts.append(self._rank_sparse(queries, depth))
        return [fuse_ranks(of_query, top) for of_query in zip(*parts, strict=True)]

    def sparse_rows(self, queries: list[str]) -> list[SparseRow]:
        """The sparse vectors of queries."""
        assert self._sparse is not None
        return [SparseRow(*row) for row in self._sparse.encode(queries)]

    def _rank_sparse(self, queries: list[str], top: int) -> list[Ranking]:
        parts = [segment.sparse_postings for segment in self.segments]
        return [search_sparse(row, parts, top, deleted=self.deleted) for row in self.sparse_rows(queries)]

    def _rank_dense(self, queries: list[str], top: int, approximate: bool) -> list[Ranking]:
        assert self._engine is not None
        vectors = self._engine.embed(queries)
        parts: list[list[Ranking]] = []
        for segment, base in zip(self.segments, self.bases, strict=False):
            first, last = np.searchsorted(self.deleted, (base, base + segment.rows))
            deleted = self.deleted[first:last] - base if last > first else None
            rankings = segment.search(vectors, top, deleted=deleted, approximate=approximate)
            parts.append([Ranking(one.positions + base, one.scores) for one in rankings])
        if len(parts) == 1:
            return parts[0]
        return [Ranking.merge(of_query, top) for of_query in zip(*parts, strict=True)]

    def _best(
        self, query: str, ranking: Ranking, top: int, reranker: AnyReranker | None
    ) -> tuple[Positions, Sequence[float]]:
        """The positions of the best texts of a ranking, by the reranker if there is one, and their scores."""
        if reranker is None:
            return ranking.positions[:top], ranking.scores[:top].tolist()
        texts = [self.document(int(position)).text for position in ranking.positions]
        relevance = drain(reranker.steps(query, texts))
        order = sorted(range(len(texts)), key=lambda position: -relevance[position].logit)[:top]
        return ranking.positions[order], [relevance[position].score for position in order]

    def _explain(
        self, query: str, positions: Positions, method: Method, depth: int, approximate: bool
    ) -> list[list[Explanation]]:
        """For each row what adds up to its score, as far as no model computes it."""
        reasons: list[list[Explanation]] = []
        sparse = method == "splade" or (method == "hybrid" and self.manifest.sparse is not None)
        if method == "hybrid":
            methods: list[Method] = ["dense", "bm25"]
            methods += ["splade"] if sparse else []
            depth = max(FUSED, depth)
            rankings = [(one, self._rank([query], depth, one, approximate)[0]) for one in methods]
            reasons.append(explain_fusion(rankings, positions))
        if method in ("bm25", "hybrid"):
            reasons.append(explain_bm25(query, [one.postings for one in self.segments], positions))
        if sparse:
            assert self._sparse is not None
            parts = [one.sparse_postings for one in self.segments]
            reasons.append(explain_sparse(self.sparse_rows([query])[0], parts, positions, self._sparse.columns))
        return [[of_method[number] for of_method in reasons] for number in range(len(positions))]

    def _result(
        self,
        query: str,
        positions: Positions,
        scores: Sequence[float],
        reasons: list[list[Explanation]] | None,
        explainers: Sequence[Explainer],
    ) -> QueryResult:
        found = [self.document(int(position)) for position in positions]
        for explainer in explainers if reasons else ():
            for of_row, one in zip(reasons or (), explainer(query, [one.text for one in found]), strict=True):
                of_row.append(one)
        words = set(words_of(query))
        hits = [
            Hit(
                rank=rank,
                id=one.id,
                row=one.row,
                score=score,
                text=one.text,
                columns=one.columns,
                matches=find_words(one.text, words),
                explanation=None if reasons is None else reasons[rank - 1],
            )
            for rank, (one, score) in enumerate(zip(found, scores, strict=True), 1)
        ]
        return QueryResult(query=query, hits=hits)

    def add(
        self,
        source: Any,
        *,
        columns: Sequence[str] | str | None = None,
        keep: Sequence[str] | str = (),
        id: str | None = None,
        missing: str = "keep",
        on_event: Callable[[Event], object] | None = None,
    ) -> int:
        """Add texts and return their number; the arguments are those of `regard.index`. Until all of them are embedded,
        the index on the disk stays as it is."""
        from regard.inference.search.build import check_source, column_list, index_events, text_table

        check_source(source)
        events = index_events(
            source,
            self.folder,
            lambda name: self.loaded_model(),
            load_sparse=lambda name: self.loaded_sparse_model(),
            table=text_table(columns, missing),
            keep=column_list(keep),
            id_column=id,
            append=True,
        )
        added, _ = drain(events, on_event)
        self.reopen()
        self.warn()
        return added

    def loaded_model(self) -> LoadedModel:
        """The model of the index, loaded if it is not yet."""
        if self._loaded is None:
            self.load_model()
        assert self._loaded is not None
        return self._loaded

    def engine(self) -> EmbeddingEngine:
        """The engine of queries."""
        self.loaded_model()
        assert self._engine is not None
        return self._engine

    def duplicates(self, threshold: float = 0.9) -> DuplicatesResult:
        """Groups of near-duplicates: texts with a cosine similarity of `threshold` or more."""
        from regard.inference.search.duplicates import find_duplicates

        return drain(find_duplicates(self, threshold=threshold))

    def cluster(self, num_clusters: int | None = None, *, seed: int = 0) -> ClusterResult:
        """Clusters of texts by k-means; without a number, the one with the best silhouette is chosen."""
        from regard.inference.search.clusters import find_clusters

        return drain(find_clusters(self, num_clusters=num_clusters, seed=seed))

    def delete(self, ids: Iterable[str | int]) -> int:
        """Delete texts by their ids and return their number. An id that is not in the index is an InputError."""
        return drain(self.delete_steps(ids))

    def delete_steps(self, ids: Iterable[str | int]) -> Generator[Event, None, int]:
        """`delete` with events of compaction, which follows when a quarter of the rows is deleted."""
        wanted = {str(one) for one in ([ids] if isinstance(ids, str | int) else ids)}
        with durable_folder(self.folder).locked():
            self.reopen()
            found = {str(one.id): position for position, one in self.documents() if str(one.id) in wanted}
            if missing := sorted(wanted - set(found)):
                more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
                raise InputError(f"{self.name} has no text with the id {missing[0]!r}{more}; nothing was deleted")
            if found:
                deleted = np.union1d(self.deleted, np.array(list(found.values()), dtype=np.int64))
                manifest = write_deleted(self.folder, self.manifest, deleted)
                if needs_compaction(manifest):
                    manifest = yield from compact(self.folder, manifest)
                remove_unused(self.folder, manifest)
        self.reopen()
        return len(found)

    def compact(self) -> None:
        """Remove deleted rows from the disk and join all segments."""
        with durable_folder(self.folder).locked():
            self.reopen()
            manifest = drain(compact(self.folder, self.manifest))
            remove_unused(self.folder, manifest)
        self.reopen()

    def verify(self) -> None:
        """Compare all files with their checksums; RegardError names one that is damaged."""
        verify(self.folder, self.manifest)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a copy of the index to a new folder; from now on that folder is the index."""
        target = Path(folder)
        if is_index(target) or (target.is_dir() and os.listdir(target)):
            raise InputError(f"{target} is not empty; choose a new folder")
        with replace_folder(target) as staging:
            self.manifest.write(staging)
            for one in self.manifest.segments:
                shutil.copytree(self.folder / "segments" / one.name, staging / "segments" / one.name)
            if self.manifest.deleted is not None:
                shutil.copy2(self.folder / self.manifest.deleted[0], staging)
        before, self.folder, self._temporary = self._temporary, target, None
        self.reopen()
        if before is not None:
            before.cleanup()


def require_reranker(name_or_path: str | os.PathLike[str]) -> None:
    """InputError unless a model has a task head, or a vector for each token; `reranker_of` looks at what it is."""
    if not is_multi_vector(find_folder(name_or_path)):
        require_fine_tuned(name_or_path)


def reranker_of(loaded: LoadedModel, *, precision: InferencePrecision | None = None) -> AnyReranker:
    """The reranker of a model: of pairs of texts, or by the vectors of tokens."""
    if loaded.folder is not None and is_multi_vector(loaded.folder):
        return MaxSimReranker(loaded, precision=precision)
    return Reranker(fine_tuned_of(loaded).with_precision(precision))


def load_reranker(name_or_path: str | os.PathLike[str]) -> AnyReranker:
    """Load a reranker of either kind."""
    from regard.inference.load_model import load_model

    if is_multi_vector(find_folder(name_or_path)):
        return MaxSimReranker(load_model(name_or_path))
    return Reranker(load_fine_tuned(name_or_path))


def engine_of(record: ModelRecord, loaded: LoadedModel, name: str) -> EmbeddingEngine:
    """The engine of a model as an index uses it for queries; InputError if it is not the model of the index."""
    engine = load_engine(loaded, **record.options(query=True))
    if weights_of(loaded, engine.settings) != record.weights or (
        record.modules and engine.settings.digest != record.modules
    ):
        raise InputError(
            f"{name} was built with the model {record.name}, and {loaded.name or 'the given model'} has other weights, "
            "modules or another tokenizer, so its vectors cannot be compared; use the same model, or build the index "
            "again"
        )
    return engine


def weights_of(loaded: LoadedModel, settings: SentenceSettings) -> str:
    """The hash of a model's weights and of the tokenizer as it is used with the settings of its folder."""
    tokenizer = loaded.tokenizer.lowercased() if settings.do_lower_case else loaded.tokenizer
    return weights_digest(replace(loaded, tokenizer=tokenizer))


def sparse_engine_of(record: SparseRecord, loaded: LoadedModel, name: str) -> SparseEngine:
    """The engine of a sparse model as an index uses it; InputError if it is another model than that of the index."""
    engine = SparseEngine(loaded, max_length=record.max_length)
    if (weights_of(loaded, engine.settings), engine.digest()) != (record.weights, record.settings):
        raise InputError(
            f"{name} has sparse vectors of the model {record.name}, and {loaded.name or 'the given model'} has other "
            "weights, another tokenizer or other settings; use the same model, or build the index again"
        )
    return engine


def open_index(folder: str | os.PathLike[str]) -> Index:
    """Open an index that `regard index` or `regard.index` wrote, in constant time."""
    return Index(Path(os.path.expanduser(folder)))
