"""Probing heads on frozen layers, one per combination of layers, trained together; all linear, or all BiLSTMs.

Shapes: L layers, K combinations, N items, W width, C classes.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.examples import TaggedExample
from regard.inference.embedding.engine import EmbeddingEngine, TextError, TokenVectors
from regard.nn.masks import Packed
from regard.nn.recurrent import Recurrent
from regard.nn.stack import ScalarMix

MAX_BYTES_IN_MEMORY = 2**31
CHUNK_BYTES = 2**28  # of vectors in full precision at a time
MAX_VALUE = float(np.finfo(np.float16).max)


@dataclass(frozen=True, eq=False)
class HiddenStates:
    """`values` (layers, items, width): an item is a word, a token or a text. `lengths` are the items per example."""

    values: NDArray[np.float16]
    lengths: tuple[int, ...]


def word_states(engine: EmbeddingEngine, examples: Sequence[TaggedExample]) -> Generator[int, None, HiddenStates]:
    """The vectors of the first piece of each word; zeros for a word without tokens."""
    states = _allocate(engine, tuple(len(example.words) for example in examples))
    starts = _starts(states.lengths)
    texts = [example.text for example in examples]
    for indices in _chunks(engine, texts):
        for index, tokens in zip(indices, engine.embed_tokens([texts[index] for index in indices]), strict=True):
            piece, exists = _first_pieces(tokens, examples[index])
            _store(states, starts[index], tokens.vectors[piece] * exists[:, None])
        yield len(indices)
    return states


def token_states(engine: EmbeddingEngine, texts: Sequence[str]) -> Generator[int, None, HiddenStates]:
    """The vectors of all tokens, with the special ones."""
    ids, _ = engine.tokenizer.ids_batch(list(texts), max_length=engine.max_length)
    states = _allocate(engine, tuple(map(len, ids)))
    starts = _starts(states.lengths)
    for indices in _chunks(engine, texts):
        for index, tokens in zip(indices, engine.embed_tokens([texts[index] for index in indices]), strict=True):
            _store(states, starts[index], tokens.vectors)
        yield len(indices)
    return states


def text_states(engine: EmbeddingEngine, texts: Sequence[str]) -> Generator[int, None, HiddenStates]:
    """One vector per text and layer, by the engine's pooling."""
    states = _allocate(engine, (1,) * len(texts))
    for indices in _chunks(engine, texts):
        _store(states, np.array(indices), engine.embed([texts[index] for index in indices]))
        yield len(indices)
    return states


def split_long_sentences(engine: EmbeddingEngine, examples: Sequence[TaggedExample]) -> list[TaggedExample]:
    """Split sentences that are too long for the model between words, until every part fits."""
    _, truncated = engine.tokenizer.ids_batch([example.text for example in examples], max_length=engine.max_length)
    parts: list[TaggedExample] = []
    for example, cut in zip(examples, truncated, strict=True):
        parts.extend(split_long_sentences(engine, _halves(example)) if cut and len(example.words) > 1 else [example])
    return parts


def _halves(example: TaggedExample) -> list[TaggedExample]:
    middle = len(example.words) // 2
    begin = example.words[middle][0]
    tags = example.tags
    return [
        TaggedExample(example.text[:begin], example.words[:middle], tags and tags[:middle]),
        TaggedExample(
            example.text[begin:],
            tuple((start - begin, end - begin) for start, end in example.words[middle:]),
            tags and tags[middle:],
        ),
    ]


