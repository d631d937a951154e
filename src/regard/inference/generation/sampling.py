"""Sampling, one step at a time, and logits filters. Knows decoders and random numbers, but no text.

The random number that chooses a token depends only on the seed, the row's number and the step: a row is the same in a
batch of any size and at any position in it, up to the rounding of the logits.

Filters are pure functions from logits (B, V) to logits in which excluded tokens are -inf; each works on the
distribution that the previous ones left. Filtered logits are float64, so that sums of many small probabilities stay
accurate.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.inference.generation.assisted import assist
from regard.inference.generation.beam_search import check_finite, check_max_new_tokens, chunked_top_k
from regard.inference.generation.decoder import Decoder, StateT, TokenConstraints, cuda_graph_decoder, fast_decoder
from regard.nn.cache import DecoderState
from regard.nn.causal_decoder import CausalDecoder
from regard.nn.masks import Padded
from regard.nn.training import eval_mode

if TYPE_CHECKING:
    from regard.engine.graph_decoder import CudaGraphDecoder, SelectTokens
    from regard.inference.generation.trace import Trace


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
    assistant: CausalDecoder | None = None,
    start: Callable[[Any, Tensor], tuple[Tensor, Any]] | None = None,
) -> Iterator[list[int | None]]:
    """Yield the next token of each row, step by step; None for a finished row. Without `sampling` the search is greedy.

    `rows` are the numbers of the rows for their random numbers (default: from 0). `prompt_ids` are the tokens of each
    row that count for the repetition penalty. Rows whose positions the caller adds to `finished` are not continued.
    For a single row, an `assistant` drafts tokens (see `assisted`). `start(model, ids)` reads the prompts in place of
    the model, as `PromptCache` does.
    """
    check_max_new_tokens(max_new_tokens)
    sampling = sampling or Sampling(temperature=0.0)
    constraints = TokenConstraints.of(model)
    with eval_mode(model), eval_mode(assistant):
        with torch.inference_mode():
            logits, state = model.start(ids, layout) if start is None else start(model, ids)
            used = _used_tokens(logits, prompt_ids) if sampling.repetition_penalty != 1 else None
        active = list(range(len(logits)))
        numbers = active if rows is None else list(rows)
        single_steps = used is not None or trace is not None or assistant is not None or max_new_tokens == 1
        if not single_steps and isinstance(state, DecoderState):
            graph_decoder = cuda_graph_decoder(
                model, state, max_tokens=max_new_tokens, choose=_chooser(sampling), kind=sampling
            )
            if graph_decoder is not None:
                chances_at = partial(_chances, seed, numbers)
                yield from _sample_with_cuda_graphs(
                    graph_decoder, state, logits, sampling, chances_at, end, max_new_tokens, finished
                )
                return
        argmax_only = sampling.temperature == 0 and used is None and trace is None and not constraints.suppressed
        model = fast_decoder(model, ids.device, steps=max_new_tokens, argmax_only=argmax_only)
        if assistant is not None:
            with torch.inference_mode():
                model, state = assist(model, assistant, ids, state, steps=max_new_tokens - 1)
        for step in range(1, max_new_tokens + 1):
            with torch.inference_mode():
                logits = constraints.suppress(constraints.force(logits, step))
                chances = _chances(seed, [numbers[position] for position in active], step)
                tokens = _choice(sampling, logits, used, chances)
                next_tokens: list[int] = tokens.tolist()
                if trace is not None:
                    _record_step(
                        trace, sampling, logits, used, [numbers[position] for position in active], next_tokens, end
                    )
            step_tokens: list[int | None] = [None] * len(numbers)
            for position, token in zip(active, next_tokens, strict=True):
                step_tokens[position] = token
            yield step_tokens
            going = [
                i
                for i, (position, token) in enumerate(zip(active, next_tokens, strict=True))
                if _continues(position, token, end, finished)
            ]
            if not going or step == max_new_tokens:
                return
            with torch.inference_mode():
                if used is not None:
                    used.scatter_(1, tokens[:, None], True)
                if len(going) < len(active):
                    index = torch.tensor(going, device=logits.device)
                    active, tokens = [active[i] for i in going], tokens[index]
                    used = None if used is None else used[index]
                    state.reorder(index)
                logits, state = model.step(tokens, state)


def _sample_with_cuda_graphs(
    graph_decoder: CudaGraphDecoder,
    state: DecoderState,
    logits: Tensor,
    sampling: Sampling,
    chances: Callable[[int], list[float]],
    end: int | None,
    max_tokens: int,
    finished: Collection[int],
) -> Iterator[list[int | None]]:
    """The steps of `sample` with CUDA graphs: all rows continue until the last one is finished."""
    with torch.inference_mode():
        tokens = _choice(sampling, logits, None, chances(1))
        step_tokens: list[int | None] = list(tokens.tolist())
    yield step_tokens
    active = [
        position
        for position, token in enumerate(step_tokens)
        if token is not None and _continues(position, token, end, finished)
    ]
    if not active:
        return
    going = graph_decoder.generate(state, tokens, count=max_tokens - 1, chances=lambda number: chances(number + 2))
    for next_tokens, numbers in going:
        check_finite(torch.tensor([numbers[position] for position in active]))
        step_tokens = [None] * len(next_tokens)
        for position in active:
            step_tokens[position] = next_tokens[position]
        yield step_tokens
        active = [position for position in active if _continues(position, next_tokens[position], end, finished)]
        if not active:
            return


def _chances(seed: int, rows: Sequence[int], step: int) -> list[float]:
    return [uniform_number(seed, row, step) for row in rows]


def _chooser(sampling: Sampling) -> SelectTokens:
    """A function that returns the chosen tokens and the highest logits (NaN if any is), without synchronizing."""

    def choose(logits: Tensor, chances: Tensor) -> tuple[Tensor, Tensor]:
        if sampling.temperature == 0:
            highest, tokens = logits.max(-1)
            return tokens, highest
        # With NaN logits no token is found; it must be a valid id until the logits are checked.
        return choose_tokens(sampling.filtered(logits), chances).clamp(max=logits.shape[-1] - 1), logits.amax(-1)

    return choose


def uniform_number(seed: int, row: int, step: int) -> float:
    """A pseudorandom number in [0, 1) that depends on the three arguments only: 53 bits of their hash."""
    digest = hashlib.blake2b(b"%d %d %d" % (seed, row, step), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) * 2.0**-53


def choose_tokens(logits: Tensor, chances: Sequence[float] | Tensor) -> Tensor:
    """The tokens (B,) at which the cumulative probabilities, in the order of ids, exceed `chances`."""
    sums = logits.softmax(-1).cumsum(-1)
    drawn = torch.as_tensor(chances, dtype=sums.dtype, device=sums.device)
    wanted = drawn[:, None] * sums[:, -1:]
    return torch.searchsorted(sums, wanted, right=True)[:, 0]


def _choice(sampling: Sampling, logits: Tensor, used: Tensor | None, chances: Sequence[float]) -> Tensor:
    if sampling.temperature == 0:
        # No other filter removes the likeliest token, so only the penalty needs to be computed.
        values, tokens = chunked_top_k(
            logits if used is None else repetition_penalty(logits, used, sampling.repetition_penalty), 1
        )
        check_finite(values)
        return tokens[:, 0]
    check_finite(logits.amax(-1))  # one NaN makes it NaN
    return choose_tokens(sampling.filtered(logits, used), chances)


def _continues(position: int, token: int, end: int | None, finished: Collection[int]) -> bool:
    return token != end and position not in finished


def _used_tokens(logits: Tensor, prompt_ids: Sequence[Sequence[int]] | None) -> Tensor:
    used = torch.zeros_like(logits, dtype=torch.bool)
    for row, tokens in enumerate(prompt_ids or ()):
        used[row, torch.tensor(list(tokens), dtype=torch.long, device=used.device)] = True
    return used


def _record_step(
    trace: Trace,
    sampling: Sampling,
    logits: Tensor,
    used: Tensor | None,
    rows: Sequence[int],
    next_tokens: Sequence[int],
    end: int | None,
) -> None:
    stages = list(sampling.stages(logits, used))
    for i, (row, token) in enumerate(zip(rows, next_tokens, strict=True)):
        trace.sample(row, logits[i], [(name, numbers[i]) for name, numbers in stages], token, end=end)


@dataclass(frozen=True)
class Sampling:
    """Sampling settings; the defaults sample from the model's own distribution. Filters apply in the order of fields.

    `GenerationConfig` has their limits.

    A `repetition_penalty` above 1 makes tokens that already occurred less likely. `temperature` 0 is greedy. `top_k`
    keeps the k likeliest tokens, `top_p` the smallest set of likeliest tokens whose probability reaches p, `min_p`
    tokens with at least that fraction of the highest probability.
    """

    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0

    def stages(self, logits: Tensor, used: Tensor | None = None) -> Iterator[tuple[str, Tensor]]:
        """The logits after each active filter, with its name. `used` (B, V) is True for tokens that occurred."""
        filtered = logits.double()
        if self.repetition_penalty != 1 and used is not None:
            filtered = repetition_penalty(filtered, used, self.repetition_penalty)
            yield "repetition", filtered
        if self.temperature != 1:
            filtered = temperature(filtered, self.temperature)
            yield "temperature", filtered
        if self.top_k is not None:
            filtered = top_k(filtered, self.top_k)
            yield "top_k", filtered
        if self.top_p < 1:
            filtered = top_p(filtered, self.top_p)
            yield "top_p", filtered
        if self.min_p > 0:
            filtered = min_p(filtered, self.min_p)
            yield "min_p", filtered

    def filtered(self, logits: Tensor, used: Tensor | None = None) -> Tensor:
        """The logits after all filters, float64."""
        return [logits.double(), *(filtered for _, filtered in self.stages(logits, used))][-1]


def repetition_penalty(logits: Tensor, used: Tensor, penalty: float) -> Tensor:
    """CTRL's penalty on used tokens: positive logits are divided by it, negative ones multiplied."""
    filtered = logits.double()
    return torch.where(used, torch.where(filtered > 0, filtered / penalty, filtered * penalty), filtered)


