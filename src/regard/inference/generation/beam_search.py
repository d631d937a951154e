"""Greedy and beam search: the likeliest continuation, and the likeliest few kept side by side.

Knows numbers of tokens and what a `Speaker` offers. Knows no text, and no family of models.

A beam keeps `width` beginnings of each row. A step ranks all their continuations by the sum of log-probabilities and
looks at the best `2 * width`, since at most `width` of those end. What ends among the best `width` is a hypothesis, its
score the sum divided by length**length_penalty, end token counted; the best `width` that go on are the next beam. These
are the rules of transformers' beam search, so hypotheses and scores are the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from regard.errors import InputError, RegardError
from regard.inference.generation.decoder import Decoder, StateT, inference_mode
from regard.inference.generation.fast_decoder import fast_decoder
from regard.inference.generation.top_k import top_k
from regard.nn import DecoderState, Padded
from regard.nn.fast.cuda_graphs import CudaGraphDecoder, cuda_graph_decoder

if TYPE_CHECKING:
    from regard.inference.generation.trace import Trace

__all__ = ["Beam", "Continuation", "Hypothesis", "beam_search", "check_finite", "check_max_new_tokens", "greedy_search"]

PENALTIES = 10.0  # beyond, length**penalty leaves the range of a float


@dataclass(frozen=True)
class Beam:
    """`width` beginnings live side by side, and the best `nbest` hypotheses are told.

    A `length_penalty` above 0 favours long hypotheses, below 0 short ones. A row is done when it has `width` hypotheses
    and, unless `early`, no beginning scores better at its present length than the worst of them.
    `wide` allows more beginnings than the vocabulary has tokens: an exhaustive search of something small.
    """

    num_beams: int = 5
    length_penalty: float = 1.0
    num_return_sequences: int = 1
    early_stopping: bool = False
    wide: bool = False

    def __post_init__(self) -> None:
        if self.num_beams < 1:
            raise InputError(f"num_beams is {self.num_beams}; expected at least 1")
        if not 1 <= self.num_return_sequences <= self.num_beams:
            raise InputError(
                f"num_return_sequences is {self.num_return_sequences} with {self.num_beams} beams; "
                f"expected 1 to {self.num_beams}: use more beams or request fewer sequences"
            )
        if not -PENALTIES <= self.length_penalty <= PENALTIES:
            raise InputError(f"the length penalty is {self.length_penalty}; expected -{PENALTIES:g} to {PENALTIES:g}")


@dataclass(frozen=True)
class Hypothesis:
    """What was said, without the end token; `log_probability` sums over all tokens, the end token included.

    `score` is what hypotheses are ranked by. `finished`: an end token was said, not just the last token allowed.
    """

    ids: tuple[int, ...]
    log_probability: float
    score: float
    finished: bool


class Continuation(NamedTuple):
    """A beginning, by its slot in the beam, and the token behind it; `total` is the sum of log-probabilities."""

    total: float
    slot: int
    token: int


def beam_search(
    model: Decoder[StateT],
    ids: Tensor,
    layout: Padded | None = None,
    *,
    beam: Beam,
    end: int | None,
    max_new_tokens: int,
    trace: Trace | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each row, best first: `beam.nbest` of them, or all where fewer exist."""
    check_max_new_tokens(max_new_tokens)
    with inference_mode(model):
        model = fast_decoder(model, ids.device, steps=max_new_tokens)
        logits, state = model.start(ids, layout)
        _check_width(beam, logits.shape[-1])
        rows = [_Row(number, beam, end) for number in range(len(logits))]
        live, totals = rows, logits.new_zeros(len(logits), 1, dtype=torch.float32)
        for step in range(1, max_new_tokens + 1):
            ranked = _ranked(logits, totals, 2 * beam.num_beams)
            moves = [
                row.advance(found, step, last=step == max_new_tokens) for row, found in zip(live, ranked, strict=True)
            ]
            if trace is not None:
                tables = logits.float().log_softmax(-1).view(*totals.shape, -1)
                for row, move, table in zip(live, moves, tables, strict=True):
                    trace.beam(row.number, table, move.going, move.ended, end=end)
            beams = totals.shape[1]
            going = [(place, move.going) for place, move in enumerate(moves) if not move.done]
            live = [live[place] for place, _ in going]
            if not live:
                break
            totals = totals.new_tensor([[one.total for one in several] for _, several in going])
            index = [place * beams + one.slot for place, several in going for one in several]
            if index != list(range(len(logits))):
                state.reorder(torch.tensor(index, device=logits.device))
            tokens = torch.tensor([one.token for _, several in going for one in several], device=logits.device)
            logits, state = model.step(tokens, state)
    found = [row.ended[: beam.num_return_sequences] for row in rows]
    if trace is not None:
        trace.set_results(found)
    return found


def greedy_search(
    model: Decoder[StateT],
    ids: Tensor,
    layout: Padded | None = None,
    *,
    end: int | None,
    max_new_tokens: int,
) -> list[Hypothesis]:
    """The likeliest token at each step, for each row. A score is the mean log-probability of the tokens."""
    check_max_new_tokens(max_new_tokens)
    with inference_mode(model):
        logits, state = model.start(ids, layout)
        if max_new_tokens > 1 and isinstance(state, DecoderState):
            bursts = cuda_graph_decoder(model, state, max_tokens=max_new_tokens, choose=_surest, kind="greedy")
            if bursts is not None:
                return _in_bursts(bursts, state, logits, end=end, max_tokens=max_new_tokens)
        model = fast_decoder(model, ids.device, steps=max_new_tokens)
        said: list[list[int]] = [[] for _ in range(len(logits))]
        sums, live = [0.0] * len(said), list(range(len(said)))
        for step in range(1, max_new_tokens + 1):
            values, tokens = _best(logits)
            going = []
            for place, (row, token, value) in enumerate(zip(live, tokens.tolist(), values.tolist(), strict=True)):
                said[row].append(token)
                sums[row] += value
                if token != end:
                    going.append(place)
            if step == max_new_tokens or not going:
                break
            if len(going) < len(live):
                live = [live[place] for place in going]
                index = torch.tensor(going, device=logits.device)
                state.reorder(index)
                tokens = tokens[index]
            logits, state = model.step(tokens, state)
    return [_greedy_hypothesis(tokens, total, end) for tokens, total in zip(said, sums, strict=True)]


