"""The runner and the threads that prepare batches: results in order, errors in their place."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from regard.data.prefetch import prefetch, prefetch_map
from regard.engine.batches import DEPTH, responsive_threads, run_batches
from regard.engine.graphs import GraphedForward
from regard.text import TokenIds

CPU = torch.device("cpu")


def test_results_in_order() -> None:
    found, computed = [], []
    for work in run_batches([torch.full((2,), number, dtype=torch.float16) for number in range(3)], CPU):
        if work.result is None:
            computed.append(work.batch.tolist())
            work.result = 2 * work.batch
            continue
        assert work.result.dtype == torch.float32
        found.append(work.result.tolist())
    assert computed == [[0, 0], [1, 1], [2, 2]]
    assert found == [[0, 0], [2, 2], [4, 4]]


def test_a_gpu_gets_later_batches_before_a_result_is_awaited() -> None:
    """Batches are handed out for computation and for their result; tensors on the CPU stand for those of a GPU."""
    steps = []
    for work in run_batches(range(DEPTH + 2), torch.device("cuda")):
        steps.append((work.batch, work.result is not None))
        work.result = torch.zeros(1)
    begun = [(number, False) for number in range(DEPTH + 1)]
    assert steps[: DEPTH + 4] == [*begun, (0, True), (DEPTH + 1, False), (1, True)]
    assert steps[DEPTH + 4 :] == [(number, True) for number in range(2, DEPTH + 2)]


def test_map_keeps_the_order_and_raises_in_place() -> None:
    def half(number: int) -> int:
        if number == 7:
            raise ValueError("seven")
        return number // 2

    results = prefetch_map(half, iter(range(20)), threads=3)
    assert [next(results) for _ in range(7)] == [0, 0, 1, 1, 2, 2, 3]
    with pytest.raises(ValueError, match="seven"):
        next(results)


def test_threads_end_with_the_generator() -> None:
    def numbers() -> Iterator[int]:
        yield from range(1000)

    source = prefetch(numbers())
    assert next(source) == 0
    source.close()
    assert not [thread for thread in threading.enumerate() if "ThreadPoolExecutor" in thread.name]


def test_switch_interval_is_restored() -> None:
    before = sys.getswitchinterval()
    with responsive_threads():
        assert sys.getswitchinterval() <= before
    assert sys.getswitchinterval() == before


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_graphs_compute_the_same() -> None:
    device = torch.device("cuda")
    table = torch.randn(100, 8, device=device)

    def first_vectors(batch: object) -> Tensor:
        return table[batch.ids][batch.layout.starts[:-1].long().clamp(max=255)]  # type: ignore[attr-defined]

    forward = GraphedForward(first_vectors, device, 256)  # type: ignore[arg-type]
    rows = [[index % 100, 1, 2, 3, 4, 5] for index in range(40)]
    for _ in range(5):
        with torch.inference_mode():
            found = forward(TokenIds.from_lists(rows))
        torch.testing.assert_close(found, table[[row[0] for row in rows]])
    assert list(forward.recorder.graphs) == [16]
