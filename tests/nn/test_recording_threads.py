"""One model, several threads: each tape records only its own thread, and other threads are unaffected."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.nn.masks import Padded
from regard.nn.recording import Tape, ablate_heads, record

Maker = Callable[..., Any]
TIMEOUT = 20  # seconds until an incomplete barrier fails the test


def batches(device: torch.device) -> list[tuple[Tensor, Padded]]:
    """Two batches of different shapes."""
    first, second = torch.randint(1, 20, (2, 5), device=device), torch.randint(1, 20, (3, 4), device=device)
    return [
        (first, Padded.from_lengths([5, 3], device=device)),
        (second, Padded.from_lengths([4, 4, 1], device=device)),
    ]


def synchronize_inside(model: Any, part: str, parties: int = 2) -> Any:
    """Synchronize the threads between the layers, so that their forward passes overlap."""
    barrier = Barrier(parties)

    def wait(*_: Any) -> None:
        barrier.wait(TIMEOUT)

    return getattr(model, part).layers[1].register_forward_pre_hook(wait)


@pytest.mark.parametrize(("name", "part"), [("bert", "encoder"), ("gpt", "decoder")])
def test_threads_record_only_their_own_forward_pass(device: torch.device, sample: Maker, name: str, part: str) -> None:
    model, work, alone = sample(name, device).model, batches(device), []
    for batch in work:
        with record(model) as tape:
            alone.append((model(*batch), tape))
    hook = synchronize_inside(model, part)

    def both(number: int) -> tuple[Tensor, Tape]:
        with record(model) as tape:
            return model(*work[number]), tape

    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(both, range(2)))
    hook.remove()
    for (output, tape), (expected, reference) in zip(together, alone, strict=True):
        assert torch.equal(output, expected)
        assert [len(r) for r in tape.calls.values()] == [1, 1]
        for one, other in zip(tape.attention(), reference.attention(), strict=True):
            assert torch.equal(one, other)
        for one, other in zip(tape.hidden(), reference.hidden(), strict=True):
            assert torch.equal(one, other)


def test_threads_that_do_not_record_are_unaffected(device: torch.device, sample: Maker) -> None:
    """They are not affected by a simultaneous edit in another thread either."""
    model, (mine, other) = sample("bert", device).model, batches(device)
    expected = model(*other)
    with record(model, edit=ablate_heads([(1, 0), (2, 1)])):
        edited = model(*mine)
    hook = synchronize_inside(model, "encoder")

    def recorded() -> tuple[Tensor, Tape]:
        with record(model, edit=ablate_heads([(1, 0), (2, 1)])) as tape:
            return model(*mine), tape

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(recorded), pool.submit(lambda: model(*other))
        (output, tape), plain = first.result(TIMEOUT), second.result(TIMEOUT)
    hook.remove()
    assert torch.equal(plain, expected) and torch.equal(output, edited)
    assert [[tuple(r.query.shape) for r in readings] for readings in tape.calls.values()] == [[(2, 2, 5, 4)]] * 2
    assert [len(states) for states in tape.states["encoder"].values()] == [1, 1, 1]


def test_two_threads_with_two_edits(device: torch.device, sample: Maker) -> None:
    model, work = sample("bert", device).model, batches(device)
    edits, expected = [ablate_heads([(1, 0)]), ablate_heads([(1, 1)])], []
    for batch, edit in zip(work, edits, strict=True):
        with record(model, edit=edit):
            expected.append(model(*batch))
    hook = synchronize_inside(model, "encoder")

    def edited(number: int) -> tuple[Tensor, Tape]:
        with record(model, edit=edits[number]) as tape:
            return model(*work[number]), tape

    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(edited, range(2)))
    hook.remove()
    for number, (output, tape) in enumerate(together):
        assert torch.equal(output, expected[number])
        assert tape.attention()[0][:, number].abs().sum() == 0 and tape.attention()[0][:, 1 - number].abs().sum() > 0


def test_failure_in_one_thread_does_not_end_other_recordings(device: torch.device, sample: Maker) -> None:
    model, (mine, other) = sample("bert", device).model, batches(device)
    entered, failed = Barrier(2), Barrier(2)

    def fails() -> None:
        with pytest.raises(RuntimeError, match="here"), record(model):
            entered.wait(TIMEOUT)
            raise RuntimeError("here")
        failed.wait(TIMEOUT)

    def continues_recording() -> Tape:
        with record(model) as tape:
            entered.wait(TIMEOUT)
            failed.wait(TIMEOUT)
            model(*mine)
        return tape

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(fails), pool.submit(continues_recording)
        first.result(TIMEOUT)
        tape = second.result(TIMEOUT)
    assert tape.attention()[0].shape == (2, 2, 5, 5)
    model(*other)
    assert [len(r) for r in tape.calls.values()] == [1, 1]
