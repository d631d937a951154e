"""How well a model does what it was pretrained for, on text that it has not seen.

Knows the objectives' questions and their answers; trains nothing. The same text and seed ask the same questions of
every model, so losses can be compared where vocabularies are the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.batch import collate
from regard.data.masking import IGNORE_INDEX, Masking
from regard.errors import InputError
from regard.models.bert import Bert
from regard.models.elmo import Elmo
from regard.models.gpt import Gpt
from regard.models.t5 import T5
from regard.nn.evaluation import evaluation_mode
from regard.text import Tokenizer
from regard.training.pretraining.row_sampler import FOLLOWS
from regard.training.pretraining.span_corruption import SpanCorruption
from regard.training.pretraining.token_stream import TokenStream

__all__ = [
    "AccuracyScore",
    "PerplexityScore",
    "blanked",
    "both_ways",
    "dropped_spans",
    "next_pairs",
    "next_words",
    "pairs",
    "stretches",
    "words",
]

TOKENS = 1 << 15  # tokens of a forward pass
TRIES = 1000  # pairs in a row that cannot be made, after which no more are drawn


@dataclass(frozen=True)
class AccuracyScore:
    """Hidden words, or pairs of texts: the mean loss in nats, the share told right, and how many were asked."""

    loss: float
    accuracy: float
    count: int


@dataclass(frozen=True)
class PerplexityScore:
    """The next word, the one before, or a word of a dropped stretch: the mean loss in nats of `count` tokens."""

    loss: float
    count: int

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.loss, 700.0))


def words(
    model: Bert,
    masking: Masking,
    text: TokenStream,
    tokenizer: Tokenizer,
    *,
    length: int = 128,
    rows: int = 2048,
    seed: int = 0,
) -> AccuracyScore:
    """Hide words of the first `rows` rows of running text, [CLS] and [SEP] around each, and ask for them."""
    assert model.masked is not None
    ids = blanked(text, tokenizer, length=length, rows=rows)
    # Hidden on the CPU, whose chance is the same everywhere, and piece by piece, whatever is hidden in training.
    single = Masking(masking.special.cpu(), mask=masking.mask, rate=masking.rate, replace=masking.replace)
    masked = single(ids, torch.Generator().manual_seed(seed))
    asked = torch.full((ids.numel(),), IGNORE_INDEX)
    asked[masked.places] = masked.targets
    device = next(model.parameters()).device
    total, right, count = 0.0, 0, 0
    size = max(TOKENS // length, 1)
    with evaluation_mode(model):
        for part, answers in zip(torch.split(masked.ids, size), torch.split(asked, size * length), strict=True):
            places = (answers != IGNORE_INDEX).nonzero().squeeze(1)
            targets = answers[places].to(device)
            logits = model.masked(model(part.to(device), rows=places.to(device))).float()
            total += F.cross_entropy(logits, targets, reduction="sum").item()
            right += int((logits.argmax(-1) == targets).sum())
            count += len(targets)
    if not count:
        raise InputError("the text to evaluate on has no token that could be hidden: all are special; use another text")
    return AccuracyScore(total / count, right / count, count)


def blanked(text: TokenStream, tokenizer: Tokenizer, *, length: int, rows: int) -> Tensor:
    """Running text from its beginning, `length` tokens a row with [CLS] and [SEP]; (rows, length)."""
    assert tokenizer.cls is not None and tokenizer.sep is not None
    cut = stretches(text, length=length - 2, rows=rows)
    return F.pad(F.pad(cut, (1, 0), value=tokenizer.cls), (0, 1), value=tokenizer.sep)


def stretches(text: TokenStream, *, length: int, rows: int) -> Tensor:
    """Running text from its beginning, `length` tokens a row; (rows, length)."""
    if text.tokens < length:
        raise InputError(
            f"the text to evaluate on has {text.tokens} tokens, too few for one row of {length}: use more text, "
            "or shorter rows"
        )
    rows = min(rows, text.tokens // length)
    return _beginning(text, rows * length).view(rows, length)


def pairs(
    model: Bert, text: TokenStream, tokenizer: Tokenizer, *, length: int = 128, count: int = 2000, seed: int = 0
) -> AccuracyScore:
    """Ask of `count` pairs whether B follows A."""
    assert model.pooler is not None and model.next is not None
    device = next(model.parameters()).device
    asked = next_pairs(text, tokenizer, length=length, count=count, seed=seed)
    total, right = 0.0, 0
    size = max(TOKENS // length, 1)
    with evaluation_mode(model):
        for at in range(0, len(asked), size):
            part = asked[at : at + size]
            batch = collate([ids for ids, _, _ in part], packed=False, padding=tokenizer.pad or 0).to(device)
            second = torch.tensor([first for _, first, _ in part], device=device)
            segments = (torch.arange(batch.ids.shape[1], device=device) >= second[:, None]).long()
            logits = model.next(model.pooler(model(batch.ids, batch.layout, segments), batch.layout)).float()
            targets = torch.tensor([label for _, _, label in part], device=device)
            total += F.cross_entropy(logits, targets, reduction="sum").item()
            right += int((logits.argmax(-1) == targets).sum())
    return AccuracyScore(total / len(asked), right / len(asked), len(asked))


def next_pairs(
    text: TokenStream, tokenizer: Tokenizer, *, length: int = 128, count: int = 2000, seed: int = 0
) -> list[tuple[list[int], int, int]]:
    """Pairs of whole sentences, at most `length` tokens with special ones: ids, where B begins, and the label.

    A has a random number of sentences; B follows it in its document, or begins at any sentence of another one. True
    and false pairs take turns. They are fewer than `count` where the text hardly has pairs of that length.
    """
    assert tokenizer.cls is not None and tokenizer.sep is not None
    chance = np.random.default_rng(seed)
    sizes, room = np.diff(text.sentences), length - 3
    documents = np.searchsorted(text.sentences, text.documents)  # the number of each one's first sentence
    home = np.repeat(np.arange(len(documents) - 1), np.diff(documents))  # the document of each sentence
    begins = np.flatnonzero(home[:-1] == home[1:])  # the sentences that have one behind them
    found: list[tuple[list[int], int, int]] = []
    failed = 0 if len(begins) and len(documents) > 2 else TRIES
    while len(found) < count and failed < TRIES:
        failed += 1
        first = int(begins[chance.integers(len(begins))])
        end = documents[home[first] + 1]
        fit = int(np.searchsorted(np.cumsum(sizes[first : end - 1]), room // 2, side="right"))
        second = middle = first + int(chance.integers(1, max(fit, 1) + 1))
        label = len(found) % 2
        if label != FOLLOWS:
            second = int(chance.integers(len(sizes)))
            end = documents[home[second] + 1]
        left = room - int(sizes[first:middle].sum())
        stop = second + int(np.searchsorted(np.cumsum(sizes[second:end]), left, side="right"))
        if stop == second or (home[first] == home[second]) != (label == FOLLOWS):
            continue
        a = text.read(int(text.sentences[first]), int(text.sentences[middle])).tolist()
        b = text.read(int(text.sentences[second]), int(text.sentences[stop])).tolist()
        found.append(([tokenizer.cls, *a, tokenizer.sep, *b, tokenizer.sep], len(a) + 2, label))
        failed = 0
    if len(found) < min(count, 2):
        raise InputError(
            "the text to evaluate on gives no pairs: they need two documents, and sentences of which two fit into "
            f"{room} tokens; use more text, or longer rows"
        )
    return found if len(found) == count else found[: len(found) - len(found) % 2]


def next_words(model: Gpt, text: TokenStream, *, length: int, rows: int = 512) -> PerplexityScore:
    """The loss of each token of the first `rows` rows of running text, but for the first of each."""
    length = min(length, text.tokens)
    if length < 2:
        raise InputError(f"the text to evaluate on has {text.tokens} tokens, and no next one; use more text")
    device = next(model.parameters()).device
    rows = min(rows, text.tokens // length)
    ids = _beginning(text, rows * length).view(rows, length)
    total = 0.0
    with evaluation_mode(model):
        for part in torch.split(ids, max(TOKENS // 4 // length, 1)):
            part = part.to(device)
            logits = model.logits(model(part[:, :-1])).float()
            total += F.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten(), reduction="sum").item()
    asked = rows * (length - 1)
    return PerplexityScore(total / asked, asked)


def both_ways(
    model: Elmo, text: TokenStream, tokenizer: Tokenizer, *, length: int, rows: int = 512
) -> tuple[PerplexityScore, PerplexityScore]:
    """The loss of each token of the first `rows` rows told from those before it, and from those behind it.

    [CLS] and [SEP] stand around each row and are not asked for.
    """
    device = next(model.parameters()).device
    ids = blanked(text, tokenizer, length=length, rows=rows)
    asked = ids[:, 1:-1].numel()
    totals = [0.0, 0.0]
    with evaluation_mode(model):
        for part in torch.split(ids, max(TOKENS // 4 // length, 1)):
            part = part.to(device)
            ahead, back = model.logits(model(part))
            for way, logits in enumerate((ahead[:, :-2], back[:, 2:])):
                targets = part[:, 1:-1].flatten()
                totals[way] += F.cross_entropy(logits.float().flatten(0, 1), targets, reduction="sum").item()
    return PerplexityScore(totals[0] / asked, asked), PerplexityScore(totals[1] / asked, asked)


def dropped_spans(
    model: T5, corruption: SpanCorruption, text: TokenStream, *, rows: int = 512, seed: int = 0
) -> PerplexityScore:
    """Drop stretches of the first `rows` rows of running text, and ask for the targets, sentinels and end included."""
    device = next(model.parameters()).device
    ids = stretches(text, length=corruption.sizes.tokens, rows=rows)
    corrupted = corruption(ids, torch.Generator().manual_seed(seed))
    total = 0.0
    size = max(TOKENS // 4 // corruption.sizes.inputs, 1)
    with evaluation_mode(model):
        for given, targets in zip(
            torch.split(corrupted.inputs, size), torch.split(corrupted.targets, size), strict=True
        ):
            said = F.pad(targets[:, :-1], (1, 0), value=model.begin)
            logits = model.logits(model(given.to(device), said.to(device))).float()
            total += F.cross_entropy(logits.flatten(0, 1), targets.flatten().to(device), reduction="sum").item()
    return PerplexityScore(total / corrupted.targets.numel(), corrupted.targets.numel())


def _beginning(text: TokenStream, count: int) -> Tensor:
    """The first tokens of a text, across its pieces."""
    return torch.from_numpy(np.concatenate([piece[:count] for piece in text.pieces])[:count].astype(np.int64))
