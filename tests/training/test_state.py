"""Training state: a restored run continues bit for bit; the state of another model is refused without changes."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import LBFGS, SGD, AdamW, Optimizer

from regard.errors import InputError
from regard.training.checkpoint import Checkpoints, capture, restore


class Model(nn.Module):
    """Has dropout, a changing buffer, a buffer that is not saved, a tied weight, and a part without a gradient."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.dropout, self.norm = nn.Linear(width, width), nn.Dropout(0.3), nn.BatchNorm1d(width)
        self.second = nn.Linear(width, width, bias=False)
        self.second.weight = self.first.weight
        self.unused = nn.Linear(2, 2)
        self.register_buffer("table", torch.arange(5.0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.second(self.norm(self.dropout(torch.tanh(self.first(x)))))
        return result


class Toy(Optimizer):
    """Stores a tensor, a number and None for each parameter; the next step depends on the number."""

    def __init__(self, params: Any, lr: float = 0.05) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in (p for p in group["params"] if p.grad is not None):
                state = self.state[parameter]
                if not state:
                    state |= {"momentum_buffer": torch.zeros_like(parameter), "count": 0, "spare": None}
                state["count"] += 1
                state["momentum_buffer"].lerp_(parameter.grad, 1 / state["count"])
                parameter.sub_(state["momentum_buffer"], alpha=group["lr"])


def parameter_groups(model: nn.Module) -> list[dict[str, Any]]:
    """Two parameter groups, in a different order than in the model."""
    return [
        {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
        {"params": [p for p in model.parameters() if p.ndim == 2], "weight_decay": 0.1},
    ]


def toy_and_adam(model: nn.Module) -> list[Optimizer]:
    vectors, matrices = (group["params"] for group in parameter_groups(model))
    return [Toy(matrices), AdamW(vectors, lr=0.02)]


OPTIMIZERS: dict[str, Callable[[nn.Module], list[Optimizer]]] = {
    "foreach": lambda model: [AdamW(parameter_groups(model), lr=0.02, foreach=True, amsgrad=True)],
    "fused": lambda model: [AdamW(parameter_groups(model), lr=0.02, fused=True)],
    "single": lambda model: [AdamW(parameter_groups(model), lr=torch.tensor(0.02), foreach=False)],
    "momentum": lambda model: [SGD(parameter_groups(model), lr=0.1, momentum=0.9, nesterov=True)],
    "plain": lambda model: [SGD(parameter_groups(model), lr=0.1)],
    "two": toy_and_adam,
}


def train(model: nn.Module, optimizers: list[Optimizer], steps: range, device: torch.device) -> list[float]:
    """The losses of these steps, each with its own batch; the learning rate depends on its previous value."""
    losses = []
    for step in steps:
        inputs, targets = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(step)).to(device).unbind()
        for optimizer in optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] *= 0.9
        loss = F.mse_loss(model(inputs), targets)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    return losses


def all_values(model: nn.Module, optimizers: list[Optimizer]) -> Iterator[tuple[str, Any]]:
    """All values that could differ, by name."""
    yield from model.named_parameters()
    yield from model.named_buffers()
    yield "random", torch.get_rng_state()
    for i, optimizer in enumerate(optimizers):
        state = optimizer.state_dict()
        for parameter, values in state["state"].items():
            yield from ((f"{i}.{parameter}.{key}", value) for key, value in values.items())
        for j, group in enumerate(state["param_groups"]):
            yield from ((f"{i}.group.{j}.{key}", value) for key, value in group.items())


def assert_same(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        other = second[name]
        if isinstance(value, Tensor):
            assert (value.dtype, value.device, value.shape) == (other.dtype, other.device, other.shape), name
            assert torch.equal(value, other), name
        else:
            assert type(value) is type(other) and value == other, name


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_crashed_run_continues_bit_for_bit(kind: str, device: torch.device, tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = Model().to(device)
    optimizers = OPTIMIZERS[kind](model)
    train(model, optimizers, range(4), device)
    Checkpoints(tmp_path).save(4, *capture(model, optimizers))
    losses = train(model, optimizers, range(4, 9), device)
    undisturbed = dict(all_values(model, optimizers))
    assert len(set(losses)) == 5

    torch.manual_seed(2)
    again = Model().to(device)
    others = OPTIMIZERS[kind](again)
    train(again, others, range(20, 22), device)  # existing state must be replaced
    checkpoint = Checkpoints(tmp_path).latest()
    assert checkpoint is not None
    restore(again, others, checkpoint.tensors, checkpoint.state)
    assert again.second.weight is again.first.weight
    assert train(again, others, range(4, 9), device) == losses
    assert_same(dict(all_values(again, others)), undisturbed)


def test_names_and_values_of_the_state() -> None:
    model = Model()
    optimizers = toy_and_adam(model)
    train(model, optimizers, range(2), torch.device("cpu"))
    tensors, state = capture(model, optimizers)
    kept = {"exp_avg", "exp_avg_sq", "step"}
    vectors = {"first.bias", "norm.weight", "norm.bias"}
    unused = {"model.unused.weight", "model.unused.bias"}
    buffers = {"model.norm.running_mean", "model.norm.running_var", "model.norm.num_batches_tracked"}
    assert {name for name in tensors if not name.startswith("random.cuda")} == {
        *(f"model.{name}" for name in {"first.weight", *vectors}),
        *(f"optimizer.1.{name}.{key}" for name in vectors for key in kept),
        *unused,
        *buffers,
        "optimizer.0.first.weight.momentum_buffer",
        "random.cpu",
    }
    assert tensors["random.cpu"].dtype == torch.uint8
    toy, adam = state["optimizers"]
    assert (toy["kind"], adam["kind"]) == ("Toy", "AdamW")
    assert toy["numbers"] == {"first.weight": {"count": 2, "spare": None}}
    assert adam["groups"][0]["parameters"] == ["first.bias", "norm.weight", "norm.bias", "unused.bias"]
    assert adam["groups"][0]["numbers"]["betas"] == [0.9, 0.999]
    assert not {"amsgrad", "foreach", "params"} & adam["groups"][0]["numbers"].keys()


def test_the_state_of_a_new_run() -> None:
    """The optimizers have no state then, whatever they had before."""
    model = Model()
    optimizers = OPTIMIZERS["foreach"](model)
    saved = copy.deepcopy(capture(model, optimizers))
    first = train(model, optimizers, range(2), torch.device("cpu"))
    restore(model, optimizers, *saved)
    assert not optimizers[0].state
    assert train(model, optimizers, range(2), torch.device("cpu")) == first


def test_optimizer_state_has_the_memory_format_of_the_parameters() -> None:
    model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = AdamW(model.parameters())
    model(torch.randn(1, 3, 5, 5)).sum().backward()
    optimizer.step()
    tensors, state = capture(model, [optimizer])
    restore(model, [optimizer], {name: tensor.contiguous() for name, tensor in tensors.items()}, state)
    assert optimizer.state[model.weight]["exp_avg"].stride() == model.weight.stride()


def test_state_tensors_preserve_their_dtype() -> None:
    """This includes float32 state of a bfloat16 parameter, which torch's own loading would round."""
    model = Model().to(torch.bfloat16)
    optimizer = Toy(model.parameters())
    kept = torch.randn(8, 8)
    optimizer.state[model.first.weight]["momentum_buffer"] = kept
    saved = capture(model, [optimizer])
    again = Toy(model.parameters())
    restore(model, [again], *saved)
    found = again.state[model.first.weight]["momentum_buffer"]
    assert found.dtype == torch.float32 and torch.equal(found, kept) and found.data_ptr() != kept.data_ptr()


def test_random_states_of_missing_gpus_are_ignored() -> None:
    model = Model()
    tensors, state = capture(model, [])
    draws = torch.rand(3)
    restore(model, [], tensors | {"random.cuda.99": torch.zeros(16, dtype=torch.uint8)}, state)
    assert torch.equal(torch.rand(3), draws)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_random_states_of_gpus() -> None:
    model = Model().to("cuda")
    tensors, state = capture(model, [])
    draws = torch.rand(3, device="cuda")
    restore(model, [], tensors, state)
    assert torch.equal(torch.rand(3, device="cuda"), draws)


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("model.norm.running_var", None, "it lacks NAME"),
        ("random.cpu", None, "it lacks NAME"),
        ("model.third.weight", torch.ones(2), "it has NAME, which are not expected here"),
        ("random.gpu", torch.ones(2), "it has NAME, which are not expected here"),
        ("optimizer.0.third.step", torch.ones(()), "it has NAME, which are not expected here"),
        ("optimizer.1.first.weight.step", torch.ones(()), "it has NAME, which are not expected here"),
        ("model.first.bias", torch.ones(9), r"its NAME is float32 \(9,\), here float32 \(8,\)"),
        ("model.first.bias", torch.ones(8).half(), r"its NAME is float16 \(8,\), here float32 \(8,\)"),
        ("random.cpu", torch.ones(9, dtype=torch.uint8), r"its NAME is uint8 \(9,\), here uint8"),
    ],
)
def test_tensors_of_another_model(name: str, tensor: Tensor | None, message: str) -> None:
    model = Model()
    optimizers = OPTIMIZERS["foreach"](model)
    train(model, optimizers, range(2), torch.device("cpu"))
    tensors, state = copy.deepcopy(capture(model, optimizers))
    train(model, optimizers, range(2, 4), torch.device("cpu"))
    if tensor is None:
        del tensors[name]
    else:
        tensors[name] = tensor
    assert_refused(model, optimizers, tensors, state, message.replace("NAME", re.escape(name)))


def assert_refused(
    model: nn.Module, optimizers: list[Optimizer], tensors: dict[str, Tensor], state: dict[str, Any], message: str
) -> None:
    """Assert an error with this message before anything is changed."""
    before = copy.deepcopy(dict(all_values(model, optimizers)))
    with pytest.raises(InputError, match=rf"another model .*{message}.*Nothing was changed"):
        restore(model, optimizers, tensors, state)
    assert_same(dict(all_values(model, optimizers)), before)


@pytest.mark.parametrize("width", [4, 16])
def test_a_model_of_another_size(width: int) -> None:
    saved = copy.deepcopy(capture(Model(width), []))
    assert_refused(Model(), [], *saved, rf"first\.weight is float32 \({width}, {width}\), here .* and 1 more")


def regroup(model: nn.Module) -> list[Optimizer]:
    groups = parameter_groups(model)
    return [AdamW(groups[::-1])]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda model: [], "it has AdamW, here is none"),
        (lambda model: [SGD(parameter_groups(model))], "it has AdamW, here is SGD"),
        (lambda model: [AdamW([group]) for group in parameter_groups(model)], "it has AdamW, here is AdamW and AdamW"),
        (lambda model: [AdamW(model.parameters())], "its AdamW has groups of 4, 2 parameters, here of 6"),
        (regroup, "its AdamW has groups of 4, 2 parameters, here of 2, 4"),
    ],
)
def test_other_optimizers(build: Callable[[nn.Module], list[Optimizer]], message: str) -> None:
    model = Model()
    optimizers = OPTIMIZERS["foreach"](model)
    train(model, optimizers, range(2), torch.device("cpu"))
    assert_refused(model, build(model), *copy.deepcopy(capture(model, optimizers)), message)


def test_a_state_without_optimizers() -> None:
    model = Model()
    optimizers = OPTIMIZERS["foreach"](model)
    assert_refused(model, optimizers, capture(model, optimizers)[0], {}, "it has no optimizer, here is AdamW")


def test_unsupported_optimizer_state() -> None:
    model = Model()
    with pytest.raises(InputError, match=r"SGD .*shape \(3,\) .*not in the model"):
        capture(model, [SGD(itertools.chain(model.parameters(), [nn.Parameter(torch.ones(3))]))])
    history = LBFGS(model.parameters())
    inputs = torch.randn(6, 8)

    def closure() -> Tensor:
        history.zero_grad()
        loss = model(inputs).square().sum()
        loss.backward()
        return loss

    history.step(closure)
    with pytest.raises(InputError, match=r"LBFGS .*first\.weight as a list; .*a tensor"):
        capture(model, [history])