def temperature(logits: Tensor, value: float) -> Tensor:
    """Divide by the temperature; at 0 only the likeliest token remains, the lowest id of equals."""
    if value == 0:
        return top_k(logits, 1)
    # The largest logit becomes 0 first, so that low temperatures do not overflow.
    filtered = logits.double()
    return (filtered - filtered.amax(-1, keepdim=True)) / value


def top_k(logits: Tensor, count: int) -> Tensor:
    """Keep exactly the `count` likeliest tokens, of equals those with the lowest ids."""
    filtered = logits.double()
    if count >= filtered.shape[-1]:
        return filtered
    last = filtered.topk(count).values[..., -1:]
    above = filtered > last
    equal = filtered == last
    room = count - above.sum(-1, keepdim=True)
    return _only(filtered, above | equal & (equal.cumsum(-1) <= room))


def top_p(logits: Tensor, probability: float) -> Tensor:
    """Keep the smallest set of likeliest tokens that reaches `probability`; of equals those with the lowest ids."""
    filtered = logits.double()
    if probability >= 1:
        return filtered
    ordered, order = filtered.sort(dim=-1, descending=True, stable=True)
    reached = ordered.softmax(-1).cumsum(-1)
    keep = torch.ones_like(reached, dtype=torch.bool)
    keep[..., 1:] = (
        reached[..., :-1] < probability
    )  # a token is needed while those before it do not reach the probability
    return _only(filtered, torch.zeros_like(keep).scatter(-1, order, keep))


def min_p(logits: Tensor, probability: float) -> Tensor:
    """Keep tokens that are at least `probability` times as likely as the likeliest."""
    filtered = logits.double()
    if probability <= 0:
        return filtered
    return _only(filtered, filtered >= filtered.amax(-1, keepdim=True) + math.log(probability))


def _only(filtered: Tensor, keep: Tensor) -> Tensor:
    return filtered.masked_fill(~keep, -math.inf)
