"""`EmbeddingEngine`: tokenizes texts, packs them, runs the required layers and pools.

Texts are packed without padding, so a text's vector does not depend on its batch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress, islice
from typing import Any, Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.checkpoints.loaded_model import LoadedModel
from regard.checkpoints.loading import find_folder, load
from regard.data.batch import Batch
from regard.data.prefetch import prefetch_map
from regard.device import choose_device
from regard.engine.batches import check_finite, packed_batches, responsive_threads, run_batches, to_device
from regard.engine.graphs import GraphedForward, depends_on_lengths
from regard.engine.precision import compare_precisions, inference_copy, resolve_precision
from regard.engine.tuning import CpuSettings, cpu_settings
from regard.errors import InputError, check_choice
from regard.events import drain
from regard.files.json_files import read_json
from regard.inference.causal_lm import split_special_tokens
from regard.inference.embedding.modules import Normalize
from regard.inference.embedding.sentence_transformers import SentenceSettings, Task, read_sentence_settings
from regard.known import DEFAULT_EMBEDDING_MODEL
from regard.models.family import can
from regard.nn.pooling import POOLINGS, pool
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.text import TokenIds, Tokenizer

LongTexts = Literal["cut", "error", "windows"]
LONGS = get_args(LongTexts)
SAMPLE = 32  # texts on which precisions are compared
TOKENIZER_THREADS = 1  # more would only take turns with the thread that feeds the GPU
TASK_HEADS = re.compile("For(SequenceClassification|TokenClassification|QuestionAnswering|MultipleChoice)$")
LAYER_FORMS = "a number such as -1, or sum, mean or concat of a slice such as concat(-4:); 0 is the embedding output"
LAYER_OPERATIONS = ("sum", "mean", "concat")
FIRST_WINDOW, WINDOW = 1 << 15, 1 << 17  # characters of text that are sorted by length together


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
        if not match or match[1] not in LAYER_OPERATIONS or isinstance(expression, bool):
            raise InputError(f"unknown layer expression {expression!r}: expected {LAYER_FORMS}")
        start, stop = (int(part) if part else None for part in match.groups()[1:])
        chosen = tuple(range(count)[start:stop])
        if not chosen:
            raise InputError(f"{expression!r} selects none of this model's layers 0 to {count - 1}")
        return LayerSelection(match[1], chosen)

    @property
    def factor(self) -> int:
        """The width of the result as a multiple of the width of the model."""
        return len(self.chosen) if self.operation == "concat" else 1

    def select(self, states: Iterable[Tensor]) -> Iterator[Tensor]:
        """The chosen ones of all states. Layers after the last of them are not computed."""
        numbers = range(self.chosen[-1] + 1)
        return compress(islice(states, len(numbers)), map(self.chosen.__contains__, numbers))

    def join(self, selected: Sequence[Tensor]) -> Tensor:
        """Combine the chosen states."""
        if self.operation == "concat":
            return torch.cat(list(selected), dim=-1)
        total = selected[0]
        for state in selected[1:]:
            total = total + state
        return total / len(selected) if self.operation == "mean" else total


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
    prompt: str | None = None,
    prompt_name: str | None = None,
    task: Task | None = None,
    device: str = "auto",
    **options: Any,
) -> EmbeddingEngine:
    """Load a model for embedding; a `LoadedModel` stays on its device.

    Pooling None: what a sentence-transformers folder states with its modules, or mean; another pooling is used without
    these. Normalize None: what the folder states, if the pooling is its own. `prompt`, or the prompt of the folder with
    the name `prompt_name`, is put before every text; by default it is the folder's default prompt. With a `task` it is
    that of a side of a search, and vectors are normalized unless the folder compares them by their inner product.
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
    if normalize is False and settings.modules and isinstance(settings.modules[-1], Normalize):
        settings = replace(settings, modules=settings.modules[:-1])
    if normalize is None:
        normalize = bool(settings.normalize) if task is None else normalizes_for_search(settings)
    return EmbeddingEngine(
        *loaded,
        pooling=pooling or settings.pooling or "mean",
        normalize=normalize,
        max_length=max_length,
        prompt=settings.find_prompt(prompt, prompt_name, task),
        settings=settings,
        device=place,
        **options,
    )


def normalizes_for_search(settings: SentenceSettings) -> bool:
    """Whether vectors that are compared by their inner products are normalized first, so that it is the cosine."""
    if settings.similarity == "dot":
        return bool(settings.normalize)
    if settings.similarity != "cosine" and not (settings.similarity == "euclidean" and settings.normalize):
        raise InputError(
            f"this model's vectors are compared by their {settings.similarity} distance (similarity_fn_name), which "
            "search does not support; expected cosine or dot. To compare them by their cosine, choose a pooling"
        )
    return True


