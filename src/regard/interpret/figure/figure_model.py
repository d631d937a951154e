"""What the figure is drawn of: one sentence through an encoder, a decoder or both, and what the model says of it.

Knows which inputs a family takes and what can be asked of it. Knows no switch: whoever runs it may have switched
something off. No padding and no cache: one text at a time, whole.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from regard.checkpoints.ready import Masked, family_of, kind_of, tokenizer_of
from regard.errors import InputError
from regard.inference.masked_lm import BLANK_PATTERN
from regard.inference.translation.subwords import Subwords
from regard.interpret.attention import token_axis as sides
from regard.interpret.attention.recording import TextTokenizer
from regard.models import Bert, Gpt, Transformer
from regard.nn import Padded
from regard.text import Tokenizer

__all__ = ["MIN_TOKENS", "FigureInput", "FigureModel", "ScoredLogits", "figure_model_of"]

MORE = 8  # tokens that a decoder adds to a text
MIN_TOKENS = 2  # tokens that are worth a figure

ScoredLogits: TypeAlias = tuple[
    Tensor, list[int | None]
]  # logits (N, V), and what should come there where that is known


@dataclass(frozen=True)
class FigureInput:
    """The ids an encoder reads and those a decoder has heard, empty where there is none; `wanted` should be said.

    Of an encoder `wanted` is None. `cut` tokens did not fit.
    """

    source: tuple[int, ...]
    heard: tuple[int, ...]
    wanted: tuple[int, ...] | None
    target: str | None = None
    cut: int = 0


class FigureModel(ABC):
    """A model with what reads for it. `parts` are the halves of the figure that it has."""

    model: Bert | Gpt | Transformer
    parts: tuple[str, ...]
    measure: str

    @abstractmethod
    def read(self, text: str, target: str | None = None, *, limit: int) -> FigureInput: ...

    @abstractmethod
    def run(self, sentence: FigureInput) -> Tensor:
        """The logits (T, V) of the one forward that the figure shows."""

    @abstractmethod
    def asked(self, sentence: FigureInput) -> ScoredLogits:
        """What is asked of the model to measure it."""

    @abstractmethod
    def says(self, sentence: FigureInput, logits: Tensor) -> str:
        """What it makes of the sentence by itself, the likeliest token each time; `logits` are those of `asked`."""

    @abstractmethod
    def tokens(self, sentence: FigureInput, part: str) -> tuple[str, ...]: ...

    @abstractmethod
    def word(self, number: int) -> str:
        """A token that may be said, as text."""

    def tensor(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor([list(ids)], device=next(self.model.parameters()).device)


class EncoderFigureModel(FigureModel):
    """An encoder with its head: every token is hidden in turn and asked for."""

    parts = ("encoder",)
    measure = "mean of -ln p over the text's tokens, each hidden in turn and told by all others"

    def __init__(self, model: nn.Module, tokenizer: Tokenizer | None) -> None:
        self.asks = Masked.of(model, tokenizer, doing="Figure 1 of an encoder")
        self.model = self.asks.model

    def read(self, text: str, target: str | None = None, *, limit: int) -> FigureInput:
        if target is not None:
            raise InputError("this model reads one text and says no other; leave the target out")
        tokenizer = self.asks.tokenizer
        found = tokenizer.encode(
            re.sub(BLANK_PATTERN, lambda _: tokenizer.token(self.asks.mask), text), max_length=limit
        )
        return FigureInput(tuple(found.ids), (), None, cut=found.cut)

    def run(self, sentence: FigureInput) -> Tensor:
        result: Tensor = self.asks.head(self.asks.model(self.tensor(sentence.source), Padded()))[0]
        return result

    def asked(self, sentence: FigureInput) -> ScoredLogits:
        places = self._places(sentence)
        rows = self.tensor(sentence.source).repeat(len(places), 1)
        here = torch.arange(len(places), device=rows.device), torch.tensor(places, device=rows.device)
        rows[here] = self.asks.mask
        hidden = self.asks.model(rows, Padded())
        wanted = [sentence.source[place] for place in places]
        return self.asks.head(hidden[here]), [None if one == self.asks.mask else one for one in wanted]

    def says(self, sentence: FigureInput, logits: Tensor) -> str:
        ids, best = list(sentence.source), logits.argmax(-1).tolist()
        for place, number in zip(self._places(sentence), best, strict=True):
            ids[place] = number
        return self.asks.tokenizer.decode(ids).strip()

    def tokens(self, sentence: FigureInput, part: str) -> tuple[str, ...]:
        return _spelled(self.asks.tokenizer, sentence.source)

    def word(self, number: int) -> str:
        return _spelled(self.asks.tokenizer, [number])[0]

    def _places(self, sentence: FigureInput) -> list[int]:
        tokenizer = self.asks.tokenizer
        special = {tokenizer.cls, tokenizer.sep, tokenizer.bos, tokenizer.eos, tokenizer.pad} - {None}
        found = [place for place, number in enumerate(sentence.source) if number not in special]
        if not found:
            raise InputError("the text has no token that could be asked for; expected at least a word")
        return found


class DecoderFigureModel(FigureModel):
    """A decoder without an encoder: every token is asked for by those before it."""

    parts = ("decoder",)
    measure = "mean of -ln p over the text's tokens, each told by those before it"

    def __init__(self, model: Gpt, tokenizer: Tokenizer | None) -> None:
        self.model, self.tokenizer = model, tokenizer_of(model, tokenizer)
        self.gpt = model
        known = (model.config.begin, self.tokenizer.bos)
        self.begin = [one for one in known if one is not None and one < model.config.vocabulary][:1]

    def read(self, text: str, target: str | None = None, *, limit: int) -> FigureInput:
        if target is not None:
            raise InputError("this model continues one text and has no target; leave the target out")
        found = [*self.begin, *self.tokenizer.encode(text, special=False).ids]
        ids = tuple(found[:limit])
        if len(ids) < MIN_TOKENS:
            raise InputError(f"the text is {len(ids)} token; expected at least {MIN_TOKENS}, so that one can be told")
        return FigureInput((), ids, ids[1:], cut=len(found) - len(ids))

    def run(self, sentence: FigureInput) -> Tensor:
        return self.gpt.logits(self.gpt(self.tensor(sentence.heard), Padded()))[0]

    def asked(self, sentence: FigureInput) -> ScoredLogits:
        return self.run(sentence)[:-1], list(sentence.heard[1:])

    def says(self, sentence: FigureInput, logits: Tensor) -> str:
        ids = list(sentence.heard)
        for _ in range(min(MORE, self.gpt.config.positions - len(ids))):
            ids.append(int(self.gpt.logits(self.gpt(self.tensor(ids), Padded())[0, -1]).argmax()))
        return self.tokenizer.decode(ids).strip()

    def tokens(self, sentence: FigureInput, part: str) -> tuple[str, ...]:
        return _spelled(self.tokenizer, sentence.heard)

    def word(self, number: int) -> str:
        return _spelled(self.tokenizer, [number])[0]


class EncoderDecoderFigureModel(FigureModel):
    """Both halves: every token of the translation is asked for by the source and by those before it."""

    parts = ("encoder", "decoder")
    measure = "mean of -ln p over the translation's tokens, each told by the source and by those before it"

    def __init__(self, model: Transformer, subwords: Subwords) -> None:
        self.model, self.subwords = model, subwords
        self.translator = model

    def read(self, text: str, target: str | None = None, *, limit: int) -> FigureInput:
        source, cut = self._ended(self.subwords.encode_sources([text])[0], limit)
        if target is None:
            said = [*self._greedy(source, limit - 1), self.subwords.end]
        else:
            said, more = self._ended(self.subwords.encode_targets([target])[0], limit)
            cut += more
        heard = (self.translator.begin, *said[:-1])
        return FigureInput(tuple(source), heard, tuple(said), self.subwords.decode(said[:-1]), cut)

    def run(self, sentence: FigureInput) -> Tensor:
        hidden = self.translator(self.tensor(sentence.source), self.tensor(sentence.heard))
        return self.translator.logits(hidden)[0]

    def asked(self, sentence: FigureInput) -> ScoredLogits:
        return self.run(sentence), list(sentence.wanted or ())

    def says(self, sentence: FigureInput, logits: Tensor) -> str:
        return self.subwords.decode(self._greedy(sentence.source, 2 * len(sentence.source) + 10))

    def tokens(self, sentence: FigureInput, part: str) -> tuple[str, ...]:
        if part == "encoder":
            return _spelled(self.subwords.source, sentence.source)
        return _spelled(self.subwords.target, sentence.heard)

    def word(self, number: int) -> str:
        return _spelled(self.subwords.target, [number])[0]

    def _ended(self, ids: Sequence[int], limit: int) -> tuple[list[int], int]:
        over = max(0, len(ids) - limit)
        return ([*ids[: limit - 1], self.subwords.end] if over else list(ids)), over

    def _greedy(self, source: Sequence[int], most: int) -> list[int]:
        """Without a cache: a decoder that may see the future must read all of it again at every step."""
        memory = self.translator.encode(self.tensor(source))
        ids = [self.translator.begin]
        for _ in range(max(1, most)):
            hidden = self.translator.decode(self.tensor(ids), memory)
            ids.append(int(self.translator.logits(hidden[0, -1]).argmax()))
            if ids[-1] == self.subwords.end:
                return ids[1:-1]
        return ids[1:]


def figure_model_of(model: nn.Module, reader: TextTokenizer) -> FigureModel:
    """A Transformer that the figure can be drawn of; an `InputError` where it cannot."""
    if isinstance(model, Transformer) and isinstance(reader, Subwords):
        return EncoderDecoderFigureModel(model, reader)
    if isinstance(reader, Subwords):
        raise InputError(f"this {family_of(model)} model is no Transformer, so it has no Figure 1; take one that is")
    if isinstance(model, Gpt):
        return DecoderFigureModel(model, reader)
    if isinstance(model, Bert):
        return EncoderFigureModel(model, reader)
    raise InputError(
        f"Figure 1 is drawn of a BERT, of a GPT or of a translator that is a Transformer; this is {kind_of(model)}"
    )


def _spelled(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, ...]:
    return sides.axis_of_ids(tokenizer, ids, special=len(ids)).tokens
