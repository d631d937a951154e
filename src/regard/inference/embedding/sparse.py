"""Sparse vectors (SPLADE): one weight for each token of the vocabulary, of which few are not zero.

w(t) = max or sum over the tokens of a text of log(1 + relu(logit of t)), where the logits are those of the masked-LM
head (Formal et al., 2021). The head is applied to some tokens at a time, so that tokens x vocabulary is never in memory
as a whole. Queries of an inference-free model (Geng et al., 2024) have a fixed weight for each of their tokens.

The folders are those of sentence-transformers' SparseEncoder, or of a masked language model alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.cancellation import check_cancelled
from regard.checkpoints.files import read_tensors
from regard.checkpoints.loaded_model import LoadedModel
from regard.checkpoints.module_folders import (
    HARMLESS_MODEL,
    HARMLESS_TRANSFORMER,
    MODEL_CONFIG,
    ConfigKeys,
    Module,
    model_type,
    read_modules,
)
from regard.engine.batches import check_finite, packed_batches, to_device
from regard.engine.precision import compare_precisions, inference_copy
from regard.errors import InputError, check_choice
from regard.events import drain
from regard.files.json_files import read_json
from regard.inference.embedding.engine import EmbeddingEngine, LongTexts
from regard.inference.embedding.sentence_transformers import SPARSE, TASK_PROMPTS, SentenceSettings, Task
from regard.text import TokenIds, Tokenizer

POOLINGS = ("max", "sum")
ACTIVATIONS = {"relu": 1, "log1p_relu": 2}  # how often log(1 + x) is applied to what is above zero
HEAD_FLOATS = {"cpu": 1 << 24, "cuda": 1 << 28}  # logits in memory at once


@dataclass(frozen=True, eq=False)
class SparseVectors:
    """Rows of a sparse matrix (CSR): row i has `values` in the columns `indices`, both from starts[i] to starts[i + 1],
    in the order of the columns."""

    starts: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    width: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __iter__(self) -> Iterator[tuple[NDArray[np.int32], NDArray[np.float32]]]:
        return map(self.row, range(len(self)))

    def row(self, number: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The columns and values of a row."""
        part = slice(int(self.starts[number]), int(self.starts[number + 1]))
        return self.indices[part], self.values[part]

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts)

    def toarray(self) -> NDArray[np.float32]:
        """The dense matrix, (rows, width)."""
        dense = np.zeros((len(self), self.width), dtype=np.float32)
        dense[np.repeat(np.arange(len(self)), self.lengths), self.indices] = self.values
        return dense

    def select(self, rows: NDArray[np.int64]) -> SparseVectors:
        """Rows in another order; a negative number is an empty row."""
        lengths = np.where(rows >= 0, self.lengths[rows] if len(self) else 0, 0)
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        first = self.starts[rows] if len(self) else np.zeros_like(rows)
        source = np.repeat(first - starts[:-1], lengths) + np.arange(starts[-1])
        return SparseVectors(starts, self.indices[source], self.values[source], self.width)

    @staticmethod
    def join(parts: Sequence[SparseVectors], width: int) -> SparseVectors:
        """Rows one below the other."""
        lengths = np.concatenate([np.zeros(0, dtype=np.int64), *(part.lengths for part in parts)])
        return SparseVectors(
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            np.concatenate([np.zeros(0, dtype=np.int32), *(part.indices for part in parts)]),
            np.concatenate([np.zeros(0, dtype=np.float32), *(part.values for part in parts)]),
            width,
        )


@dataclass(frozen=True)
class SparseSettings:
    """What a folder says of its sparse vectors. `static` is the folder of the weights of queries, `texts` how
    texts are read."""

    pooling: str = "max"
    activation: str = "relu"
    max_active_dims: int | None = None
    static: Path | None = None
    texts: SentenceSettings = field(default_factory=SentenceSettings)


def is_sparse_encoder(folder: Path) -> bool:
    """Whether sentence-transformers wrote a folder as a sparse encoder."""
    return model_type(folder) == SPARSE or any("SpladePooling" in module.kind for module in read_modules(folder))


