"""ELMo's vector of a word, step by step: concatenate both directions, weight each layer, sum.

mix = mix_layers(loaded, "Let's stick to the plan.", "stick")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.cancellation import check_cancelled
from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.inference.embedding.engine import load_engine
from regard.interpret.embeddings import find_word, word_vectors
from regard.models.family import can, describe_model
from regard.nn.stack import ScalarMix

Floats = NDArray[np.float32]
STEPS = 200  # in which a task learns its mix


@dataclass(frozen=True, eq=False)
class LayerMix:
    """The steps to a vector: `forward` and `backward` (L, W) of each layer, the `weights` (L,) of the layers, which sum
    to 1, and `gamma`. Layer 0 is the embedding, the same in both directions."""

    pieces: list[str]
    forward: Floats
    backward: Floats
    weights: Floats
    gamma: float

    @property
    def concatenated(self) -> Floats:
        """Step 1: the two directions of each layer next to each other, (L, 2W)."""
        return np.concatenate([self.forward, self.backward], axis=1)

    @property
    def weighted(self) -> Floats:
        """Step 2: each layer times its weight, (L, 2W)."""
        scaled: Floats = self.gamma * self.weights[:, None] * self.concatenated
        return scaled

    @property
    def vector(self) -> Floats:
        """Step 3: their sum, (2W,)."""
        total: Floats = self.weighted.sum(0)
        return total


def mix_layers(
    loaded: LoadedModel, text: str, word: str, *, weights: Sequence[float] | None = None, gamma: float = 1.0
) -> LayerMix:
    """The vector of the first occurrence of a word; the pieces of a word are averaged. By default all weights are
    equal, as before a task has learned any."""
    layers, pieces = layer_vectors(loaded, [text], [word])
    count = len(layers)
    given = [1 / count] * count if weights is None else list(weights)
    if len(given) != count or min(given) < 0 or abs(sum(given) - 1) > 1e-5:
        raise InputError(f"the weights are {given}; expected {count} numbers from 0 that sum to 1, one for each layer")
    ahead, back = np.split(layers[:, 0], 2, axis=-1)
    return LayerMix(pieces[0], ahead, back, np.asarray(given, dtype=np.float32), gamma)


def layer_vectors(loaded: LoadedModel, texts: Sequence[str], words: Sequence[str]) -> tuple[Floats, list[list[str]]]:
    """The vectors (layers, texts, width) of one word of each text, and its pieces; InputError if tasks of this model do
    not mix its layers."""
    if not can(loaded.model, "layer-mix"):
        raise InputError(
            f"a mix of layers is how ELMo makes a vector, and {loaded.name} is {describe_model(loaded.model)} model; "
            "use one that `regard pretrain elmo` wrote"
        )
    spans = [find_word(*pair, number) for number, pair in enumerate(zip(words, texts, strict=True), start=1)]
    engine = load_engine(LoadedModel("", *loaded), layers="concat(:)", pooling="none")
    return word_vectors(engine, texts, spans, model=loaded.name)


@dataclass(frozen=True, eq=False)
class LearnedMix:
    """What a task learned: the `weights` of the layers, `gamma`, and the percentage of training texts it gets right."""

    weights: list[float]
    gamma: float
    accuracy: float


def learn_mix(layers: Floats, labels: Sequence[int]) -> LearnedMix:
    """Learn the weights of the layers together with a linear classifier, on frozen vectors (layers, texts, width)."""
    states = torch.tensor(layers).float()
    targets = torch.tensor(list(labels))
    generator = torch.Generator().manual_seed(0)
    mix, head = ScalarMix(len(states)), nn.Linear(states.shape[-1], int(targets.max()) + 1)
    with torch.no_grad():
        head.weight.normal_(0, 0.02, generator=generator)
        head.bias.zero_()
    optimizer = torch.optim.AdamW([*mix.parameters(), *head.parameters()], lr=0.05, weight_decay=0.01)

    def logits() -> Tensor:
        result: Tensor = head(mix(list(states)))
        return result

    for _ in range(STEPS):
        check_cancelled()
        loss = nn.functional.cross_entropy(logits(), targets)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    right = (logits().argmax(-1) == targets).float().mean()
    return LearnedMix(mix.s.softmax(0).tolist(), mix.gamma.item(), 100 * float(right))
