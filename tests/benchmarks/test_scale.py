"""The simulation of failures and stragglers: cases that can be computed by hand."""

from __future__ import annotations

import pytest

from benchmarks.scale import simulate

TIMES = [1.0] * 100


def test_without_failures_the_makespan_is_the_work_divided() -> None:
    found = simulate(TIMES, workers=4, restart=5)
    assert (found.makespan, found.wasted, found.failures) == (25.0, 0.0, 0)
    assert simulate(TIMES, workers=1, restart=5).makespan == 100
    assert simulate([3.0], workers=8, restart=5).makespan == 3


def test_a_failure_costs_the_shard_and_the_restart() -> None:
    found = simulate(TIMES, workers=1, restart=5, kills=[10.5])
    assert (found.makespan, found.wasted, found.failures) == (105.5, 0.5, 1)
    two = simulate(TIMES, workers=1, restart=5, kills=[10.5, 50.75])
    assert two.makespan == pytest.approx(100 + 2 * 5 + two.wasted)


def test_a_failed_worker_keeps_the_shards_that_wait() -> None:
    """The last shards of a worker that fails near the end are not taken over by the others."""
    found = simulate([1.0] * 4, workers=2, restart=60, kills=[0.5])
    assert found.makespan == pytest.approx(62.5)


def test_slow_workers_hold_up_the_end_only() -> None:
    found = simulate([1.0] * 1000, workers=10, restart=0, slow_share=0.1, slow_factor=10)
    ideal = 1000 / (9 + 0.1)
    assert ideal < found.makespan < ideal + 2 * 10 + 1


def test_random_failures_grow_with_their_rate() -> None:
    rare, often = (
        simulate([1.0] * 5000, workers=10, restart=20, mean_time_to_failure=mean, seed=3) for mean in (1000.0, 100.0)
    )
    assert rare.failures < often.failures and rare.makespan < often.makespan and rare.wasted < often.wasted