def _chunks(engine: EmbeddingEngine, texts: Sequence[str]) -> Iterator[list[int]]:
    """Indices of texts of nearly equal length, few enough for memory."""
    ids, _ = engine.tokenizer.ids_batch(list(texts), max_length=engine.max_length)
    for index, one in enumerate(ids):
        if not one:
            raise TextError(index, f"({texts[index][:40]!r}) has no tokens for this model; leave it out")
    max_tokens = max(1, CHUNK_BYTES // (4 * engine.width))
    chunk: list[int] = []
    tokens = 0
    for index in sorted(range(len(ids)), key=lambda i: -len(ids[i])):
        if chunk and tokens + len(ids[index]) > max_tokens:
            yield chunk
            chunk, tokens = [], 0
        chunk.append(index)
        tokens += len(ids[index])
    if chunk:
        yield chunk


def _allocate(engine: EmbeddingEngine, lengths: tuple[int, ...]) -> HiddenStates:
    layers = len(engine.layers.chosen)
    shape = (layers, sum(lengths), engine.width // layers)
    size = 2 * int(np.prod(shape))
    if size < MAX_BYTES_IN_MEMORY:
        return HiddenStates(np.empty(shape, dtype=np.float16), lengths)
    with tempfile.TemporaryFile() as file:  # the mapping keeps it as long as the array
        file.truncate(size)
        if hasattr(os, "posix_fallocate"):  # or a full disk would end the process later with a signal
            os.posix_fallocate(file.fileno(), 0, size)
        return HiddenStates(np.memmap(file, dtype=np.float16, mode="r+", shape=shape), lengths)


def _store(states: HiddenStates, at: int | NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
    """Store (n, layers * width) at some indices, or from one index on."""
    layers, _, width = states.values.shape
    where = at if isinstance(at, np.ndarray) else slice(at, at + len(vectors))
    # Values beyond half precision (some T5 have such activations) would become infinite.
    small = np.clip(vectors, -MAX_VALUE, MAX_VALUE).astype(np.float16)
    states.values[:, where] = small.reshape(len(vectors), layers, width).swapaxes(0, 1)


def _starts(lengths: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(lengths).tolist()]


def _first_pieces(tokens: TokenVectors, example: TaggedExample) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The token each word begins with, the first that ends after the start of the word, and whether there is one."""
    words = np.array(example.words, dtype=np.int64).reshape(-1, 2)
    starts, ends = tokens.offsets.T
    empty = starts >= ends  # special tokens: no characters
    reach = np.maximum.accumulate(np.where(empty, -1, ends))
    piece = np.minimum(np.searchsorted(reach, words[:, 0], side="right"), len(reach) - 1)
    exists: NDArray[np.bool_] = ~empty[piece] & (starts[piece] < words[:, 1]) & (ends[piece] > words[:, 0])
    return piece, exists


Operation = Literal["only", "sum", "concat", "mix"]
# CoNLL-2003 dev F1 in the lecture's table, in its order.
DECK = {
    "First Layer": 91.0,
    "Last Hidden Layer": 94.9,
    "Sum All Layers": 95.5,
    "Second-to-Last Hidden Layer": 95.6,
    "Sum Last Four Hidden": 95.9,
    "Concat Last Four Hidden": 96.1,
}
DECK_NOTE = (
    "The scores of the deck are those of the BERT paper (table 7): BERT base, CoNLL-2003 dev F1, a two-layer BiLSTM on "
    "the frozen layers. Its first layer is the output of the embeddings (layer 0), and its sums are weighted, as the "
    "learned mix is. They are not comparable with scores of another model, head or dataset."
)


@dataclass(frozen=True)
class LayerCombination:
    """Layers joined by an operation ("only" for a single layer); a mix learns its weights with the head."""

    name: str
    operation: Operation
    layers: tuple[int, ...]


def single_layers(count: int) -> list[LayerCombination]:
    names = ["layer 0 (embeddings)", *(f"layer {number}" for number in range(1, count))]
    return [LayerCombination(name, "only", (number,)) for number, name in enumerate(names)]


def deck_combinations(count: int) -> list[LayerCombination]:
    """The six rows of the table for a model with `count` hidden states. Sums leave out the embeddings."""
    layers = tuple(range(1, count)) or (0,)
    return [
        LayerCombination("First Layer", "only", (0,)),
        LayerCombination("Last Hidden Layer", "only", (count - 1,)),
        LayerCombination("Sum All Layers", "sum", layers),
        LayerCombination("Second-to-Last Hidden Layer", "only", (max(count - 2, 0),)),
        LayerCombination("Sum Last Four Hidden", "sum", layers[-4:]),
        LayerCombination("Concat Last Four Hidden", "concat", layers[-4:]),
    ]


def scalar_mix(count: int) -> LayerCombination:
    """A weighted sum of all hidden states with the embeddings, as in ELMo."""
    return LayerCombination("Learned scalar mix", "mix", tuple(range(count)))


class LayerFeatures(nn.Module):
    """HiddenStates (L, N, W) to what each combination gives a head; every feature has mean 0 and deviation 1 in
    training.

    A sum is made of the states as they are, a concatenation and a mix of states that were scaled so.
    """

    mean: Tensor
    deviation: Tensor
    sums: Tensor

    def __init__(self, combinations: Sequence[LayerCombination], *, layers: int, width: int) -> None:
        super().__init__()
        self.combinations = tuple(combinations)
        self.width = width
        summed = list(dict.fromkeys(one.layers for one in combinations if one.operation == "sum"))
        self.slots: dict[tuple[str, tuple[int, ...]], int] = {("only", (number,)): number for number in range(layers)}
        self.slots |= {("sum", chosen): layers + index for index, chosen in enumerate(summed)}
        sums = torch.zeros(len(summed), layers)
        for row, chosen in zip(sums, summed, strict=True):
            row[list(chosen)] = 1
        self.register_buffer("sums", sums)
        self.register_buffer("mean", torch.zeros(len(self.slots), 1, width))
        self.register_buffer("deviation", torch.ones(len(self.slots), 1, width))
        self.mixes = nn.ModuleList(ScalarMix(len(one.layers)) for one in combinations if one.operation == "mix")

    def raw(self, states: Tensor) -> Tensor:
        """All layers and all sums, (slots, N, W)."""
        return torch.cat([states, torch.einsum("sl,lnw->snw", self.sums, states)]) if len(self.sums) else states

    def forward(self, states: Tensor) -> list[Tensor]:
        """For each combination (N, W), or wider for a concatenation."""
        slots = (self.raw(states) - self.mean) / self.deviation
        mixes = iter(self.mixes)
        features = []
        for one in self.combinations:
            match one.operation:
                case "concat":
                    features.append(torch.cat([slots[number] for number in one.layers], dim=-1))
                case "mix":
                    features.append(next(mixes)([slots[number] for number in one.layers]))
                case _:
                    features.append(slots[self.slots[one.operation, one.layers]])
        return features

    @property
    def weights(self) -> list[float]:
        """The weights of the layers in the first mix; empty without one."""
        return [weight for mix in list(self.mixes)[:1] for weight in cast(ScalarMix, mix).s.softmax(0).tolist()]

    def feature_width(self, one: LayerCombination) -> int:
        return self.width * (len(one.layers) if one.operation == "concat" else 1)


class LinearHeads(nn.Module):
    """Logits (K, N, C) of a linear layer on each combination.

    Everything, also scaling and sums, is linear in the states: they are multiplied once by matrices that contain all of
    it, and no feature is computed. A piece is the contribution of one layer to one combination.
    """

    piece: Tensor
    slot: Tensor

    def __init__(self, features: LayerFeatures, classes: int) -> None:
        super().__init__()
        self.features, self.classes = features, classes
        self.columns = [0 if one.operation == "only" else -1 for one in features.combinations]
        for column, index in enumerate((i for i, c in enumerate(self.columns) if c < 0), start=1):
            self.columns[index] = column
        pieces, slots, rows = [], [], 0
        for one, column in zip(features.combinations, self.columns, strict=True):
            for number, layer in enumerate(one.layers):
                pieces.append((layer, column, rows + (number if one.operation == "concat" else 0)))
                slots.append(features.slots["sum", one.layers] if one.operation == "sum" else layer)
            rows = pieces[-1][2] + 1
        self.register_buffer("piece", torch.tensor(pieces).T)  # layer, column and row of the weight
        self.register_buffer("slot", torch.tensor(slots))
        self.weight = nn.Parameter(torch.zeros(rows, features.width, classes))
        self.bias = nn.Parameter(torch.zeros(len(features.combinations), classes))

    def forward(self, states: Tensor, layout: Packed) -> Tensor:
        layer, column, row = self.piece
        scale = self._mix_weights()[:, None, None] / self.features.deviation[self.slot].transpose(1, 2)
        empty = states.new_zeros(len(states), max(self.columns) + 1, self.features.width, self.classes)
        matrices = empty.index_put((layer, column), scale * self.weight[row]).transpose(1, 2).flatten(2)
        center = self.features.mean[: len(states)]
        product = torch.bmm(states, matrices) - torch.bmm(center, matrices)
        product = product.view(*product.shape[:2], -1, self.classes)
        alone, joined = product[:, :, 0], product.sum(0)
        logits = [
            alone[one.layers[0]] if column == 0 else joined[:, column]
            for one, column in zip(self.features.combinations, self.columns, strict=True)
        ]
        return torch.stack(logits) + self.bias[:, None]

    def _mix_weights(self) -> Tensor:
        """The factor of a mix for each piece: 1 without a mix."""
        mixes = iter(self.features.mixes)
        parts = []
        for one in self.features.combinations:
            if one.operation == "mix":
                mix = cast(ScalarMix, next(mixes))
                parts.append(mix.gamma * mix.s.softmax(0))
            else:
                parts.append(self.bias.new_ones(len(one.layers)))
        return torch.cat(parts)


class BiLstmHeads(nn.Module):
    """Logits (K, N, C) of a two-layer BiLSTM over the items of each example, as wide as the model.

    With `pooled` they are (K, B, C), from the mean of the BiLSTM outputs over an example.
    """

    def __init__(self, features: LayerFeatures, classes: int, *, pooled: bool) -> None:
        super().__init__()
        self.features, self.pooled = features, pooled
        units = features.width + features.width % 2
        self.lstms = nn.ModuleList(
            Recurrent(features.feature_width(one), units, depth=2, bidirectional=True) for one in features.combinations
        )
        self.outputs = nn.ModuleList(nn.Linear(units, classes) for _ in features.combinations)

    def forward(self, states: Tensor, layout: Packed) -> Tensor:
        logits = []
        for features, lstm, output in zip(self.features(states), self.lstms, self.outputs, strict=True):
            hidden, _ = lstm(features, layout)
            if self.pooled:
                hidden = torch.stack([part.mean(0) for part in hidden.split(list(layout.lengths))])
            logits.append(output(hidden))
        return torch.stack(logits)


PREDICTION_BATCH = 1024  # examples
Classes = NDArray[np.int64]


@dataclass(frozen=True)
class ProbeRecipe:
    """At least `epochs` and at least `steps` of Adam; the learning rate decays linearly to zero."""

    batch_size: int
    epochs: int
    steps: int
    learning_rate: float


LINEAR = ProbeRecipe(batch_size=1024, epochs=5, steps=400, learning_rate=3e-2)
BILSTM = ProbeRecipe(batch_size=32, epochs=3, steps=300, learning_rate=1e-3)


def standardize(features: LayerFeatures, states: HiddenStates) -> None:
    """Set the mean and standard deviation of every feature from all items."""
    device = features.mean.device
    total = torch.zeros(features.mean.shape, dtype=torch.float64, device=device)
    squares = torch.zeros_like(total)
    count = states.values.shape[1]
    center: Tensor | None = None
    for start in range(0, count, 4096):
        raw = features.raw(_tensor(states.values[:, start : start + 4096], device))
        # Centered, the sum of squares loses no precision in float32.
        center = raw.mean(1, keepdim=True) if center is None else center
        raw = raw - center
        total += raw.sum(1, keepdim=True)
        squares += raw.square().sum(1, keepdim=True)
    assert center is not None
    mean = total / count
    deviation = (squares / count - mean.square()).clamp(min=0).sqrt()
    features.mean.copy_(mean + center)
    # Constant features are not divided by almost zero.
    features.deviation.copy_(torch.where(deviation > 1e-4, deviation, 1.0))


def fit(
    heads: nn.Module,
    states: HiddenStates,
    targets: Classes,
    recipe: ProbeRecipe,
    *,
    seed: int,
) -> Iterator[tuple[int, int]]:
    """Train all heads together; yields the step and the number of steps after each one.

    `targets` are the classes of all items, or of all examples if the heads pool items.
    """
    device = next(heads.parameters()).device
    count = len(states.lengths)
    each_epoch = math.ceil(count / recipe.batch_size)
    epochs = max(recipe.epochs, math.ceil(recipe.steps / each_epoch))
    steps = epochs * each_epoch
    optimizer = torch.optim.Adam(heads.parameters(), lr=recipe.learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    penalized = [heads.weight] if isinstance(heads, LinearHeads) else []
    rng = np.random.default_rng(seed)
    step = 0
    for _ in range(epochs):
        for batch in _batches(states, rng.permutation(count), recipe.batch_size, device):
            logits: Tensor = heads(batch.values, batch.layout)
            indices = batch.examples if len(targets) == count else batch.items
            right = torch.from_numpy(targets[indices]).to(device)
            # The mean per head: heads share no parameters, so that none affects another.
            loss = F.cross_entropy(logits.transpose(1, 2), right.expand(len(logits), -1), reduction="sum") / len(right)
            # scikit-learn's default penalty (C = 1) on a mean over all examples.
            penalty = sum((weight.square().sum() for weight in penalized), start=torch.zeros((), device=device))
            optimizer.zero_grad()
            (loss + penalty / (2 * len(targets))).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            step += 1
            yield step, steps


def predict(heads: nn.Module, states: HiddenStates) -> Classes:
    """The most probable class of each head, (K, n), for all items or examples in order."""
    device = next(heads.parameters()).device
    batches = _batches(states, np.arange(len(states.lengths)), PREDICTION_BATCH, device)
    with torch.inference_mode():
        predictions: list[Tensor] = [heads(one.values, one.layout).argmax(-1).cpu() for one in batches]
    classes: Classes = torch.cat(predictions, dim=1).numpy()
    return classes


@dataclass(frozen=True, eq=False)
class _Batch:
    """The indices of some examples and of their items, the hidden states (L, N, W) and the layout."""

    examples: Classes
    items: Classes
    values: Tensor
    layout: Packed


def _batches(states: HiddenStates, order: Classes, size: int, device: torch.device) -> Iterator[_Batch]:
    lengths = np.array(states.lengths)
    starts = np.cumsum(lengths) - lengths
    for begin in range(0, len(order), size):
        examples = order[begin : begin + size]
        layout = Packed.from_lengths(lengths[examples].tolist())
        items = np.repeat(starts[examples], lengths[examples]) + layout.position_ids.numpy()
        yield _Batch(
            examples,
            items,
            _tensor(states.values[:, items], device),
            Packed(layout.sizes, layout.starts.to(device), layout.position_ids.to(device), layout.max_length),
        )


def _tensor(values: NDArray[np.float16], device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(device).float()