def _in_bursts(
    bursts: CudaGraphDecoder, state: DecoderState, logits: Tensor, *, end: int | None, max_tokens: int
) -> list[Hypothesis]:
    """The rest of a greedy search where all rows go on until the last has ended."""
    values, tokens = _best(logits)
    said, sums = [[token] for token in tokens.tolist()], values.tolist()
    live = [row for row, words in enumerate(said) if words[-1] != end]
    for words, numbers in bursts.generate(state, tokens, count=max_tokens - 1) if live else ():
        for row in live:
            if math.isnan(numbers[row]):
                check_finite(torch.tensor(numbers))
            said[row].append(words[row])
            sums[row] += numbers[row]
        live = [row for row in live if words[row] != end]
        if not live:
            break
    return [_greedy_hypothesis(tokens, total, end) for tokens, total in zip(said, sums, strict=True)]


def check_max_new_tokens(max_tokens: int) -> None:
    if max_tokens < 1:
        raise InputError(f"max_tokens is {max_tokens}; expected the most tokens to say, at least 1")


def check_finite(values: Tensor) -> None:
    """Refuse what no choice can be made of."""
    if bool(values.isnan().any()):
        raise RegardError("the model gave NaN for the next token; look for a damaged checkpoint or an overflow")


class _Move(NamedTuple):
    """A row's step: what goes on, what ended, and whether the row is done."""

    going: list[Continuation]
    ended: list[Continuation]
    done: bool


Path = tuple["Path", int] | None  # the tokens of a beginning, the last one first: beginnings share what they share


class _Row:
    """The search of one row: its beginnings, and the hypotheses so far, best first."""

    def __init__(self, number: int, beam: Beam, end: int | None) -> None:
        self.number, self.beam, self.end = number, beam, end
        self.paths: list[Path] = [None]
        self.ended: list[Hypothesis] = []

    def advance(self, found: list[Continuation], step: int, *, last: bool) -> _Move:
        """Take the ranked continuations: some end, some go on. `last`: no more tokens, so all end that may."""
        width = self.beam.num_beams
        stops = [last or one.token == self.end for one in found]
        ended = [one for one, stop in zip(found[:width], stops, strict=False) if stop and one.total > -math.inf]
        going = [one for one, stop in zip(found, stops, strict=True) if not stop][:width]
        new = [self._hypothesis(one, step) for one in ended]
        self.ended = sorted([*self.ended, *new], key=lambda one: -one.score)[:width]
        self.paths = [(self.paths[one.slot], one.token) for one in going]
        return _Move(going, ended, not going or self._is_done(going[0].total, step))

    def _is_done(self, best: float, step: int) -> bool:
        if len(self.ended) < self.beam.num_beams:
            return False
        return self.beam.early_stopping or best / step**self.beam.length_penalty <= self.ended[-1].score

    def _hypothesis(self, one: Continuation, step: int) -> Hypothesis:
        finished = one.token == self.end
        said = [] if finished else [one.token]
        path = self.paths[one.slot]
        while path is not None:
            path, token = path
            said.append(token)
        score = one.total / step**self.beam.length_penalty
        return Hypothesis(tuple(reversed(said)), one.total, score, finished)


def _ranked(logits: Tensor, totals: Tensor, count: int) -> list[list[Continuation]]:
    """The best `count` continuations of each row, best first. Logits (B * beams, V), totals (B, beams)."""
    rows, vocabulary = len(totals), logits.shape[-1]
    each = min(count, vocabulary)
    # The best of all are among the best of each beginning, so the sums are made of those alone.
    numbers = logits.float()
    best, tokens = top_k(numbers, each)
    sums = (best - numbers.logsumexp(-1, keepdim=True)).view(rows, -1, each) + totals[:, :, None]
    values, places = sums.view(rows, -1).topk(min(count, sums[0].numel()))
    chosen = tokens.view(rows, -1).gather(1, places)
    slots = places.div(each, rounding_mode="floor")
    check_finite(values)
    lists = zip(values.tolist(), slots.tolist(), chosen.tolist(), strict=True)
    return [[Continuation(*one) for one in zip(*row, strict=True)] for row in lists]


def _best(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The likeliest token of each row and its log-probability."""
    tokens, values = _surest(logits)
    check_finite(values)
    return values, tokens


def _surest(logits: Tensor, chances: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The likeliest tokens, whatever the chances, and their log-probabilities; nothing is checked."""
    numbers = logits.float()
    best, tokens = top_k(numbers, 1)
    return tokens[:, 0], (numbers - best).exp_().sum(-1).log_().neg_()


def _check_width(beam: Beam, vocabulary: int) -> None:
    if beam.num_beams > vocabulary and not beam.wide:
        raise InputError(
            f"num_beams is {beam.num_beams}, and the vocabulary has only {vocabulary} tokens to begin with; "
            f"expected 1 to {vocabulary}, mostly 4 to 10"
        )


def _greedy_hypothesis(tokens: list[int], total: float, end: int | None) -> Hypothesis:
    finished = tokens[-1] == end
    return Hypothesis(tuple(tokens[:-1] if finished else tokens), total, total / len(tokens), finished)
