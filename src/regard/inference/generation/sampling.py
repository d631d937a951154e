"""Tokens by chance, one step at a time, as they come.

Knows what a `Speaker` offers, filters, and where random numbers come from. Knows no text.

The number that chooses a token depends on the seed, the row's number and the step alone: a row is the same in a batch
of any size and at any place in it, up to the rounding of the model's own logits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.inference.generation.beam_search import check_finite, check_max_new_tokens
from regard.inference.generation.decoder import Decoder, StateT, eval_mode
from regard.inference.generation.fast_decoder import fast_decoder
from regard.inference.generation.logits_filters import Sampling, repetition_penalty
from regard.inference.generation.top_k import top_k
from regard.nn import DecoderState, Padded
from regard.nn.fast.cuda_graphs import CudaGraphDecoder, SelectTokens, cuda_graph_decoder

if TYPE_CHECKING:
    from regard.inference.generation.trace import Trace

__all__ = ["choose_tokens", "sample", "uniform_number"]


def sample(
    model: Decoder[StateT],
    ids: Tensor,
    layout: Padded | None = None,
    *,
    sampling: Sampling | None,
    end: int | None,
    max_new_tokens: int,
    seed: int = 0,
    rows: Sequence[int] | None = None,
    prompt_ids: Sequence[Sequence[int]] | None = None,
    finished: Collection[int] = (),
    trace: Trace | None = None,
) -> Iterator[list[int | None]]:
    """The next token of each row, step by step; None for a row that has said its end token. No `sampling`: greedy.

    `rows` are the numbers of the rows for their random numbers; unless given, from 0. `heard` are the tokens of each
    row that the repetition penalty counts as said before. Places in the batch that the caller puts into `over`
    meanwhile say no more.
    """
    check_max_new_tokens(max_new_tokens)
    sampling = sampling or Sampling(temperature=0.0)
    with eval_mode(model):
        with torch.inference_mode():
            logits, state = model.start(ids, layout)
            said = _heard(logits, prompt_ids) if sampling.repetition_penalty != 1 else None
        live = list(range(len(logits)))
        numbers = live if rows is None else list(rows)
        if said is None and trace is None and max_new_tokens > 1 and isinstance(state, DecoderState):
            bursts = cuda_graph_decoder(
                model, state, max_tokens=max_new_tokens, choose=_chooser(sampling), kind=sampling
            )
            if bursts is not None:
                chances_at = partial(_chances, seed, numbers)
                yield from _in_bursts(bursts, state, logits, sampling, chances_at, end, max_new_tokens, finished)
                return
        surest = sampling.temperature == 0 and said is None and trace is None
        model = fast_decoder(model, ids.device, steps=max_new_tokens, argmax_only=surest)
        for step in range(1, max_new_tokens + 1):
            with torch.inference_mode():
                chances = _chances(seed, [numbers[place] for place in live], step)
                tokens = _choice(sampling, logits, said, chances)
                words: list[int] = tokens.tolist()
                if trace is not None:
                    _record(trace, sampling, logits, said, [numbers[place] for place in live], words, end)
            found: list[int | None] = [None] * len(numbers)
            for place, word in zip(live, words, strict=True):
                found[place] = word
            yield found
            going = [
                i
                for i, (place, word) in enumerate(zip(live, words, strict=True))
                if _goes_on(place, word, end, finished)
            ]
            if not going or step == max_new_tokens:
                return
            with torch.inference_mode():
                if said is not None:
                    said.scatter_(1, tokens[:, None], True)
                if len(going) < len(live):
                    index = torch.tensor(going, device=logits.device)
                    live, tokens = [live[i] for i in going], tokens[index]
                    said = None if said is None else said[index]
                    state.reorder(index)
                logits, state = model.step(tokens, state)


def _in_bursts(
    bursts: CudaGraphDecoder,
    state: DecoderState,
    logits: Tensor,
    sampling: Sampling,
    chances: Callable[[int], list[float]],
    end: int | None,
    max_tokens: int,
    over: Collection[int],
) -> Iterator[list[int | None]]:
    """The steps of `sample` where all rows go on until the last is over."""
    with torch.inference_mode():
        tokens = _choice(sampling, logits, None, chances(1))
        found: list[int | None] = list(tokens.tolist())
    yield found
    live = [place for place, word in enumerate(found) if word is not None and _goes_on(place, word, end, over)]
    if not live:
        return
    going = bursts.generate(state, tokens, count=max_tokens - 1, chances=lambda number: chances(number + 2))
    for words, numbers in going:
        check_finite(torch.tensor([numbers[place] for place in live]))
        found = [None] * len(words)
        for place in live:
            found[place] = words[place]
        yield found
        live = [place for place in live if _goes_on(place, words[place], end, over)]
        if not live:
            return


def _chances(seed: int, rows: Sequence[int], step: int) -> list[float]:
    return [uniform_number(seed, row, step) for row in rows]


def _chooser(sampling: Sampling) -> SelectTokens:
    """The choice of a token, and the highest logit: NaN where one is. Nothing waits for the device."""

    def choose(logits: Tensor, chances: Tensor) -> tuple[Tensor, Tensor]:
        if sampling.temperature == 0:
            highest, tokens = logits.max(-1)
            return tokens, highest
        # Where numbers are NaN no token is found; it must be one all the same until somebody looks.
        return choose_tokens(sampling.filtered(logits), chances).clamp(max=logits.shape[-1] - 1), logits.amax(-1)

    return choose


def uniform_number(seed: int, row: int, step: int) -> float:
    """A number from 0 to below 1 that belongs to these three and looks like chance: 53 bits of their hash."""
    digest = hashlib.blake2b(b"%d %d %d" % (seed, row, step), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) * 2.0**-53


def choose_tokens(logits: Tensor, chances: Sequence[float] | Tensor) -> Tensor:
    """The token (B,) at which the sum of the probabilities, in the order of the ids, passes each chance."""
    sums = logits.softmax(-1).cumsum(-1)
    drawn = torch.as_tensor(chances, dtype=sums.dtype, device=sums.device)
    wanted = drawn[:, None] * sums[:, -1:]
    return torch.searchsorted(sums, wanted, right=True)[:, 0]


def _choice(sampling: Sampling, logits: Tensor, said: Tensor | None, chances: Sequence[float]) -> Tensor:
    if sampling.temperature == 0:
        # No other filter takes the likeliest away, so nothing but the penalty needs to be computed.
        values, tokens = top_k(
            logits if said is None else repetition_penalty(logits, said, sampling.repetition_penalty), 1
        )
        check_finite(values)
        return tokens[:, 0]
    check_finite(logits.amax(-1))  # one NaN makes it NaN
    return choose_tokens(sampling.filtered(logits, said), chances)


def _goes_on(place: int, word: int, end: int | None, over: Collection[int]) -> bool:
    return word != end and place not in over


def _heard(logits: Tensor, heard: Sequence[Sequence[int]] | None) -> Tensor:
    said = torch.zeros_like(logits, dtype=torch.bool)
    for row, tokens in enumerate(heard or ()):
        said[row, torch.tensor(list(tokens), dtype=torch.long, device=said.device)] = True
    return said


def _record(
    trace: Trace,
    sampling: Sampling,
    logits: Tensor,
    said: Tensor | None,
    rows: Sequence[int],
    words: Sequence[int],
    end: int | None,
) -> None:
    stages = list(sampling.stages(logits, said))
    for i, (row, word) in enumerate(zip(rows, words, strict=True)):
        trace.sample(row, logits[i], [(name, numbers[i]) for name, numbers in stages], word, end=end)
