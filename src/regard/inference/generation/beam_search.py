"""Greedy search and beam search.

Knows token ids and the `Decoder` protocol, but no text and no family of models.

A beam keeps `num_beams` prefixes of each row. A step ranks all their continuations by the sum of log-probabilities and
considers the best `2 * num_beams`, since at most `num_beams` of those end. Continuations that end among the best
`num_beams` are hypotheses, scored by the sum divided by length**length_penalty, counting the end token; the best
`num_beams` others are the next beam. transformers' beam search has the same rules and gives the same scores.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from regard.errors import InputError, RegardError
from regard.events import drain
from regard.inference.generation.decoder import Decoder, StateT, TokenConstraints, fast_decoder
from regard.nn.masks import Padded
from regard.nn.training import evaluation_mode

if TYPE_CHECKING:
    from regard.inference.generation.trace import Trace

CHUNK = 256  # entries of a row whose maximum is computed together
PENALTIES = 10.0  # beyond, length**penalty leaves the range of a float
Path = tuple["Path", int] | None  # the tokens of a prefix, last first; prefixes share their common beginnings


@dataclass(frozen=True)
class Beam:
    """Settings of a beam search that returns the best `num_return_sequences` hypotheses.

    A `length_penalty` above 0 favors long hypotheses, below 0 short ones. A row is finished when it has `num_beams`
    hypotheses and, unless `early_stopping`, no prefix scores better at its current length than the worst of them.
    `wide` allows more beams than the vocabulary has tokens: an exhaustive search over a small vocabulary.
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
    """Generated tokens without the end token; `log_probability` sums over all tokens including the end token.

    Hypotheses are ranked by `score`. `finished`: the end token was generated; otherwise `max_new_tokens` was reached.
    """

    ids: tuple[int, ...]
    log_probability: float
    score: float
    finished: bool


class Continuation(NamedTuple):
    """A prefix, by its slot in the beam, and its next token; `total` is the sum of log-probabilities."""

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
    """The best hypotheses of each row, best first: `beam.num_return_sequences`, or fewer if there are not as many."""
    return drain(beam_search_steps(model, ids, layout, beam=beam, end=end, max_new_tokens=max_new_tokens, trace=trace))


def beam_search_steps(
    model: Decoder[StateT],
    ids: Tensor,
    layout: Padded | None = None,
    *,
    beam: Beam,
    end: int | None,
    max_new_tokens: int,
    trace: Trace | None = None,
) -> Generator[int, None, list[list[Hypothesis]]]:
    """Like `beam_search`; yields the number of each step."""
    check_max_new_tokens(max_new_tokens)
    constraints = TokenConstraints.of(model)
    with evaluation_mode(model):
        model = fast_decoder(model, ids.device, steps=max_new_tokens)
        logits, state = model.start(ids, layout)
        _check_width(beam, logits.shape[-1])
        rows = [_Row(number, beam, end) for number in range(len(logits))]
        active, totals = rows, logits.new_zeros(len(logits), 1, dtype=torch.float32)
        for step in range(1, max_new_tokens + 1):
            logits = constraints.force(logits, step)
            ranked = _ranked(logits, totals, 2 * beam.num_beams, constraints)
            moves = [
                row.advance(found, step, last=step == max_new_tokens) for row, found in zip(active, ranked, strict=True)
            ]
            if trace is not None:
                tables = logits.float().log_softmax(-1).view(*totals.shape, -1)
                for row, move, table in zip(active, moves, tables, strict=True):
                    trace.beam(row.number, table, move.going, move.ended, end=end)
            yield step
            beams = totals.shape[1]
            going = [(position, move.going) for position, move in enumerate(moves) if not move.done]
            active = [active[position] for position, _ in going]
            if not active:
                break
            totals = totals.new_tensor([[one.total for one in continuations] for _, continuations in going])
            index = [position * beams + one.slot for position, continuations in going for one in continuations]
            if index != list(range(len(logits))):
                state.reorder(torch.tensor(index, device=logits.device))
            tokens = torch.tensor(
                [one.token for _, continuations in going for one in continuations], device=logits.device
            )
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
    constraints = TokenConstraints.of(model)
    with evaluation_mode(model):
        logits, state = model.start(ids, layout)
        model = fast_decoder(model, ids.device, steps=max_new_tokens)
        generated: list[list[int]] = [[] for _ in range(len(logits))]
        sums, active = [0.0] * len(generated), list(range(len(generated)))
        for step in range(1, max_new_tokens + 1):
            tokens, values = _argmax(constraints.force(logits, step), constraints)
            going = []
            for position, (row, token, value) in enumerate(zip(active, tokens.tolist(), values.tolist(), strict=True)):
                generated[row].append(token)
                sums[row] += value
                if token != end:
                    going.append(position)
            if step == max_new_tokens or not going:
                break
            if len(going) < len(active):
                active = [active[position] for position in going]
                index = torch.tensor(going, device=logits.device)
                state.reorder(index)
                tokens = tokens[index]
            logits, state = model.step(tokens, state)
    hypotheses = []
    for chosen, total in zip(generated, sums, strict=True):
        finished = chosen[-1] == end
        kept = tuple(chosen[:-1] if finished else chosen)
        hypotheses.append(Hypothesis(kept, total, total / len(chosen), finished))
    return hypotheses