def read_sparse_settings(folder: Path) -> SparseSettings:
    """Read the files of a SparseEncoder. InputError names what they have that Regard does not follow. A folder without
    them is a masked language model, which sentence-transformers gives the maximum of log(1 + relu(logit))."""
    modules, query = read_modules(folder), None
    if not modules:
        return SparseSettings()
    if [module.kind for module in modules] == ["Router"]:
        modules, query = _routes(modules[0])
    kinds = [module.kind for module in modules]
    if kinds not in (["Transformer", "SpladePooling"], ["MLMTransformer", "SpladePooling"]):
        raise InputError(
            f"{folder}: its modules are {', '.join(kinds)}; expected a sparse encoder: a Transformer that fills masks, "
            "and SpladePooling (or a Router with these for documents, and SparseStaticEmbedding for queries)"
        )
    texts, pooling = modules[0].keys(), modules[1].keys()
    task = texts.take("transformer_task", "fill-mask" if kinds[0] == "MLMTransformer" else None)
    if task != "fill-mask":
        raise InputError(f"{texts.path}: transformer_task is {task!r}; expected 'fill-mask' of a sparse encoder")
    texts.expect("do_lower_case", False)
    model = ConfigKeys(folder / MODEL_CONFIG)
    model.expect("model_type", SPARSE)
    model.expect("similarity_fn_name", "dot")
    prompts, _ = model.take_prompts(*TASK_PROMPTS)
    found = SparseSettings(
        pooling=pooling.take("pooling_strategy", "max"),
        activation=pooling.take("activation_function", "relu"),
        max_active_dims=model.take_count("max_active_dims"),
        static=query,
        texts=SentenceSettings(max_length=texts.take_count("max_seq_length"), prompts=prompts),
    )
    check_choice("pooling_strategy", found.pooling, POOLINGS)
    check_choice("activation_function", found.activation, tuple(ACTIVATIONS))
    texts.finish(HARMLESS_TRANSFORMER)
    pooling.finish(("embedding_dimension", "word_embedding_dimension"))
    model.finish(HARMLESS_MODEL)
    return found


def _routes(router: Module) -> tuple[list[Module], Path | None]:
    """The modules for documents, and the folder of the weights for queries."""
    routes = router.routes()
    if not {"document"} <= set(routes) <= {"document", "query"}:
        raise InputError(f"{router.folder}: its routes are {', '.join(routes)}; expected document and query")
    query = routes.get("query", routes["document"])
    if query == routes["document"]:
        return routes["document"], None
    kinds = [module.kind for module in query]
    if kinds != ["SparseStaticEmbedding"]:
        raise InputError(
            f"{router.folder}: the route of queries is {', '.join(kinds)}; expected SparseStaticEmbedding, or the "
            "modules of documents"
        )
    query[0].keys().finish(("frozen", "path"))
    return routes["document"], query[0].folder


