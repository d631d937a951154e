"""Recording a compiled model: it runs uncompiled while recording, and compiled before, after and in other threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
import torch

from regard.nn.recording import ablate_heads, record

Maker = Callable[..., Any]
PATIENCE = 60


class Backend:
    """A compiler backend that changes nothing and counts graphs and calls."""

    def __init__(self) -> None:
        self.graphs = self.calls = 0

    def __call__(self, graph: Any, inputs: Any) -> Callable[..., Any]:
        self.graphs += 1

        def run(*args: Any) -> Any:
            self.calls += 1
            return graph.forward(*args)

        return run


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(model: Any, method: str, backend: Any) -> Any:
    if method == "torch.compile(model)":
        return torch.compile(model, backend=backend)
    if method == "model.compile()":
        model.compile(backend=backend)
    else:
        for block in model.encoder.layers:
            block.compile(backend=backend)
    return model


METHODS = ["torch.compile(model)", "model.compile()", "block.compile()"]


@pytest.mark.parametrize("method", METHODS)
def test_a_compiled_model_is_recorded_and_compiled_again_after(
    device: torch.device, sample: Maker, method: str
) -> None:
    s, backend = sample("bert", device), Backend()
    with record(s.model) as reference:
        expected = s.model(*s.padded)
    model = compiled(s.model, method, backend)
    torch.testing.assert_close(model(*s.padded), expected, atol=1e-5, rtol=1e-5)
    graphs, calls = backend.graphs, backend.calls
    assert graphs > 0 and calls > 0
    with record(model) as tape:
        recorded = model(*s.padded)
    assert (backend.graphs, backend.calls) == (graphs, calls)
    assert torch.equal(recorded, expected)
    for get in ("attention", "queries", "keys"):
        for one, other in zip(getattr(tape, get)("self"), getattr(reference, get)("self"), strict=True):
            assert torch.equal(one, other)
    for one, other in zip(tape.hidden("encoder"), reference.hidden("encoder"), strict=True):
        assert torch.equal(one, other)
    torch.testing.assert_close(model(*s.padded), expected, atol=1e-5, rtol=1e-5)
    assert backend.graphs == graphs and backend.calls > calls


@pytest.mark.parametrize("method", METHODS)
def test_edits_and_exceptions_on_a_compiled_model(device: torch.device, sample: Maker, method: str) -> None:
    s, backend = sample("bert", device), Backend()
    with record(s.model, edit=ablate_heads([(1, 1)])):
        expected = s.model(*s.padded)
    model = compiled(s.model, method, backend)
    before = model(*s.padded)
    with record(model, edit=ablate_heads([(1, 1)])) as tape:
        assert torch.equal(model(*s.padded), expected)
        with pytest.raises(RuntimeError, match="here"), record(model):
            raise RuntimeError("here")
        assert torch.equal(model(*s.padded), expected)
    assert [len(r) for r in tape.calls.values()] == [2, 2]
    calls = backend.calls
    assert torch.equal(model(*s.padded), before) and backend.calls > calls


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("gpt", "torch.compile(model)"),
        ("t5", "model.compile()"),
        ("transformer", "torch.compile(model)"),
        ("vit", "model.compile()"),
        ("seq2seq, dot", "torch.compile(model)"),
        ("seq2seq, additive", "model.compile()"),
        ("elmo", "torch.compile(model)"),
    ],
)
def test_every_family_can_be_compiled_and_recorded(device: torch.device, sample: Maker, name: str, method: str) -> None:
    s = sample(name, device)
    with record(s.model) as reference:
        expected = s.model(*s.padded)
    model = compiled(s.model, method, "eager")
    with record(model) as tape:
        assert torch.equal(model(*s.padded), expected)
    torch.testing.assert_close(model(*s.padded), expected, atol=1e-5, rtol=1e-5)
    assert list(tape.calls) == list(reference.calls)
    for site in reference.calls:
        location = site.kind, site.part
        for one, other in zip(tape.attention(*location), reference.attention(*location), strict=True):
            assert torch.equal(one, other)
    assert {part: len(states) for part, states in tape.states.items()} == {
        part: len(states) for part, states in reference.states.items()
    }


def test_packed_batches_and_training_under_aot(device: torch.device, sample: Maker) -> None:
    s = sample("bert", device)
    s.model.train()
    with record(s.model) as reference:
        expected = s.model(*s.packed)
    model = torch.compile(s.model, backend="aot_eager")
    output = model(*s.packed)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
    parameter = s.model.encoder.layers[0].attention.project.weight
    (slope,) = torch.autograd.grad(output.pow(2).sum(), parameter)
    torch.testing.assert_close(slope, torch.autograd.grad(expected.pow(2).sum(), parameter)[0], atol=1e-4, rtol=1e-4)
    with record(model) as tape:
        model(*s.packed)
    for one, other in zip(tape.attention(), reference.attention(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("method", ["torch.compile(model)", "model.compile()"])
def test_threads_that_do_not_record_use_the_compiled_model(device: torch.device, sample: Maker, method: str) -> None:
    s, backend = sample("bert", device), Backend()
    model = compiled(s.model, method, backend)
    expected = model(*s.padded)
    graphs, calls = backend.graphs, backend.calls
    entered, finished = Barrier(2), Barrier(2)

    def records() -> Any:
        with record(model) as tape:
            entered.wait(PATIENCE)
            finished.wait(PATIENCE)
            model(*s.padded)
        return tape

    def does_not() -> Any:
        entered.wait(PATIENCE)
        output = model(*s.padded)
        finished.wait(PATIENCE)
        return output

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(records), pool.submit(does_not)
        tape, output = first.result(PATIENCE), second.result(PATIENCE)
    assert torch.equal(output, expected)
    assert [len(r) for r in tape.calls.values()] == [1, 1]
    assert backend.calls > calls and backend.graphs == graphs


@pytest.mark.parametrize("method", ["torch.compile(model)", "model.compile()"])
def test_overlapping_recordings_restore_the_compiled_model(device: torch.device, sample: Maker, method: str) -> None:
    s, backend = sample("bert", device), Backend()
    model = compiled(s.model, method, backend)
    model(*s.padded)
    both_entered, first_may_exit = Barrier(2), Barrier(2)

    def early() -> None:
        with record(model):
            both_entered.wait(PATIENCE)
        first_may_exit.wait(PATIENCE)

    def late() -> Any:
        with record(model) as tape:
            both_entered.wait(PATIENCE)
            first_may_exit.wait(PATIENCE)
            model(*s.padded)
        return tape

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(early), pool.submit(late)
        first.result(PATIENCE)
        tape = second.result(PATIENCE)
    assert [len(r) for r in tape.calls.values()] == [1, 1]
    graphs, calls = backend.graphs, backend.calls
    model(*s.padded)
    assert backend.calls > calls and backend.graphs == graphs


@pytest.mark.slow
@pytest.mark.parametrize("method", ["torch.compile(model)", "model.compile()"])
def test_with_the_default_compiler(device: torch.device, sample: Maker, method: str) -> None:
    s = sample("bert", device)
    expected = s.model(*s.padded)
    model = compiled(s.model, method, "inductor")
    torch.testing.assert_close(model(*s.padded), expected, atol=1e-4, rtol=1e-4)
    with record(model) as tape:
        assert torch.equal(model(*s.padded), expected)
    assert len(tape.attention()) == 2 and len(tape.hidden()) == 3
    torch.testing.assert_close(model(*s.padded), expected, atol=1e-4, rtol=1e-4)
