"""`Embedder`: texts to vectors from any layer of any text model, as a scikit-learn transformer.

`EmbeddingEngine` does the work: tokenize, pack, run the required layers, pool. Texts are packed without padding, so a
text's vector does not depend on its batch. scikit-learn is imported only where its protocol requires its types.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.checkpoints.loaded_model import LoadedModel
from regard.checkpoints.loading import find_folder, load
from regard.data.batch import collate, group_by_token_budget
from regard.data.text_inputs import check_columns, read_texts, remember_columns
from regard.device import choose_device
from regard.errors import InputError, check_choice
from regard.events import drain
from regard.inference.causal_lm import split_special_tokens
from regard.inference.embedding.sentence_transformers import SentenceSettings, read_sentence_settings
from regard.known import DEFAULT_EMBEDDING_MODEL
from regard.nn.masks import Packed, first_tokens, length_groups
from regard.parameters import EstimatorParameters
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.text import Tokenizer

FORMS = "a number such as -1, or sum, mean or concat of a slice such as concat(-4:); 0 is the embedding output"
OPERATIONS = ("sum", "mean", "concat")


@dataclass(frozen=True)
class LayerSelection:
    """The `chosen` hidden states, combined by `operation` ("only" for a single one)."""

    operation: str
    chosen: tuple[int, ...]

    @staticmethod
    def parse(expression: int | str, count: int) -> LayerSelection:
        """Parse an expression for a model with `count` hidden states, numbered as in transformers."""
        text = str(expression).replace(" ", "")
        if re.fullmatch(r"[+-]?\d{1,9}", text):
            number = int(text)
            if not -count <= number < count:
                raise InputError(
                    f"layer {number} does not exist: this model has layers 0 to {count - 1} (or -{count} to -1)"
                )
            return LayerSelection("only", (number % count,))
        match = re.fullmatch(r"(\w+)\(([+-]?\d{0,9}):([+-]?\d{0,9})\)", text)
        if not match or match[1] not in OPERATIONS or isinstance(expression, bool):
            raise InputError(f"unknown layer expression {expression!r}: expected {FORMS}")
        start, stop = (int(part) if part else None for part in match.groups()[1:])
        chosen = tuple(range(count)[start:stop])
        if not chosen:
            raise InputError(f"{expression!r} selects none of this model's layers 0 to {count - 1}")
        return LayerSelection(match[1], chosen)

    @property
    def factor(self) -> int:
        """The width of the result as a multiple of the width of the model."""
        return len(self.chosen) if self.operation == "concat" else 1

    def join(self, states: Iterator[Tensor]) -> Tensor:
        """Combine the chosen states. Layers after the last chosen one are not computed."""
        selected = []
        for number, state in enumerate(states):
            if number in self.chosen:
                selected.append(state)
            if number == self.chosen[-1]:
                break
        if self.operation == "concat":
            return torch.cat(selected, dim=-1)
        total = selected[0]
        for state in selected[1:]:
            total = total + state
        return total / len(selected) if self.operation == "mean" else total


Pooling = Literal["cls", "mean", "max", "none"]
LongTexts = Literal["cut", "error", "windows"]
POOLINGS = get_args(Pooling)
LONGS = get_args(LongTexts)
BUDGET = {"cpu": 2048, "cuda": 65536}  # tokens a batch: on a CPU what the caches hold, on a GPU what fills it


class Embedder(EstimatorParameters):
    """Embeddings of texts as a scikit-learn transformer: float32, one row per text, in order.

    `model`: a folder, a built-in name, a Hugging Face hub name, or what `regard.load` returned.
    `layers`: counted as transformers' hidden states, 0 the embeddings' output, -1 the last with the final norm: a
    number, or `sum`, `mean` or `concat` of a slice, such as "concat(-4:)".
    `pooling`: "cls", "mean", "max", or "none" for a list of `TokenVectors`. The default is the mean, or what a
    sentence-transformers folder states.
    `normalize`: scale each vector to length 1; by default what such a folder states.
    `max_length`: in tokens; by default what the folder states or the model's positions. Longer texts are cut.

    X is a list, tuple or generator of texts, a Series, an array (n) or (n, 1), or a DataFrame with one column. A
    missing text (None, NaN) is an error that names its row. `set_output(transform="pandas")` returns DataFrames.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | tuple[nn.Module, Tokenizer | None] | FineTunedModel = DEFAULT_EMBEDDING_MODEL,
        *,
        layers: int | str = -1,
        pooling: str | None = None,
        normalize: bool | None = None,
        max_length: int | None = None,
        device: str = "auto",
    ) -> None:
        self.model = model
        self.layers = layers
        self.pooling = pooling
        self.normalize = normalize
        self.max_length = max_length
        self.device = device

    def fit(self, X: Any = None, y: Any = None) -> Embedder:
        """Nothing is learned from X but the name of its column; the model is loaded, so that a mistake shows here."""
        self._engine()
        if hasattr(X, "columns"):
            remember_columns(self, read_texts(X))
        return self

    def transform(self, X: Any) -> Any:
        """float32 (n, width); with pooling "none" a list of `TokenVectors`."""
        inputs = read_texts(X)
        check_columns(self, inputs)
        texts = [str(text) for text in inputs.present()]
        ready = self._engine()
        if ready.pooling == "none":
            return ready.embed_tokens(texts)
        return self._as_output(ready.embed(texts), inputs.index)

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        return self.fit(X).transform(X)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The names of the dimensions: embedder0, embedder1, and so on."""
        engine = self._engine()
        if engine.pooling == "none":
            raise InputError('pooling "none" gives a vector per token, which are no columns; choose another pooling')
        return np.array([f"embedder{index}" for index in range(engine.width)], dtype=object)

    def set_output(self, *, transform: Literal["default", "pandas", "polars"] | None = None) -> Embedder:
        """Choose what `transform` returns: an array ("default"), or a DataFrame of pandas or polars."""
        if transform is not None:
            check_choice("output", transform, ("default", "pandas", "polars"))
            self._sklearn_output_config = {"transform": transform}  # the name that scikit-learn's clone copies
        return self

    def _as_output(self, vectors: NDArray[np.float32], index: Any) -> Any:
        chosen = getattr(self, "_sklearn_output_config", {}).get("transform")
        if chosen is None and "sklearn" in sys.modules:
            chosen = sys.modules["sklearn"].get_config()["transform_output"]
        if chosen not in ("pandas", "polars"):
            return vectors
        names = list(self.get_feature_names_out())
        library: Any = import_module(chosen)
        if chosen == "pandas":
            return library.DataFrame(vectors, columns=names, index=index)
        return library.DataFrame(vectors, schema=names)

    def _engine(self) -> EmbeddingEngine:
        """The loaded model, kept until a parameter changes; never copied or pickled with the estimator."""
        wanted = self.get_params()
        held: tuple[Any, EmbeddingEngine] | None = self.__dict__.get("_held")
        if held is None or held[0] != wanted:
            held = wanted, load_engine(**wanted)
            self.__dict__["_held"] = held
        return held[1]

    def __getstate__(self) -> dict[str, Any]:
        learned = ("_sklearn_output_config", "feature_names_in_", "n_features_in_")
        return self.get_params() | {name: getattr(self, name) for name in learned if hasattr(self, name)}

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type="transformer",
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=[]),
            input_tags=InputTags(two_d_array=False, one_d_array=True, string=True),
            requires_fit=False,
        )


def load_engine(
    model: str
    | os.PathLike[str]
    | LoadedModel
    | tuple[nn.Module, Tokenizer | None]
    | FineTunedModel = DEFAULT_EMBEDDING_MODEL,
    *,
    pooling: str | None = None,
    normalize: bool | None = None,
    max_length: int | None = None,
    device: str = "auto",
    **options: Any,
) -> EmbeddingEngine:
    """Load a model for embedding; a `LoadedModel` stays on its device.

    Pooling None: what a sentence-transformers folder states, or mean. Normalize None: what the folder states, if the
    pooling is its own.
    """
    if isinstance(model, LoadedModel):
        folder, loaded, place = model.folder, model, next(model.model.parameters()).device
    elif isinstance(model, tuple | FineTunedModel):
        folder, loaded, place = None, LoadedModel("", *model), choose_device(device)
    else:
        folder, place = find_folder(model), choose_device(device)
        loaded = LoadedModel("", *load(folder))
    settings = SentenceSettings() if folder is None else read_sentence_settings(folder, pooling=pooling is None)
    if folder is not None and loaded.tokenizer is None and hasattr(loaded.model, "states"):
        Tokenizer.open(folder)  # says what the folder lacks
    if normalize is None:
        normalize = bool(settings.normalize) and pooling is None
    pooling = pooling or settings.pooling or "mean"
    return EmbeddingEngine(
        *loaded,
        pooling=pooling,
        normalize=normalize,
        max_length=max_length,
        stated=settings.max_length,
        device=place,
        **options,
    )


@dataclass(frozen=True, eq=False)
class TokenVectors:
    """The tokens of a text: vectors (T, W), character offsets [start, end) in the text, and word indices.

    Special tokens have empty offsets and the word index -1.
    """

    vectors: NDArray[np.float32]
    tokens: list[str]
    offsets: NDArray[np.int64]
    words: NDArray[np.int64]


class TextError(InputError):
    """The text at `index` cannot be embedded; a caller can name its line."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(index, reason)
        self.index, self.reason = index, reason

    def __str__(self) -> str:
        return f"text {self.index + 1} {self.reason}"


