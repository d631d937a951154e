"""How well a model does what it was pretrained for, on text that it has not seen.

Knows the objectives' questions and their answers; trains nothing. The same text and seed ask the same questions of
every model, so losses can be compared where vocabularies are the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.data.batch import collate
from regard.data.masking import Masking
from regard.models.bert import Bert
from regard.models.gpt import Gpt
from regard.pretrain.rows import FOLLOWS
from regard.pretrain.text import Text
from regard.text import Tokenizer

__all__ = ["NextWords", "PairScore", "WordScore", "blanked", "next_pairs", "next_words", "pairs", "words"]

TOKENS = 1 << 15  # tokens of a forward pass


@dataclass(frozen=True)
class WordScore:
    """Hidden words: the mean loss in nats, the share that was told right, and how many were asked."""

    loss: float
    accuracy: float
    count: int


@dataclass(frozen=True)
class PairScore:
    """Pairs of texts: the mean loss, the share that was told right, and how many were asked."""

    loss: float
    accuracy: float
    count: int


@dataclass(frozen=True)
class NextWords:
    """The next word: the mean loss in nats of `count` tokens."""

    loss: float
    count: int

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.loss, 700.0))


def words(
    model: Bert, masking: Masking, text: Text, tokenizer: Tokenizer, *, length: int = 128, rows: int = 2048, seed: int = 0
) -> WordScore:
    """Hide words of the first `rows` rows of running text, [CLS] and [SEP] around each, and ask for them."""
    ids = blanked(text, tokenizer, length=length, rows=rows)
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    holes = Masking(
        masking.special.cpu(), mask=masking.mask, rate=masking.rate, replace=masking.replace
    )(ids, generator)
    asked = torch.zeros(ids.shape, dtype=torch.long).view(-1)
    asked[holes.places] = holes.targets + 1  # 0: not asked
    total, right, count = 0.0, 0, 0
    with _quiet(model):
        for rows_, answers in zip(holes.ids.split(TOKENS // length), asked.view_as(ids).split(TOKENS // length), strict=True):
            wanted = answers.flatten().to(device)
            places = wanted.nonzero().squeeze(1)
            assert model.masked is not None
            with _half(model):
                logits = model.masked(model(rows_.to(device)).flatten(0, 1)[places]).float()
            targets = wanted[places] - 1
            total += F.cross_entropy(logits, targets, reduction="sum").item()
            right += int((logits.argmax(-1) == targets).sum())
            count += len(targets)
    return WordScore(total / count, right / count, count)


def blanked(text: Text, tokenizer: Tokenizer, *, length: int, rows: int) -> Tensor:
    """Running text from its beginning, `length` tokens a row with [CLS] and [SEP]; (rows, length)."""
    inner = length - 2
    stream = np.concatenate([piece[: rows * inner] for piece in text.pieces])[: rows * inner].astype(np.int64)
    rows = len(stream) // inner
    cut = torch.from_numpy(stream[: rows * inner]).view(rows, inner)
    assert tokenizer.cls is not None and tokenizer.sep is not None
    return F.pad(F.pad(cut, (1, 0), value=tokenizer.cls), (0, 1), value=tokenizer.sep)


def pairs(model: Bert, text: Text, tokenizer: Tokenizer, *, length: int = 128, count: int = 2000, seed: int = 0) -> PairScore:
    """Ask of `count` pairs whether B follows A."""
    device = next(model.parameters()).device
    asked = next_pairs(text, tokenizer, length=length, count=count, seed=seed)
    total, right = 0.0, 0
    assert model.pooler is not None and model.next is not None
    with _quiet(model):
        for at in range(0, len(asked), TOKENS // length):
            part = asked[at : at + TOKENS // length]
            batch = collate([ids for ids, _, _ in part], packed=False, padding=tokenizer.pad or 0).to(device)
            segments = torch.zeros_like(batch.ids)
            for row, (ids, first, _) in zip(segments, part, strict=True):
                row[first : len(ids)] = 1
            with _half(model):
                logits = model.next(model.pooler(model(batch.ids, batch.layout, segments), batch.layout)).float()
            targets = torch.tensor([label for _, _, label in part], device=device)
            total += F.cross_entropy(logits, targets, reduction="sum").item()
            right += int((logits.argmax(-1) == targets).sum())
    return PairScore(total / len(asked), right / len(asked), len(asked))


def next_pairs(
    text: Text, tokenizer: Tokenizer, *, length: int = 128, count: int = 2000, seed: int = 0
) -> list[tuple[list[int], int, int]]:
    """Pairs of whole sentences, at most `length` tokens with special ones: ids, where B begins, and the label.

    A has a random number of sentences; B follows it in its document, or begins at any sentence of another one.
    """
    chance = np.random.default_rng(seed)
    documents = np.searchsorted(text.sentences, text.documents)  # the number of each one's first sentence
    sizes = np.diff(text.sentences)
    able = np.flatnonzero(np.diff(documents) >= 2)
    weights = np.diff(documents)[able] / np.diff(documents)[able].sum()
    found: list[tuple[list[int], int, int]] = []
    for _ in range(100 * count):
        if len(found) == count:
            return found
        home, other = chance.choice(able, p=weights), chance.choice(able, p=weights)
        begin = int(chance.integers(documents[home], documents[home + 1] - 1))
        room = length - 3
        ends = begin + 1 + int(np.searchsorted(np.cumsum(sizes[begin : documents[home + 1]]), room // 2, side="right"))
        middle = int(chance.integers(begin + 1, max(ends, begin + 2)))
        label = len(found) % 2
        second = middle if label == FOLLOWS else int(chance.integers(documents[other], documents[other + 1]))
        last = documents[home + 1] if label == FOLLOWS else documents[other + 1]
        left = room - int(sizes[begin:middle].sum())
        stop = second + int(np.searchsorted(np.cumsum(sizes[second:last]), left, side="right"))
        if middle >= documents[home + 1] or stop == second or left < 1 or (label != FOLLOWS and home == other):
            continue
        a = text.read(int(text.sentences[begin]), int(text.sentences[middle])).tolist()
        b = text.read(int(text.sentences[second]), int(text.sentences[stop])).tolist()
        ids = [tokenizer.cls, *a, tokenizer.sep, *b, tokenizer.sep]
        found.append((ids, len(a) + 2, label))
    return found


def next_words(model: Gpt, text: Text, *, length: int, rows: int = 512) -> NextWords:
    """The loss of each token of the first `rows` rows of running text, but for the first of each."""
    device = next(model.parameters()).device
    stream = np.concatenate([piece[: rows * length] for piece in text.pieces])[: rows * length].astype(np.int64)
    count = max(len(stream) // length, 1)
    ids = torch.from_numpy(stream[: count * length]).view(count, -1)
    total = 0.0
    with _quiet(model):
        for part in ids.split(max(TOKENS // 4 // length, 1)):
            part = part.to(device)
            with _half(model):
                logits = model.logits(model(part[:, :-1])).float()
            total += F.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten(), reduction="sum").item()
    asked = ids.numel() - len(ids)
    return NextWords(total / asked, asked)


@contextmanager
def _quiet(model: nn.Module) -> Iterator[None]:
    """No dropout, no gradients; the model goes on as it was."""
    before = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(before)


def _half(model: nn.Module) -> AbstractContextManager[object]:
    """On a GPU in bfloat16, as it is trained."""
    cuda = next(model.parameters()).is_cuda
    return torch.autocast("cuda", dtype=torch.bfloat16) if cuda else nullcontext()