def check_max_new_tokens(max_new_tokens: int) -> None:
    if max_new_tokens < 1:
        raise InputError(f"max_new_tokens is {max_new_tokens}; expected at least 1")


def check_finite(values: Tensor) -> None:
    """RegardError if any value is NaN."""
    if bool(values.isnan().any()):
        raise RegardError("the model gave NaN for the next token; look for a damaged checkpoint or an overflow")


class _Move(NamedTuple):
    """One step of a row: continuations, ended hypotheses, and whether the row is finished."""

    going: list[Continuation]
    ended: list[Continuation]
    done: bool


class _Row:
    """The search of one row: its prefixes, and the hypotheses so far, best first."""

    def __init__(self, number: int, beam: Beam, end: int | None) -> None:
        self.number, self.beam, self.end = number, beam, end
        self.paths: list[Path] = [None]
        self.ended: list[Hypothesis] = []

    def advance(self, found: list[Continuation], step: int, *, last: bool) -> _Move:
        """Take the ranked continuations: some end, some continue. `last`: the last step, in which all end."""
        width = self.beam.num_beams
        stops = [last or one.token == self.end for one in found]
        ended = [one for one, stop in zip(found[:width], stops, strict=False) if stop and one.total > -math.inf]
        going = [one for one, stop in zip(found, stops, strict=True) if not stop and one.total > -math.inf][:width]
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
        generated = [] if finished else [one.token]
        path = self.paths[one.slot]
        while path is not None:
            path, token = path
            generated.append(token)
        score = one.total / step**self.beam.length_penalty
        return Hypothesis(tuple(reversed(generated)), one.total, score, finished)


def _ranked(logits: Tensor, totals: Tensor, count: int, constraints: TokenConstraints) -> list[list[Continuation]]:
    """The best `count` continuations of each row, best first. Logits (B * beams, V), totals (B, beams)."""
    rows, vocabulary = len(totals), logits.shape[-1]
    each = min(count, vocabulary)
    # The best overall are among the best of each prefix, so only those are summed.
    scores = logits.float()
    best, tokens = chunked_top_k(constraints.suppress(scores), each)
    sums = (best - scores.logsumexp(-1, keepdim=True)).view(rows, -1, each) + totals[:, :, None]
    values, indices = sums.view(rows, -1).topk(min(count, sums[0].numel()))
    chosen = tokens.view(rows, -1).gather(1, indices)
    slots = indices.div(each, rounding_mode="floor")
    check_finite(values)
    lists = zip(values.tolist(), slots.tolist(), chosen.tolist(), strict=True)
    return [[Continuation(*one) for one in zip(*row, strict=True)] for row in lists]


def _argmax(logits: Tensor, constraints: TokenConstraints) -> tuple[Tensor, Tensor]:
    """The likeliest token of each row and its log-probability."""
    scores = logits.float()
    best, tokens = chunked_top_k(constraints.suppress(scores), 1)
    values = (scores - best).exp_().sum(-1).log_().neg_()
    check_finite(values)
    return tokens[:, 0], values


def _check_width(beam: Beam, vocabulary: int) -> None:
    if beam.num_beams > vocabulary and not beam.wide:
        raise InputError(
            f"num_beams is {beam.num_beams}, and the vocabulary has only {vocabulary} tokens; "
            f"expected 1 to {vocabulary}, mostly 4 to 10"
        )


def chunked_top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The `k` highest values of each row (B, V), highest first, and their indices; for k = 1 the first of equals.

    They lie in the `k` chunks of the row with the highest maxima, and maxima are cheap.
    """
    rows, size = scores.shape
    chunks = size // CHUNK
    if k > chunks // 4 or scores.is_cuda:
        return _plain_top_k(scores, k)
    body = torch.unflatten(scores[:, : chunks * CHUNK], 1, (chunks, CHUNK))
    chosen = _plain_top_k(body.amax(-1), k)[1]
    candidates = body.gather(1, chosen[:, :, None].expand(-1, -1, CHUNK)).flatten(1)
    indices = (chosen[:, :, None] * CHUNK + torch.arange(CHUNK, device=scores.device)).flatten(1)
    if size > chunks * CHUNK:
        rest = torch.arange(chunks * CHUNK, size, device=scores.device)
        candidates = torch.cat([candidates, scores[:, rest[0] :]], 1)
        indices = torch.cat([indices, rest.expand(rows, -1)], 1)
    values, best = _plain_top_k(candidates, k)
    return values, indices.gather(1, best)


def _plain_top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    values, indices = scores.max(-1, keepdim=True) if k == 1 else scores.topk(k)
    return values, indices
