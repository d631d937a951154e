"""Groups a stream of token ids into packed batches of similar length, and runs them through a model.

Arrays in, tensors on the device out. Results are copied out while the next batches compute.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.cancellation import check_cancelled
from regard.data.batch import Batch, Indices, group_by_token_budget
from regard.errors import RegardError
from regard.nn.masks import Packed
from regard.text import TokenIds

MIN_STEP = 4  # tokens between sizes of batches on a CPU
DEPTH = 4  # batches on the device before the results of the first are awaited
SWITCH_INTERVAL = 1e-5  # seconds: every tensor operation of the thread that feeds the GPU waits up to this long
B = TypeVar("B")


def packed_batches(windows: Iterable[TokenIds], budget: int) -> Iterator[tuple[Indices, TokenIds]]:
    """Batches of the sequences of all windows, with the indices of the sequences in the stream.

    A window is sorted by length together with what the window before did not fill a batch with.
    """
    rest, indices, count = TokenIds.from_lists([]), np.zeros(0, dtype=np.int64), 0
    for window in windows:
        tokens = rest.extend(window)
        indices = np.concatenate([indices, np.arange(count, count + len(window))])
        count += len(window)
        batches = group_by_token_budget(tokens.lengths, budget)
        last = batches.pop() if batches else np.zeros(0, dtype=np.int64)
        for batch in batches:
            yield indices[batch], tokens.select(batch)
        rest, indices = (tokens, indices) if len(last) == 1 == len(tokens) else (tokens.select(last), indices[last])
    if len(rest):
        yield indices, rest


def check_finite(results: Sequence[Tensor], name: str = "this model") -> None:
    """Raise RegardError if a model computed NaN or infinity: its vectors and scores would mean nothing."""
    if not all(bool(part.isfinite().all()) for part in results):
        raise RegardError(
            f"{name} computed NaN or infinity, not finite numbers; its weights may be damaged, so copy it again"
        )


def filler_lengths(count: int, max_length: int, *, min_step: int = MIN_STEP) -> list[int]:
    """The lengths of additional sequences that round a batch of `count` tokens up to one of a few sizes.

    oneDNN compiles its kernels for a number of rows, which takes as long as the product itself; with eight sizes for
    each power of two they are soon there. The sequences are not longer than the others. Sizes differ by `min_step`
    tokens or more.
    """
    step = max(min_step, (1 << count.bit_length()) >> 4)
    full, rest = divmod(-count % step, max_length)
    return [max_length] * full + [rest] * (rest > 0)


def to_device(tokens: TokenIds, device: torch.device) -> Batch:
    """Copy a batch to the device, all arrays in one transfer that does not block.

    On a CPU sequences of zeros may follow those of the batch.
    """
    fillers: list[int] = []
    sizes, count = tokens.lengths.tolist(), len(tokens.ids)
    longest = max(sizes)
    if device.type == "cpu" and (fillers := filler_lengths(count, longest)):
        tokens = tokens.extend(TokenIds.from_lists([[0] * length for length in fillers]))
        sizes, count = sizes + fillers, len(tokens.ids)
    tensor = torch.from_numpy(pack_arrays(tokens, count, len(tokens)))
    if device.type == "cuda":
        tensor = tensor.pin_memory().to(device, non_blocking=True)
    return split_arrays(tensor.to(device), count, max_length=longest, sizes=tuple(sizes), num_fillers=len(fillers))


def pack_arrays(tokens: TokenIds, num_tokens: int, num_sequences: int) -> NDArray[np.int32]:
    """Ids, positions and sequence starts in one array, filled up to `num_tokens` tokens and `num_sequences` sequences.

    The additional tokens belong to no sequence, and the additional sequences are empty.
    """
    lengths = tokens.lengths
    ends = np.cumsum(lengths)
    count = int(ends[-1])
    buffer = np.zeros(2 * num_tokens + num_sequences + 1, dtype=np.int32)
    buffer[:count] = tokens.ids
    positions = np.arange(count)
    if len(lengths) > 1:
        positions -= np.repeat(ends - lengths, lengths)
    buffer[num_tokens : num_tokens + count] = positions
    starts = buffer[2 * num_tokens + 1 :]
    starts[: len(ends)], starts[len(ends) :] = ends, count
    return buffer


def split_arrays(
    buffer: Tensor, num_tokens: int, *, max_length: int, sizes: tuple[int, ...] | None, num_fillers: int = 0
) -> Batch:
    """The batch in a buffer that `pack_arrays` filled."""
    ids, position_ids, starts = buffer.split_with_sizes((num_tokens, num_tokens, len(buffer) - 2 * num_tokens))
    return Batch(ids, Packed(sizes, starts, position_ids, max_length, num_fillers))


@dataclass(eq=False)
class Work(Generic[B]):
    """A batch, and its result as soon as it has one."""

    batch: B
    result: Tensor | None = None


def run_batches(batches: Iterable[B], device: torch.device) -> Iterator[Work[B]]:
    """Hand out each batch twice, in order: without a result, which the caller sets, and with it, in float32 on the CPU.

    On a GPU the caller only enqueues the computation. Nothing waits for a batch before the results of an earlier one
    are needed.
    """
    waiting: deque[tuple[Work[B], torch.cuda.Event | None]] = deque()
    depth = DEPTH if device.type == "cuda" else 0
    for batch in batches:
        check_cancelled()
        work = Work(batch)
        yield work
        waiting.append((work, _copy_out(work)))
        while len(waiting) > depth:
            yield _finish(*waiting.popleft())
    while waiting:
        yield _finish(*waiting.popleft())


@contextmanager
def responsive_threads() -> Iterator[None]:
    """Inside the block, Python threads take turns often: a GPU must not wait while another thread tokenizes."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, SWITCH_INTERVAL))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _copy_out(work: Work[B]) -> torch.cuda.Event | None:
    """Start the copy of a result to the CPU. The event is reached when it is complete."""
    assert work.result is not None
    result = work.result.float()
    if not result.is_cuda:
        work.result = result.cpu()
        return None
    work.result = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)
    work.result.copy_(result, non_blocking=True)
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return event


def _finish(work: Work[B], event: torch.cuda.Event | None) -> Work[B]:
    if event is not None:
        event.synchronize()
    return work