def describe_missing_head(loaded: LoadedModel) -> str | None:
    """Say that embeddings do not use the task head of a model; None if it has none."""
    kind = ""
    if loaded.fine_tuned is not None:
        kind = f"it was fine-tuned to {loaded.fine_tuned.task.name}"
    elif loaded.folder is not None and (loaded.folder / "config.json").is_file():
        names = read_json(loaded.folder / "config.json").get("architectures")
        heads = [name for name in names if TASK_HEADS.search(str(name))] if isinstance(names, list) else []
        kind = f"it is a {heads[0]}" if heads else ""
    return f"{loaded.name}: embeddings are those of the encoder, without the task head ({kind})" if kind else None


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


@dataclass(frozen=True, eq=False)
class TextWindow:
    """Texts that are sorted by length together, from index `start` on, with the tokens that do not fit of each.

    `owner` is the index of the text of each piece, if long texts are divided into several; else None.
    """

    start: int
    texts: Sequence[str]
    pieces: TokenIds
    num_truncated: NDArray[np.int64]
    owner: NDArray[np.int64] | None = None


class EmbeddingEngine:
    """A model with its tokenizer and the settings of embedding; moved to `device` and into evaluation mode.

    `max_length` is the user's limit, `settings` are those in the model's files; `truncated` counts the texts that did
    not fit. `long` decides what happens to those: "cut" at the end, "error", or "windows" (full-length pieces whose
    pooled vectors are averaged by length; the maximum with pooling "max"). `prompt` is put before every text, and into
    every piece. `precision` is that of `Embedder`; with "auto" the first texts decide, and `choice` describes the
    decision.
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
        prompt: str = "",
        settings: SentenceSettings | None = None,
        long: LongTexts = "cut",
        device: torch.device | str = "cpu",
        precision: str | None = None,
    ) -> None:
        family = getattr(getattr(model, "config", None), "family", type(model).__name__)
        if tokenizer is None or not hasattr(model, "states") or not hasattr(model, "embedding"):
            lacking = "layers" if tokenizer else "tokenizer"
            if can(model, "image-text"):
                raise InputError(f"this {family} model compares texts with images: use `regard similarity`")
            raise InputError(f"this {family} model cannot embed text: it has no {lacking} for it")
        if not isinstance(tokenizer, Tokenizer):  # the subwords of a translator
            raise InputError(f"this {family} model translates; expected a model that reads one text")
        if getattr(model.config, "num_characters", 0):
            raise InputError(f"this {family} model reads characters; expected one that reads a tokenizer's pieces")
        for mode in pooling.split("+"):
            check_choice("pooling", mode, (*POOLINGS, "none"))
        check_choice("way with long texts", long, LONGS)
        if pooling == "none" and long == "windows":
            raise InputError(
                "windows join the vectors of a text's pieces, and pooling none joins none; use cut or error"
            )
        self.settings = settings = settings or SentenceSettings()
        self.model = model.to(device).eval()
        self.tokenizer = tokenizer.lowercased() if settings.do_lower_case else tokenizer
        self.device = torch.device(device)
        self.precision = resolve_precision(precision, self.device, self.model)
        self.choice = ""
        self._network: nn.Module = self.model
        self._graphs: tuple[tuple[nn.Module, int, int], GraphedForward] | None = None
        config: Any = model.config
        self.layers = LayerSelection.parse(layers, config.num_hidden_layers + 1)
        self.pooling, self.normalize, self.long = pooling, normalize, long
        # An ELMo's vectors are those of both directions, one beside the other.
        width: int = getattr(config, "output_size", config.hidden_size) * self.layers.factor
        self.pooled_width = width * len(pooling.split("+"))
        self.width = settings.width(self.pooled_width)
        self._modules = [module.to(device) for module in settings.modules]
        self.max_length = _limit(
            max_length, getattr(config, "max_position_embeddings", None), settings.max_length or tokenizer.max_length
        )
        self._joins_pieces = long == "windows" and self.max_length is not None
        self.use_prompt(prompt)
        self.truncated = 0

    def use_prompt(self, prompt: str) -> None:
        """Put a prompt before every text."""
        self._skip = self.prompt_length(prompt)
        self.prompt = prompt

    def prompt_length(self, prompt: str) -> int:
        """The number of tokens of a prompt that the pooling leaves out, counted as sentence-transformers does: with
        the special tokens before it. InputError if the prompt leaves no room for a text."""
        ids = self.tokenizer.encode(prompt).ids
        if self.max_length is not None and self.max_length <= len(ids):
            around = len(self.tokenizer.encode("").ids)
            of_prompt = f" and {len(ids) - around} tokens of the prompt" if prompt else ""
            raise InputError(
                f"max_length is {self.max_length}, and {around} special tokens{of_prompt} leave no room for text in it"
            )
        if self.settings.include_prompt or not prompt:
            return 0
        return len(ids) - (ids[-1] in self.tokenizer.special_token_ids)

    def tokenize(self, texts: Sequence[str], *, prompt: str | None = None, cut: bool = True) -> TokenIds:
        """The ids of texts behind a prompt, by default that of the engine; `cut`: at most `max_length` each."""
        prompt = self.prompt if prompt is None else prompt
        inputs = [prompt + text for text in texts] if prompt else texts
        return self.tokenizer.encode_ids(inputs, max_length=self.max_length if cut else None)

    def check_texts(self, texts: Sequence[str]) -> None:
        """Raise the errors of `embed` for these texts after tokenizing them only."""
        self._check(self._window(texts, 0))

    def embed(self, texts: Sequence[str], *, on_progress: Callable[[int], None] | None = None) -> NDArray[np.float32]:
        """One vector per text, float32 (n, width), in order; `on_progress` gets the number of finished texts."""
        vectors = np.empty((len(texts), self.width), dtype=np.float32)
        drain(self.embed_steps(texts, vectors), on_progress)
        return vectors

    def embed_steps(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> Generator[int, None, None]:
        """`embed` into `vectors` in steps, one per batch: yields the number of finished texts."""
        if self.pooling == "none":
            raise InputError('pooling "none" gives one vector per token: call embed_tokens() instead')
        if not texts:
            return
        self.choose_precision(texts)
        parts: list[tuple[NDArray[np.int64], NDArray[np.float32]]] = []  # of texts that are divided into pieces
        owners: list[NDArray[np.int64]] = []
        lengths: list[NDArray[np.int64]] = []
        finished, result = 0, torch.from_numpy(vectors)
        with self._settings(sum(map(len, texts))) as settings, responsive_threads():

            def pieces() -> Iterator[TokenIds]:
                for window in self._windows(texts):
                    if window.owner is not None:
                        owners.append(window.start + window.owner)
                        lengths.append(window.pieces.lengths)
                    yield window.pieces

            forward = self._forward(settings.tokens, self._skip)
            for work in run_batches(packed_batches(pieces(), settings.tokens), self.device):
                indices, tokens = work.batch
                if work.result is None:
                    with torch.inference_mode():  # left before the yield, or the caller would be in it too
                        work.result = forward(tokens)[: len(tokens)]
                    continue
                check_finite([work.result])
                if self._joins_pieces:
                    parts.append((indices, work.result.numpy()))
                else:
                    result.index_copy_(0, torch.from_numpy(indices), work.result)
                finished += len(indices)
                yield min(finished, len(texts))
        if owners:
            vectors[:] = self._join_pieces(parts, np.concatenate(owners), np.concatenate(lengths), len(texts))
        if self.normalize:
            vectors /= np.sqrt(np.einsum("nw,nw->n", vectors, vectors))[:, None].clip(1e-12)

    def embed_ids(self, tokens: TokenIds, *, prompt_length: int = 0) -> NDArray[np.float32]:
        """One vector per sequence of token ids, special tokens included, in order and not normalized.

        For servers, which tokenize while the model computes: `tokenize` makes the ids. The pooling leaves out the first
        `prompt_length` tokens.
        """
        vectors = np.empty((len(tokens), self.width), dtype=np.float32)
        with self._settings(0) as settings:
            forward = self._forward(settings.tokens, prompt_length)
            for work in run_batches(packed_batches([tokens], settings.tokens), self.device):
                indices, part = work.batch
                if work.result is None:
                    with torch.inference_mode():
                        work.result = forward(part)[: len(part)]
                    continue
                check_finite([work.result])
                vectors[indices] = work.result.numpy()
        return vectors

    def embed_tokens(self, texts: Sequence[str]) -> list[TokenVectors]:
        """The vector of every token with its offsets in the text, special tokens included."""
        if self.pooling != "none":
            raise InputError(f'pooling "{self.pooling}" gives one vector per text: call embed() instead')
        encodings = self.tokenizer.encode_batch([self.prompt + text for text in texts], max_length=self.max_length)
        tokens = TokenIds.from_lists([e.ids for e in encodings])
        self._check(TextWindow(0, texts, tokens, np.array([e.num_truncated for e in encodings], dtype=np.int64)))
        self.choose_precision(texts)
        found = []
        for e, vectors in zip(encodings, self.embed_token_ids(tokens, characters=sum(map(len, texts))), strict=True):
            offsets = np.array(e.offsets, dtype=np.int64).reshape(-1, 2)
            words = np.array([-1 if word is None else word for word in e.words], dtype=np.int64)
            if self.prompt:
                offsets, words = _without_prompt(offsets, words, len(self.prompt))
            found.append(TokenVectors(vectors, e.tokens, offsets, words))
        return found

    def embed_token_ids(self, tokens: TokenIds, *, characters: int = 0) -> list[NDArray[np.float32]]:
        """The vectors (T, W) of each sequence of token ids, special tokens included: before pooling and the modules of
        the folder. `characters` are those of the texts, if they are many: batches have a size for them."""
        found: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(tokens)
        with self._settings(characters) as settings:
            for work in run_batches(packed_batches([tokens], settings.tokens), self.device):
                indices, part = work.batch
                if work.result is None:
                    with torch.inference_mode():
                        hidden = self._vectors("none", part)[: len(part.ids)].float()
                        work.result = F.normalize(hidden, dim=-1) if self.normalize else hidden
                    continue
                check_finite([work.result])
                rows = np.split(work.result.numpy(), np.cumsum(part.lengths)[:-1])
                for index, vectors in zip(indices, rows, strict=True):
                    found[index] = vectors
        return found

    def choose_precision(self, texts: Sequence[str]) -> None:
        """Decide what precision auto is: int8 if it is faster than fp32 and agrees with it on a sample of the texts."""
        if self.precision != "auto":
            return
        sample = [text for text in texts[:: max(1, len(texts) // SAMPLE)] if text.strip()][:SAMPLE]
        tokens = self.tokenize(sample)

        def vectors(precision: str) -> Tensor:
            self._network = inference_copy(self.model, precision)
            return self._vectors("mean", tokens)[: len(tokens)]

        found = compare_precisions(self.model, vectors)
        self.precision = found.precision
        self.choice = str(found)

    def _settings(self, characters: int) -> AbstractContextManager[CpuSettings]:
        """Prepare the model for the precision; inside the block, batches have the size for texts of so many
        characters."""
        if self.model.training:  # setting the mode of every module takes longer than asking
            self.model.eval()
        self._network = inference_copy(self.model, self.precision)
        return cpu_settings(self.device, self._network, self.precision, work=characters)

    def _vectors(self, pooling: str, texts: TokenIds | Batch, *, skip: int = 0, finish: bool = False) -> Tensor:
        """The vectors of a packed batch: of its sequences or, with pooling none, of its tokens. Fillers may follow.

        The pooling leaves out the first `skip` tokens; `finish` applies the modules of the folder.
        """
        batch = texts if isinstance(texts, Batch) else to_device(texts, self.device)
        states: Callable[..., Iterator[Tensor]] = self._network.states  # type: ignore[assignment]
        hidden = self.layers.join(list(self.layers.select(states(batch.ids, batch.layout))))
        pooled = hidden if pooling == "none" else pool(hidden, batch.layout, pooling, skip=skip)
        return self.finished(pooled) if finish else pooled

    def finished(self, pooled: Tensor) -> Tensor:
        """What the modules of the folder make of pooled vectors."""
        for module in self._modules:
            pooled = module(pooled)
        return pooled[:, : self.width]

    def _forward(self, num_tokens: int, prompt_length: int = 0) -> Callable[[TokenIds], Tensor]:
        """A function from token ids to one vector per sequence; fillers may follow. Those of pieces are only pooled."""
        compute = partial(self._vectors, self.pooling, skip=prompt_length, finish=not self._joins_pieces)
        network = self._network
        if self.device.type != "cuda":
            return compute
        dtype = next(parameter.dtype for parameter in network.parameters() if parameter.is_floating_point())
        if depends_on_lengths(network, dtype):
            return compute
        key = (network, num_tokens, prompt_length)
        if self._graphs is None or self._graphs[0] != key:
            self._graphs = key, GraphedForward(compute, self.device, num_tokens)
        return self._graphs[1]

    def _windows(self, texts: Sequence[str]) -> Iterator[TextWindow]:
        """Tokenize the texts window by window; the first ones are small, so that a GPU starts early."""
        slices = _text_slices(texts)
        windows: Iterator[TextWindow] = (self._window(texts[part], part.start) for part in slices)
        if self.device.type != "cpu":  # on a CPU this would only take cores away from the model
            windows = prefetch_map(
                lambda part: self._window(texts[part], part.start), slices, threads=TOKENIZER_THREADS
            )
        for window in windows:
            self._check(window)
            yield window

    def _window(self, texts: Sequence[str], start: int) -> TextWindow:
        """Tokenize texts; `start` is the index of the first one."""
        limit = self.max_length
        tokens = self.tokenize(texts, cut=not self._joins_pieces)
        if not self._joins_pieces or limit is None:
            return TextWindow(start, texts, tokens, tokens.num_truncated)
        truncated = np.maximum(tokens.lengths - limit, 0)
        owner = np.arange(len(texts))
        if truncated.any():
            rows = np.split(tokens.ids, np.cumsum(tokens.lengths)[:-1])
            parts = [
                self._split(text) if gone else [row.tolist()]
                for text, row, gone in zip(texts, rows, truncated, strict=True)
            ]
            owner = np.repeat(owner, [len(part) for part in parts])
            tokens = TokenIds.from_lists([ids for part in parts for ids in part])
        return TextWindow(start, texts, tokens, truncated, owner)

    def _split(self, text: str) -> list[list[int]]:
        """A long text in pieces that fit, each with its own special tokens and prompt."""
        before, body, after = split_special_tokens(self.tokenizer.encode(self.prompt + text))
        if self.prompt:
            size = len(split_special_tokens(self.tokenizer.encode(self.prompt))[1])
            before, body = before + body[:size], body[size:]
        assert self.max_length is not None
        size = self.max_length - len(before) - len(after)
        return [before + body[i : i + size] + after for i in range(0, len(body), size)]

    def _join_pieces(
        self,
        parts: Sequence[tuple[NDArray[np.int64], NDArray[np.float32]]],
        owner: NDArray[np.int64],
        lengths: NDArray[np.int64],
        count: int,
    ) -> NDArray[np.float32]:
        """One vector per text of the vectors of its pieces."""
        vectors = np.empty((len(owner), self.pooled_width), dtype=np.float32)
        for indices, part in parts:
            vectors[indices] = part
        starts = np.searchsorted(owner, np.arange(count))
        if self.pooling == "max":
            total = np.maximum.reduceat(vectors, starts)
        else:
            weights = lengths.astype(np.float32)[:, None]
            total = np.add.reduceat(vectors * weights, starts) / np.add.reduceat(weights, starts)
        with torch.inference_mode():
            return self.finished(torch.from_numpy(total.astype(np.float32, copy=False)).to(self.device)).cpu().numpy()

    def _check(self, window: TextWindow) -> None:
        """Count the texts that do not fit, or refuse the first one; refuse texts without tokens."""
        over = np.flatnonzero(window.num_truncated)
        if len(over) and self.long == "error":
            index = int(over[0])
            raise TextError(
                window.start + index,
                f"({window.texts[index][:40]!r}...) has {window.num_truncated[index]} tokens more than the "
                f"{self.max_length} that fit; shorten it, or choose cut or windows",
            )
        self.truncated += len(over)
        empty = np.flatnonzero(window.pieces.lengths <= self._skip)
        if len(empty):
            raise TextError(
                window.start + int(empty[0]), "has no tokens for this model; leave it out or give it a word"
            )


def _without_prompt(
    offsets: NDArray[np.int64], words: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets in the text behind a prompt of `size` characters; tokens of the prompt are like special tokens."""
    inside = (words >= 0) & (offsets[:, 1] > size)
    first = words[inside].min(initial=words.max(initial=0))
    shifted = np.where(inside[:, None], np.maximum(offsets - size, 0), 0)
    return shifted, np.where(inside, words - first, -1)


def _text_slices(texts: Sequence[str]) -> Iterator[slice]:
    """Divide texts into windows by their characters; each has twice as many as the one before, up to a limit."""
    if len(texts) == 1:
        yield slice(0, 1)
        return
    ends = np.cumsum(np.fromiter(map(len, texts), dtype=np.int64, count=len(texts)))
    start, budget = 0, FIRST_WINDOW
    while start < len(texts):
        characters = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, characters + budget, side="right")))
        yield slice(start, stop)
        start, budget = stop, min(2 * budget, WINDOW)


def _limit(wanted: int | None, positions: int | None, stated: int | None) -> int | None:
    """The maximum number of tokens. The user's limit overrides the folder's; neither can exceed the positions."""
    if wanted is not None and (isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 1):
        raise InputError(f"max_length is {wanted!r}; expected a number of tokens, at least 1")
    if wanted is not None and positions is not None and wanted > positions:
        raise InputError(f"max_length is {wanted}, but this model has only {positions} positions")
    found = [n for n in (wanted, positions) if n is not None] if wanted else [n for n in (positions, stated) if n]
    return min(found, default=None)