class SparseEngine(EmbeddingEngine):
    """An embedding engine for sparse vectors: `encode` takes the position of `embed`.

    `task` says whether texts are queries or documents, which matters for prompts and for inference-free models.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        task: Task | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        max_active_dims: int | None = None,
        max_length: int | None = None,
        long: LongTexts = "cut",
        precision: str | None = None,
        settings: SparseSettings | None = None,
    ) -> None:
        task = task or "document"
        check_choice("task", task, ("document", "query"))
        if long == "windows":
            raise InputError("windows are for dense vectors; sparse ones are of the text's beginning: use cut or error")
        if settings is None:
            folder = loaded.folder
            settings = SparseSettings() if folder is None else read_sparse_settings(folder)
        from regard.inference.masked_lm import MaskedLM  # dense vectors do not need it

        masked = MaskedLM.from_model(loaded.model, loaded.tokenizer, purpose="embedding texts as sparse vectors")
        super().__init__(
            loaded.model,
            masked.tokenizer,
            pooling="max",
            max_length=max_length,
            settings=settings.texts,
            prompt=settings.texts.find_prompt(prompt, prompt_name, task),
            long=long,
            device=next(loaded.model.parameters()).device,
            precision=precision,
        )
        self.sparse, self.task, self.pooling = settings, task, settings.pooling
        self.max_active_dims = settings.max_active_dims if max_active_dims is None else max_active_dims
        self.width = len(masked.head.bias)
        self.static = None if settings.static is None or task != "query" else StaticWeights.read(settings.static)
        if self.static is not None and len(self.static.weights) != self.width:
            raise InputError(
                f"{settings.static}: it has {len(self.static.weights):,} weights, and the model has "
                f"{self.width:,} tokens"
            )

    def for_task(self, task: Task) -> SparseEngine:
        """The same model for queries or for documents."""
        loaded = LoadedModel("", self.model, self.tokenizer)
        options: Any = {"max_active_dims": self.max_active_dims, "max_length": self.max_length, "long": self.long}
        return SparseEngine(loaded, task=task, settings=self.sparse, precision=self.precision, **options)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The tokens of the columns; an output layer may be wider than the vocabulary."""
        tokens = {number: token for token, number in self.tokenizer.vocabulary.items()}
        return tuple(tokens.get(number, f"#{number}") for number in range(self.width))

    def encode(self, texts: Sequence[str]) -> SparseVectors:
        """One row per text, in order."""
        return drain(self.encode_steps(texts))

    def encode_steps(self, texts: Sequence[str]) -> Generator[int, None, SparseVectors]:
        """`encode` in steps, one per batch: yields the number of finished texts."""
        if self.static is not None:
            found = self.static.rows([self.prompt + text for text in texts], self.width)
            return _largest(found, self.max_active_dims)
        self.choose_precision(texts)
        positions: list[NDArray[np.int64]] = [np.zeros(0, dtype=np.int64)]
        parts: list[SparseVectors] = []
        finished = 0
        with self._settings(sum(map(len, texts))) as settings:
            for indices, tokens in packed_batches((window.pieces for window in self._windows(texts)), settings.tokens):
                check_cancelled()
                with torch.inference_mode():
                    parts += self._rows(tokens)
                positions.append(indices)
                finished += len(indices)
                yield finished
        order = np.empty(len(texts), dtype=np.int64)
        order[np.concatenate(positions)] = np.arange(len(texts))
        return SparseVectors.join(parts, self.width).select(order)

    def encode_ids(self, tokens: TokenIds) -> SparseVectors:
        """One row per sequence of token ids, special tokens included, in order."""
        positions: list[NDArray[np.int64]] = []
        parts: list[SparseVectors] = []
        with self._settings(0) as settings:
            for indices, part in packed_batches([tokens], settings.tokens):
                with torch.inference_mode():
                    parts += self._rows(part)
                positions.append(indices)
        return SparseVectors.join(parts, self.width).select(np.argsort(np.concatenate(positions)))

    def choose_precision(self, texts: Sequence[str]) -> None:
        """As for dense vectors, by the cosines of the sparse ones."""
        if self.precision != "auto":
            return
        sample = self.tokenize([text for text in texts if text.strip()][:8])

        def vectors(precision: str) -> Tensor:
            self._network = inference_copy(self.model, precision)
            return torch.from_numpy(SparseVectors.join(list(self._rows(sample)), self.width).toarray())

        found = compare_precisions(self.model, vectors)
        self.precision, self.choice = found.precision, str(found)

    def record(self) -> dict[str, object]:
        """What the vectors depend on besides the model and its files."""
        return {"task": self.task, "max_active_dims": self.max_active_dims}

    def digest(self) -> str:
        """A hash of what the settings of the folder say, with the weights of queries."""
        about = (self.sparse.pooling, self.sparse.activation, dict(self.sparse.texts.prompts))
        digest = hashlib.sha256(repr(about).encode())
        if self.sparse.static is not None:
            digest.update(StaticWeights.read(self.sparse.static).weights.tobytes())
        return digest.hexdigest()

    def _rows(self, tokens: TokenIds) -> Iterator[SparseVectors]:
        """The rows of a packed batch. The logits of as many tokens as fit are computed at once."""
        batch = to_device(tokens, self.device)
        hidden: Tensor = self._network(batch.ids, batch.layout)
        head: Any = self._network.mlm_head
        step = max(1, HEAD_FLOATS.get(self.device.type, 1 << 24) // self.width)
        ends = np.cumsum(tokens.lengths)
        reduce = torch.amax if self.sparse.pooling == "max" else torch.sum
        rest: Tensor | None = None  # of the text that the step before has not finished
        for start in range(0, int(ends[-1]), step):
            stop = min(start + step, int(ends[-1]))
            logits: Tensor = head(hidden[start:stop]).float()
            if self.sparse.pooling == "sum":
                logits = self._activate(logits)
            first, last = np.searchsorted(ends, (start, stop - 1), side="right")
            cuts = [start, *ends[first:last].tolist(), stop]
            rows = torch.stack([reduce(logits[a - start : b - start], dim=0) for a, b in pairwise(cuts)])
            if rest is not None:
                rows[0] = torch.maximum(rows[0], rest) if self.sparse.pooling == "max" else rows[0] + rest
            rest = None if stop == ends[last] else rows[-1]
            rows = rows if rest is None else rows[:-1]
            if self.sparse.pooling == "max":
                rows = self._activate(rows)  # which keeps the order, so that once per text suffices
            check_finite([rows])
            if len(rows):
                yield _largest(self._sparse(rows), self.max_active_dims)

    def _activate(self, logits: Tensor) -> Tensor:
        found = logits.relu()
        for _ in range(ACTIVATIONS[self.sparse.activation]):
            found = found.log1p()
        return found

    def _sparse(self, rows: Tensor) -> SparseVectors:
        positions = rows.nonzero(as_tuple=True)
        owners, columns, values = (one.cpu().numpy() for one in (*positions, rows[positions]))
        starts = np.searchsorted(owners, np.arange(len(rows) + 1))
        return SparseVectors(starts, columns.astype(np.int32), values, self.width)


def _largest(vectors: SparseVectors, count: int | None) -> SparseVectors:
    """The `count` largest values of each row; of equal ones the first columns."""
    if count is None or int(vectors.lengths.max(initial=0)) <= count:
        return vectors
    owners = np.repeat(np.arange(len(vectors)), vectors.lengths)
    order = np.lexsort((vectors.indices, -vectors.values, owners))
    ranks = np.arange(len(order)) - vectors.starts[owners]
    kept = np.sort(order[ranks < count])
    starts = np.concatenate([[0], np.cumsum(np.minimum(vectors.lengths, count))]).astype(np.int64)
    return SparseVectors(starts, vectors.indices[kept], vectors.values[kept], vectors.width)


@dataclass(frozen=True, eq=False)
class StaticWeights:
    """The weight of every token in a query, and the tokenizer of queries."""

    weights: NDArray[np.float32]
    tokenizer: Tokenizer

    @staticmethod
    def read(folder: Path) -> StaticWeights:
        tokenizer = Tokenizer.open(folder)
        name = read_json(folder / "config.json").get("path") if (folder / "config.json").is_file() else None
        if isinstance(name, str):
            return StaticWeights(_named_weights(folder / Path(name).name, tokenizer), tokenizer)
        tensors = read_tensors(folder)
        if set(tensors) != {"weight"} or tensors["weight"].dim() != 1:
            raise InputError(f"{folder}: expected one vector with the name weight, found {', '.join(tensors)}")
        return StaticWeights(tensors["weight"].float().numpy(), tokenizer)

    def rows(self, texts: Sequence[str], width: int) -> SparseVectors:
        """The weights of the different tokens of each text, without special ones."""
        ids = [one.ids for one in self.tokenizer.encode_batch(list(texts), add_special_tokens=False)]
        columns = [np.unique(np.array(row[: self.tokenizer.max_length], dtype=np.int32)) for row in ids]
        columns = [row[self.weights[row] != 0] for row in columns]
        indices = np.concatenate([np.zeros(0, dtype=np.int32), *columns])
        starts = np.concatenate([[0], np.cumsum([len(row) for row in columns])]).astype(np.int64)
        return SparseVectors(starts, indices, self.weights[indices].astype(np.float32), width)


def _named_weights(path: Path, tokenizer: Tokenizer) -> NDArray[np.float32]:
    """Weights by token; a token that is not named has none."""
    weights = np.zeros(tokenizer.size, dtype=np.float32)
    vocabulary = tokenizer.vocabulary
    for token, weight in read_json(path).items():
        if not isinstance(weight, int | float) or token not in vocabulary:
            raise InputError(f"{path}: {token!r} has {weight!r}; expected tokens of the vocabulary with their weights")
        weights[vocabulary[token]] = weight
    return weights
