"""The six-word lesson: a Transformer of six words learns two translations, and every number on the way can be seen.

Knows the deck's vocabulary, its two pairs, how they are learned and how one is decoded. Knows nothing of files, pages
or the command line.

    lesson = learn_six_words(seed=0)
    for step in lesson.pairs[0].decoding:
        print(step.said, step.probabilities, step.chosen)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError
from regard.lessons.threads import one_thread
from regard.models import Transformer, TransformerConfig
from regard.nn import Padded

__all__ = ["PAIRS", "READ", "WORDS", "Decoding", "Lesson", "Pair", "decode", "learn_six_words", "new_translator"]

WORDS = ("a", "am", "I", "thanks", "student", "<eos>")  # the deck's order: ids 0 to 5
READ = ("je", "suis", "étudiant", "merci")
PAIRS = (("je suis étudiant", "I am a student <eos>"), ("merci", "thanks <eos>"))
END = WORDS.index("<eos>")
LONGEST = 6  # words a decoding may say, one more than the longer translation has
EPOCHS, LEARNING_RATE = 60, 3e-3


@dataclass(frozen=True)
class Decoding:
    """One time step: what was said so far, the probability of each word to be next, and the word that was chosen."""

    said: list[str]
    probabilities: list[float]
    chosen: str


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation. `before` and `after` training: a row of six probabilities for each output."""

    source: str
    target: list[str]
    before: list[list[float]]
    after: list[list[float]]
    decoding_before: list[Decoding]
    decoding: list[Decoding]


@dataclass(frozen=True)
class Lesson:
    """`losses` is the summed cross-entropy of all seven outputs before training and after every epoch."""

    losses: list[float]
    pairs: list[Pair]


def new_translator(*, seed: int = 0) -> Transformer:
    """The 2017 Transformer, small. The deck has no word to begin with, so <eos> is also the decoder's first input."""
    config = TransformerConfig(
        vocab_size=len(READ),
        target_vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        dropout=0.0,
        share_embeddings=False,
        decoder_start_token_id=END,
        eos_token_id=END,
    )
    with torch.random.fork_rng(devices=[]):  # the caller's random state is not ours to move
        torch.default_generator.manual_seed(seed)  # the CPU's; a GPU's would stay changed
        return Transformer(config).eval()


def learn_six_words(
    *,
    epochs: int = EPOCHS,
    learning_rate: float = LEARNING_RATE,
    seed: int = 0,
    on_epoch: Callable[[float], None] = lambda loss: None,
) -> Lesson:
    """Train on both pairs at once; the loss is cross-entropy, summed over the outputs and not averaged."""
    if epochs < 1:
        raise InputError(f"epochs must be at least 1, not {epochs}")
    if not 0 < learning_rate < math.inf:
        raise InputError(f"the learning rate must be a number above 0, not {learning_rate}")
    model = new_translator(seed=seed)
    with one_thread():
        before, spoken = _tables(model), [decode(model, source) for source, _ in PAIRS]
        losses = []
        for loss in _train(model, epochs, learning_rate):
            losses.append(loss)
            on_epoch(loss)
        with torch.no_grad():
            losses.append(_loss(model).item())
        after = _tables(model)
        pairs = [
            Pair(source, target.split(), before[number], after[number], spoken[number], decode(model, source))
            for number, (source, target) in enumerate(PAIRS)
        ]
    return Lesson(losses, pairs)


def _train(model: Transformer, epochs: int, learning_rate: float) -> Iterator[float]:
    """Yield the loss that each epoch began with."""
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    for _ in range(epochs):
        loss = _loss(model)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        yield loss.item()


@torch.no_grad()
def decode(model: Transformer, source: str) -> list[Decoding]:
    """Say the likeliest word, hear it, say the next, until <eos> or six words."""
    scores, state = model.start(_ids(source.split(), READ)[None])
    said, steps = [WORDS[END]], []
    for _ in range(LONGEST):
        chosen = scores.argmax(-1)
        steps.append(Decoding(list(said), scores[0].softmax(-1).tolist(), WORDS[int(chosen)]))
        if int(chosen) == END:
            break
        said.append(WORDS[int(chosen)])
        scores, state = model.step(chosen, state)
    return steps


def _outputs(model: Transformer) -> list[Tensor]:
    """The scores (T, 6) of each pair's outputs, where the decoder is told the right words before them."""
    sources = [_ids(source.split(), READ) for source, _ in PAIRS]
    told = [_ids([WORDS[END], *target.split()[:-1]], WORDS) for _, target in PAIRS]
    layouts = [Padded.from_lengths([len(ids) for ids in side]) for side in (sources, told)]
    rectangles = [torch.nn.utils.rnn.pad_sequence(side, batch_first=True) for side in (sources, told)]
    scores = model.logits(model(*rectangles, *layouts))
    return [row[: len(ids)] for row, ids in zip(scores, told, strict=True)]


def _loss(model: Transformer) -> Tensor:
    targets = torch.cat([_ids(target.split(), WORDS) for _, target in PAIRS])
    return F.cross_entropy(torch.cat(_outputs(model)), targets, reduction="sum")


@torch.no_grad()
def _tables(model: Transformer) -> list[list[list[float]]]:
    return [scores.softmax(-1).tolist() for scores in _outputs(model)]


def _ids(words: Sequence[str], vocabulary: Sequence[str]) -> Tensor:
    return torch.tensor([vocabulary.index(word) for word in words])
