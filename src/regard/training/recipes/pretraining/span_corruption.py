"""Span corruption, T5's objective: spans of a text are replaced by sentinels, and the target holds the spans.

Every row drops the same number of tokens in the same number of spans, so all batches have one shape; the positions and
lengths of the spans are random. The first sentinel has the highest id of the vocabulary and each further one the id
below, as in the published T5 vocabularies.

    text    The dog chased the cat up the tree .
    input   The <0> the cat <1> tree . end
    target  <0> dog chased <1> up the <2> end
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import tokenizers
import torch
import torch.nn.functional as F
from tokenizers import processors
from torch import Tensor

from regard.data.corpus import train_tokenizer
from regard.data.corpus.vocabulary import SizeError, TokenizerType
from regard.errors import InputError
from regard.text import Tokenizer

SENTINELS = 100  # as in T5
PAD = "<pad>"


@dataclass(frozen=True)
class SpanSizes:
    """The tokens of a row, how many are dropped, and in how many spans."""

    tokens: int
    dropped: int
    spans: int

    @classmethod
    def of(cls, tokens: int, *, rate: float, span: float) -> SpanSizes:
        """For a text of at least two tokens; `rate` is the share of dropped tokens, `span` their mean span length."""
        dropped = min(max(round(tokens * rate), 1), tokens - 1)
        return cls(tokens, dropped, min(max(round(dropped / span), 1), tokens - dropped + 1))

    @classmethod
    def filling(cls, length: int, *, rate: float, span: float) -> SpanSizes:
        """For as much text as fills an input of `length` tokens."""
        found = cls.of(2, rate=rate, span=span)
        while (longer := cls.of(found.tokens + 1, rate=rate, span=span)).inputs <= length:
            found = longer
        return found

    @property
    def inputs(self) -> int:
        """Tokens of an input, with its end."""
        return self.tokens - self.dropped + self.spans + 1

    @property
    def targets(self) -> int:
        """Tokens of a target, with its last sentinel and its end."""
        return self.dropped + self.spans + 2


@dataclass(frozen=True, eq=False)
class CorruptedRows:
    """Inputs of the encoder, (B, inputs), and targets of the decoder, (B, targets)."""

    inputs: Tensor
    targets: Tensor


class SpanCorruption:
    """Drops spans of rows of `sizes.tokens` tokens. `sentinels` are ids, first sentinel first."""

    def __init__(
        self, sizes: SpanSizes, *, sentinels: Sequence[int], end: int, device: torch.device | None = None
    ) -> None:
        if len(sentinels) <= sizes.spans:
            raise InputError(
                f"a row of {sizes.inputs} tokens has {sizes.spans} dropped spans, and the vocabulary has "
                f"{len(sentinels)} sentinels, of which one more is needed: use a smaller data.max_length or "
                "objective.mlm_probability, or a larger objective.mean_noise_span_length"
            )
        self.sizes, self.end = sizes, end
        self.sentinels = torch.tensor(sentinels[: sizes.spans + 1], device=device)

    def __call__(self, ids: Tensor, generator: torch.Generator) -> CorruptedRows:
        ids = ids.long()
        dropped = self._dropped(len(ids), generator, ids.device)
        first = dropped & ~F.pad(dropped, (1, 0))[:, :-1]
        sentinel = self.sentinels[(first.cumsum(1) - 1).clamp(min=0)]
        sizes = self.sizes
        inputs = _select(torch.where(first, sentinel, ids), ~dropped | first, sizes.inputs - 1)
        # Every token twice, as a sentinel and as itself: a span keeps its first sentinel and all its tokens.
        both = torch.stack([sentinel, ids], dim=-1).flatten(1)
        targets = _select(both, torch.stack([first, dropped], dim=-1).flatten(1), sizes.targets - 2)
        last = self.sentinels[-1:].expand(len(ids), 1)
        end = torch.full_like(last, self.end)
        return CorruptedRows(torch.cat([inputs, end], dim=1), torch.cat([targets, last, end], dim=1))

    def _dropped(self, rows: int, generator: torch.Generator, device: torch.device) -> Tensor:
        """Which tokens are dropped, (B, tokens): uniform over all placements of spans at least one token apart."""
        sizes = self.sizes
        spans = _parts(sizes.dropped, sizes.spans, rows, generator, device)
        # The gaps before the first span and after the last may be empty: one token is added and removed.
        between = _parts(sizes.tokens - sizes.dropped + 2, sizes.spans + 1, rows, generator, device)
        between[:, 0] -= 1
        between[:, -1] -= 1
        lengths = torch.stack([between, F.pad(spans, (0, 1))], dim=-1).flatten()
        kinds = torch.tensor([False, True], device=device).repeat(rows * (sizes.spans + 1))
        return kinds.repeat_interleave(lengths, output_size=rows * sizes.tokens).view(rows, sizes.tokens)


def _parts(total: int, count: int, rows: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """Random positive integers whose sum is `total`, (rows, count), uniform over all such."""
    order = torch.rand(rows, total - 1, generator=generator, device=device).argsort(1)
    cuts = order[:, : count - 1].sort(1).values + 1
    return F.pad(F.pad(cuts, (1, 0)), (0, 1), value=total).diff(dim=1)


def _select(ids: Tensor, keep: Tensor, count: int) -> Tensor:
    """The ids where `keep` is set, (B, count), in their order."""
    return ids.gather(1, (~keep).to(torch.int8).argsort(dim=1, stable=True)[:, :count])


def train_with_sentinels(
    texts: Iterable[str], *, size: int, max_length: int | None, kind: TokenizerType = "bpe", **options: Any
) -> Tokenizer:
    """A tokenizer of `size` entries, including padding and sentinels; every text is followed by an end token.

    `options` are those of `train_tokenizer`.
    """
    more = SENTINELS + 1
    try:
        plain = train_tokenizer(texts, kind=kind, size=max(size - more, 1), max_length=max_length, **options)
    except SizeError as error:
        raise SizeError(
            f"{error}. In vocabulary.vocab_size, {size:,}, {more} entries are padding and sentinels", error.size + more
        ) from None
    # Appended, so that the ids of the trained entries stay as they are.
    pipeline = tokenizers.Tokenizer.from_str(plain.files()["tokenizer.json"].decode())
    pipeline.add_special_tokens([PAD, *(_name(number) for number in reversed(range(SENTINELS)))])
    assert plain.eos_token_id is not None
    end = plain.token(plain.eos_token_id)
    template = processors.TemplateProcessing(
        single=["$A", end], pair=["$A", end, "$B", end], special_tokens=[(end, plain.eos_token_id)]
    )
    pipeline.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return Tokenizer(
        pipeline, special_tokens={"pad_token": PAD, "eos_token": end, "unk_token": end}, max_length=max_length
    )


def sentinels_of(tokenizer: Tokenizer) -> list[int]:
    """The ids of a vocabulary's sentinels, in order; empty if there are none."""
    vocabulary = tokenizer.vocabulary
    found: list[int] = []
    while (name := _name(len(found))) in vocabulary:
        found.append(vocabulary[name])
    return found


def _name(number: int) -> str:
    return f"<extra_id_{number}>"