@dataclass(frozen=True)
class Pieces:
    """Token ids ready to run. `owner` is the index of the text of each piece: windows divide a text into several."""

    ids: list[list[int]]
    owner: list[int]


class EmbeddingEngine:
    """A model with its tokenizer and the settings of embedding; moved to `device` and into evaluation mode.

    `max_length` is the user's limit, `stated` the one in the model's files; `truncated` counts the texts that did not
    fit. `long` decides what happens to those: "cut" at the end, "error", or "windows" (full-length pieces whose vectors
    are averaged by length; the maximum with pooling "max").
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Tokenizer | None,
        *,
        layers: int | str = -1,
        pooling: str = "mean",
        normalize: bool = False,
        max_length: int | None = None,
        stated: int | None = None,
        long: LongTexts = "cut",
        device: torch.device | str = "cpu",
    ) -> None:
        family = getattr(getattr(model, "config", None), "family", type(model).__name__)
        if tokenizer is None or not hasattr(model, "states") or not hasattr(model, "embedding"):
            lacking = "layers" if tokenizer else "tokenizer"
            raise InputError(f"this {family} model cannot embed text: it has no {lacking} for it")
        if not isinstance(tokenizer, Tokenizer):  # the subwords of a translator
            raise InputError(f"this {family} model translates; expected a model that reads one text")
        if getattr(model.config, "num_characters", 0):
            raise InputError(f"this {family} model reads characters; expected one that reads a tokenizer's pieces")
        check_choice("pooling", pooling, POOLINGS)
        check_choice("way with long texts", long, LONGS)
        if pooling == "none" and long == "windows":
            raise InputError(
                "windows join the vectors of a text's pieces, and pooling none joins none; use cut or error"
            )
        self.model, self.tokenizer = model.to(device).eval(), tokenizer
        self.device = torch.device(device)
        config: Any = model.config
        self.layers = LayerSelection.parse(layers, config.num_hidden_layers + 1)
        self.pooling, self.normalize, self.long = pooling, normalize, long
        # An ELMo's vectors are those of both directions, one beside the other.
        self.width: int = getattr(config, "output_size", config.hidden_size) * self.layers.factor
        self.max_length = _limit(
            max_length, getattr(config, "max_position_embeddings", None), stated or tokenizer.max_length
        )
        around = len(tokenizer.encode("").ids)
        if self.max_length is not None and self.max_length <= around:
            raise InputError(
                f"max_length is {self.max_length}, and {around} special tokens leave no room for text in it"
            )
        self.truncated = 0

    def check_texts(self, texts: Sequence[str]) -> None:
        """Raise the errors of `embed` for these texts after tokenizing them only."""
        self._pieces(texts)

    def embed(self, texts: Sequence[str], *, on_progress: Callable[[int], None] | None = None) -> NDArray[np.float32]:
        """One vector per text, float32 (n, width), in order; `on_progress` gets the number of finished texts."""
        return drain(self.embed_steps(texts), on_progress)

    def embed_steps(self, texts: Sequence[str]) -> Generator[int, None, NDArray[np.float32]]:
        """`embed` in steps, one per batch: yields the number of finished texts and returns the vectors."""
        if self.pooling == "none":
            raise InputError('pooling "none" gives one vector per token: call embed_tokens() instead')
        pieces = self._pieces(texts)
        vectors = np.empty((len(pieces.ids), self.width), dtype=np.float32)
        finished = 0
        for group, hidden, layout in self._run(pieces.ids):
            vectors[group] = self._pool(hidden, layout).float().cpu().numpy()
            finished += len(group)
            yield len(texts) * finished // len(pieces.ids)
        if len(pieces.ids) > len(texts):
            vectors = self._joined(vectors, pieces, len(texts))
        if self.normalize:
            vectors = F.normalize(torch.from_numpy(vectors), dim=-1).numpy()
        return vectors

    def embed_tokens(self, texts: Sequence[str]) -> list[TokenVectors]:
        """The vector of every token with its offsets in the text, special tokens included."""
        if self.pooling != "none":
            raise InputError(f'pooling "{self.pooling}" gives one vector per text: call embed() instead')
        encodings = self.tokenizer.encode_batch(list(texts), max_length=self.max_length)
        self._count(texts, [e.num_truncated for e in encodings])
        ids = [e.ids for e in encodings]
        _refuse_empty(ids)
        found: list[TokenVectors | None] = [None] * len(ids)
        for group, hidden, layout in self._run(ids):
            if self.normalize:
                hidden = F.normalize(hidden, dim=-1)
            ends = np.cumsum(layout.lengths)[:-1]
            for place, vectors in zip(group, np.split(hidden.float().cpu().numpy(), ends), strict=True):
                e = encodings[place]
                found[place] = TokenVectors(
                    vectors,
                    e.tokens,
                    np.array(e.offsets, dtype=np.int64).reshape(-1, 2),
                    np.array([-1 if word is None else word for word in e.words], dtype=np.int64),
                )
        return [one for one in found if one is not None]

    def _run(self, ids: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], Tensor, Packed]]:
        """Batches of similar lengths: the indices of their texts, the hidden states (N, W), the layout."""
        states: Callable[..., Iterator[Tensor]] = self.model.states  # type: ignore[assignment]
        for group in group_by_token_budget([len(one) for one in ids], BUDGET[self.device.type]):
            batch = collate([ids[place] for place in group]).to(self.device)
            assert isinstance(batch.layout, Packed)
            with torch.inference_mode():  # left before the yield, or the caller would be in it too
                hidden = self.layers.join(states(batch.ids, batch.layout))
            yield group, hidden, batch.layout

    def _pool(self, hidden: Tensor, layout: Packed) -> Tensor:
        if self.pooling == "cls":
            return first_tokens(hidden, layout)
        rectangles = (run.select_queries(hidden) for run in length_groups(layout, layout))
        return torch.cat([x.mean(1) if self.pooling == "mean" else x.amax(1) for x in rectangles])

    def _pieces(self, texts: Sequence[str]) -> Pieces:
        ids, gone = self.tokenizer.ids_batch(
            list(texts), max_length=None if self.long == "windows" else self.max_length
        )
        if self.long == "windows" and self.max_length is not None:
            gone = [max(0, len(one) - self.max_length) for one in ids]
        self._count(texts, gone)
        _refuse_empty(ids)
        if self.long != "windows" or not any(gone):
            return Pieces(ids, list(range(len(ids))))
        pieces = Pieces([], [])
        for place, (text, one) in enumerate(zip(texts, ids, strict=True)):
            windows = self._windows(text) if gone[place] else [one]
            pieces.ids.extend(windows)
            pieces.owner.extend([place] * len(windows))
        return pieces

    def _windows(self, text: str) -> list[list[int]]:
        """A long text in pieces that fit, each with its own special tokens."""
        before, body, after = split_special_tokens(self.tokenizer.encode(text))
        assert self.max_length is not None
        size = self.max_length - len(before) - len(after)
        return [before + body[i : i + size] + after for i in range(0, len(body), size)]

    def _joined(self, vectors: NDArray[np.float32], pieces: Pieces, count: int) -> NDArray[np.float32]:
        owner = np.array(pieces.owner)
        starts = np.searchsorted(owner, np.arange(count))
        if self.pooling == "max":
            return np.maximum.reduceat(vectors, starts)
        weights = np.array([len(ids) for ids in pieces.ids], dtype=np.float32)[:, None]
        total = np.add.reduceat(vectors * weights, starts) / np.add.reduceat(weights, starts)
        return total.astype(np.float32, copy=False)

    def _count(self, texts: Sequence[str], gone: Sequence[int]) -> None:
        over = [place for place, count in enumerate(gone) if count]
        if over and self.long == "error":
            place = over[0]
            raise TextError(
                place,
                f"({texts[place][:40]!r}...) has {gone[place]} tokens more than the {self.max_length} that fit; "
                "shorten it, or choose cut or windows",
            )
        self.truncated += len(over)


def _limit(wanted: int | None, positions: int | None, stated: int | None) -> int | None:
    """The maximum number of tokens. The user's limit overrides the folder's; neither can exceed the positions."""
    if wanted is not None and (isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 1):
        raise InputError(f"max_length is {wanted!r}; expected a number of tokens, at least 1")
    if wanted is not None and positions is not None and wanted > positions:
        raise InputError(f"max_length is {wanted}, but this model has only {positions} positions")
    found = [n for n in (wanted, positions) if n is not None] if wanted else [n for n in (positions, stated) if n]
    return min(found, default=None)


def _refuse_empty(ids: Sequence[Sequence[int]]) -> None:
    for place, one in enumerate(ids):
        if not one:
            raise TextError(place, "has no tokens for this model; leave it out or give it a word")
