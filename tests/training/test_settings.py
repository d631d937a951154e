from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import InputError
from regard.training.settings import Interval, SchedulerType, learning_rate_factor, parse_budget, parse_interval

SHAPES: tuple[SchedulerType, ...] = ("linear", "cosine", "constant")
parts = st.floats(0, 1)


@pytest.mark.parametrize(
    ("scheduler", "quarter", "half", "end"),
    [("linear", 0.775, 0.55, 0.1), ("cosine", 0.1 + 0.9 * (2 + math.sqrt(2)) / 4, 0.55, 0.1), ("constant", 1, 1, 1)],
)
def test_the_learning_rate_falls_to_the_minimum(
    scheduler: SchedulerType, quarter: float, half: float, end: float
) -> None:
    found = [
        learning_rate_factor(0.2 + 0.8 * done, warmup=0.2, scheduler=scheduler, min_ratio=0.1)
        for done in (0, 0.25, 0.5, 1)
    ]
    assert found == pytest.approx([1, quarter, half, end])


@pytest.mark.parametrize("scheduler", SHAPES)
def test_warmup_is_linear_and_starts_above_zero(scheduler: SchedulerType) -> None:
    found = [
        learning_rate_factor(progress, warmup=0.2, scheduler=scheduler, min_ratio=0.0)
        for progress in (0, 0.05, 0.1, 0.2)
    ]
    assert found == pytest.approx([0.01, 0.2575, 0.505, 1])


def test_noam_is_the_schedule_of_the_transformer() -> None:
    """width**-0.5 * min(step**-0.5, step * warmup**-1.5), relative to its maximum, except for the first steps."""
    steps, warm = 1000, 100
    for step in (25, 50, 100, 200, 400, 900):
        paper = min(step**-0.5, step * warm**-1.5) / warm**-0.5
        found = learning_rate_factor(step / steps, warmup=warm / steps, scheduler="noam", min_ratio=0.0)
        assert found == pytest.approx(paper, abs=0.01)
    assert learning_rate_factor(0.4, warmup=0.1, scheduler="noam", min_ratio=0.2) == pytest.approx(0.2 + 0.8 / 2)


@given(progress=parts, more=parts, warmup=st.floats(0.01, 1), floor=parts)
def test_noam_rises_then_falls(progress: float, more: float, warmup: float, floor: float) -> None:
    first, second = sorted((progress, more))
    before, after = (
        learning_rate_factor(each, warmup=warmup, scheduler="noam", min_ratio=floor) for each in (first, second)
    )
    assert 0 <= after <= 1 + 1e-9
    if second < warmup:
        assert before <= after + 1e-9
    if first >= warmup:
        assert before >= after - 1e-9 and after >= floor - 1e-9


def test_noam_needs_a_warmup() -> None:
    with pytest.raises(InputError, match="set a warmup above 0"):
        learning_rate_factor(0.5, warmup=0.0, scheduler="noam", min_ratio=0.0)


def test_the_last_step_has_a_positive_rate() -> None:
    assert learning_rate_factor(99 / 100, warmup=0.0, scheduler="linear", min_ratio=0.0) == pytest.approx(0.01)
    assert learning_rate_factor(0, warmup=0.0, scheduler="linear", min_ratio=0.0) == 1.0


@given(progress=parts, warmup=parts, scheduler=st.sampled_from(SHAPES), floor=parts)
def test_the_factor_is_between_zero_and_one(
    progress: float, warmup: float, scheduler: SchedulerType, floor: float
) -> None:
    value = learning_rate_factor(progress, warmup=warmup, scheduler=scheduler, min_ratio=floor)
    assert 0 <= value <= 1 + 1e-9
    if progress >= warmup:
        assert value >= floor - 1e-9


@given(progress=parts, more=parts, warmup=parts, scheduler=st.sampled_from(SHAPES))
def test_the_factor_rises_then_falls(progress: float, more: float, warmup: float, scheduler: SchedulerType) -> None:
    first, second = sorted((progress, more))
    before, after = (
        learning_rate_factor(each, warmup=warmup, scheduler=scheduler, min_ratio=0.0) for each in (first, second)
    )
    if second < warmup:
        assert before <= after + 1e-9
    if first >= warmup:
        assert before >= after - 1e-9


@pytest.mark.parametrize("scheduler", SHAPES)
def test_progress_beyond_the_end_is_clipped(scheduler: SchedulerType) -> None:
    assert learning_rate_factor(1.3, warmup=0.1, scheduler=scheduler, min_ratio=0.2) == learning_rate_factor(
        1.0, warmup=0.1, scheduler=scheduler, min_ratio=0.2
    )


def test_an_unknown_scheduler_is_refused() -> None:
    with pytest.raises(InputError, match="unknown scheduler 'linaer'; did you mean 'linear'"):
        learning_rate_factor(0.5, warmup=0.1, scheduler="linaer", min_ratio=0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20min", 1200),
        ("20m", 1200),
        ("90s", 90),
        ("300", 300),
        ("1h30m", 5400),
        ("1h 30min 5s", 5405),
        ("2 h", 7200),
        (" 0.5h ", 1800),
        ("1h5s", 3605),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", " ", "h", "20 minutes", "-5s", "30m1h", "1 2s", "1h30", "1,5h", "٣s", "5 steps"])
def test_invalid_durations_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"is not a duration; .*like 20min"):
        parse_budget(text)


@pytest.mark.parametrize("text", ["0", "0h0s", "9" * 400])
def test_zero_and_infinite_durations_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected more than 0 and an end"):
        parse_budget(text)


def test_intervals() -> None:
    assert parse_interval("5min") == Interval(seconds=300)
    assert parse_interval("500 steps") == parse_interval("500steps") == Interval(steps=500)
    assert parse_interval("1 step") == Interval(steps=1)
    assert parse_interval("") == parse_interval(" ") == Interval()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("often", "is not an interval; expected a duration like 5min or 90s, or steps like '500 steps'"),
        ("0 steps", "expected at least 1 step, or an empty text for never"),
        ("0s", "expected more than 0"),
        ("-1 steps", "is not an interval"),
    ],
)
def test_invalid_intervals_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_interval(text)


def test_due_intervals() -> None:
    assert not Interval().due(steps=10**9, seconds=10**9)
    assert [Interval(steps=5).due(steps=steps, seconds=10**9) for steps in (4, 5, 6)] == [False, True, True]
    assert [Interval(seconds=5).due(steps=10**9, seconds=seconds) for seconds in (4.9, 5, 6)] == [False, True, True]
