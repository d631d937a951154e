"""The training loop on small modules: steps, stopping, and options that must not change the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, repeat
from typing import Any

import pytest
import torch
import torch.distributed as distributed
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from regard.models import Bert, BertConfig, Gpt, GptConfig
from regard.nn.masks import Packed, Padded
from regard.training import loop
from regard.training.loop import Step, Stopwatch, enable_gradient_checkpointing, train


class Regression(nn.Module):
    """Learns a product; half of the loss is also reported under its own name."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        loss = F.mse_loss(self.linear(x), y)
        return {"half": loss / 2, "loss": loss}


def task(rows: int = 16) -> dict[str, Tensor]:
    x = torch.randn(rows, 4)
    return {"x": x, "y": x[:, :3] * 2 + 1}


def steps(
    module: nn.Module,
    batches: Any,
    count: int = 5,
    *,
    rate: Callable[[float], float] = lambda done: 0.1,
    **options: Any,
) -> list[Step]:
    plain = torch.optim.SGD(module.parameters(), lr=99.0)
    return list(train(module, batches, [plain], progress=lambda step: step / count, learning_rate=rate, **options))


def weights(module: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()]).clone()


def test_losses_fall() -> None:
    module = Regression().eval()
    done = steps(module, repeat([task()]), 60)
    values = [step.losses["loss"].item() for step in done]
    assert values[-1] < values[0] / 20
    assert [step.losses["half"].item() for step in done] == pytest.approx([value / 2 for value in values])
    assert not done[0].losses["loss"].requires_grad
    assert module.training


def test_gradient_accumulation_equals_one_batch() -> None:
    whole, parted = Regression(), Regression()
    parted.load_state_dict(whole.state_dict())
    data = task(24)
    parts = [{name: value[at : at + 8] for name, value in data.items()} for at in (0, 8, 16)]
    one, three = steps(whole, repeat([data])), steps(parted, repeat(parts))
    torch.testing.assert_close(weights(parted), weights(whole), atol=1e-6, rtol=0)
    for a, b in zip(one, three, strict=True):
        assert b.losses.keys() == a.losses.keys()
        torch.testing.assert_close(b.losses["half"], a.losses["half"], atol=1e-6, rtol=0)
        torch.testing.assert_close(b.grad_norm, a.grad_norm, atol=1e-6, rtol=0)


@pytest.mark.parametrize("clip", [0.01, 1000.0, math.inf])
def test_gradient_clipping(clip: float) -> None:
    module = Regression()
    before = weights(module)
    (step,) = steps(module, repeat([task()]), 1, rate=lambda done: 1.0, max_grad_norm=clip)
    norm = step.grad_norm.item()
    assert 0.01 < norm < 1000
    moved = torch.linalg.vector_norm(weights(module) - before).item()
    assert moved == pytest.approx(min(norm, clip), rel=1e-4)


def test_the_learning_rate_follows_the_progress() -> None:
    module, used = Regression(), []
    plain = torch.optim.SGD(module.parameters(), lr=99.0)
    for step in train(
        module, repeat([task()]), [plain], progress=lambda step: step / 4, learning_rate=lambda done: 0.1 * (1 - done)
    ):
        used.append((step.number, step.progress, step.learning_rate, plain.param_groups[0]["lr"]))
    rates = [0.1, 0.075, 0.05, 0.025]
    assert used == [(k, k / 4, pytest.approx(rates[k]), pytest.approx(rates[k])) for k in range(4)]


def test_training_starts_at_the_given_step() -> None:
    done = steps(Regression(), repeat([task()]), 5, first=3)
    assert [(step.number, step.progress) for step in done] == [(3, 0.6), (4, 0.8)]
    assert steps(Regression(), repeat([task()]), 5, first=5) == []


def counted(drawn: list[int]) -> Iterator[Sequence[dict[str, Tensor]]]:
    for number in range(100):
        drawn.append(number)
        yield [task()]


def test_every_drawn_batch_is_trained_on() -> None:
    drawn: list[int] = []
    assert len(steps(Regression(), counted(drawn), 3)) == len(drawn) == 3


def test_a_caller_that_stops_iterating_stops_after_a_whole_step() -> None:
    stopped, whole = Regression(), Regression()
    stopped.load_state_dict(whole.state_dict())
    data, drawn = [task()], list[int]()

    def source() -> Iterator[list[dict[str, Tensor]]]:
        for _ in counted(drawn):
            yield data

    plain = torch.optim.SGD(stopped.parameters(), lr=0.1)
    running = train(stopped, source(), [plain], progress=lambda step: step / 9, learning_rate=lambda done: 0.1)
    assert [step.number for step in islice(running, 2)] == [0, 1]
    steps(whole, [data, data], 9)
    assert torch.equal(weights(stopped), weights(whole))
    assert len(drawn) == 2
    assert all(parameter.grad is None for parameter in stopped.parameters())


def test_training_ends_with_the_batches() -> None:
    assert len(steps(Regression(), [[task()]] * 2, 5)) == 2


def test_autocast_applies_to_matrix_products_only() -> None:
    module, seen = Regression(), []
    module.linear.register_forward_hook(lambda part, inputs, output: seen.append(output.dtype))
    gradients = []
    module.linear.weight.register_post_accumulate_grad_hook(lambda weight: gradients.append(weight.grad.dtype))
    done = steps(module, repeat([task()]), 40, autocast=torch.bfloat16)
    assert {*seen} == {torch.bfloat16} and {*gradients} == {torch.float32}
    assert module.linear.weight.dtype == torch.float32
    assert done[-1].losses["loss"] < done[0].losses["loss"] / 4


@pytest.mark.parametrize("layout", ["padded", "packed", "rows", "causal"])
def test_gradient_checkpointing_gives_the_same_gradients(layout: str) -> None:
    shape: dict[str, Any] = {
        "vocab_size": 20,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 16,
    }
    model: Any = Gpt(GptConfig(**shape)) if layout == "causal" else Bert(BertConfig(**shape), output_heads=())
    ids = torch.randint(20, (3, 6))
    lengths = Packed.from_lengths([7, 5, 6]) if layout == "packed" else Padded()
    ids = ids.flatten() if layout == "packed" else ids
    options = {"output_positions": torch.tensor([2, 11])} if layout == "rows" else {}
    seen: list[int] = []
    model.get_submodule("decoder" if layout == "causal" else "encoder").layers[0].ffn.register_forward_hook(
        lambda *_: seen.append(1)
    )

    def gradient() -> Tensor:
        model.zero_grad()
        torch.manual_seed(1)
        model.train()(ids, lengths, **options).square().sum().backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    plain = gradient()
    torch.manual_seed(2)
    assert not torch.equal(model(ids, lengths, **options), model(ids, lengths, **options))  # dropout is on
    seen.clear()
    enable_gradient_checkpointing(model)
    assert torch.equal(gradient(), plain)
    assert len(seen) == 2  # in the forward pass, and again in the backward pass


@pytest.fixture
def single_process_group(tmp_path: Any) -> Iterator[None]:
    """A process group of one process."""
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("single_process_group")
def test_gradients_are_synchronized_once_a_step() -> None:
    module = DistributedDataParallel(Regression())
    sums: list[Tensor] = []

    def hook(bucket: Any) -> torch.futures.Future[Tensor]:
        sums.append(bucket.buffer().clone())
        ready: torch.futures.Future[Tensor] = torch.futures.Future()
        ready.set_result(bucket.buffer())
        return ready

    module.register_comm_hook(None, lambda state, bucket: hook(bucket))
    done = steps(module, repeat([task(), task(), task()]), 2, max_grad_norm=math.inf)
    assert len(sums) == len(done) == 2
    # The complete sum is communicated.
    assert [torch.linalg.vector_norm(each).item() for each in sums] == pytest.approx([s.grad_norm.item() for s in done])


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(loop.time, "perf_counter", lambda: now[0])
    return now


def test_a_stopwatch_counts_while_it_runs(time: list[float]) -> None:
    watch = Stopwatch(5.0)
    time[0] += 1
    assert watch.elapsed == 5
    watch.start()
    time[0] += 2
    assert watch.elapsed == 7
    watch.start()  # already running
    time[0] += 1
    watch.pause()
    time[0] += 10
    assert watch.elapsed == 8
    watch.pause()
    watch.start()
    time[0] += 0.5
    assert watch.elapsed == 8.5


def test_a_time_budget_ends_after_a_whole_step(time: list[float]) -> None:
    watch = Stopwatch(6.0)
    watch.start()
    module, seen = Regression(), []
    plain = torch.optim.SGD(module.parameters(), lr=0.1)
    for step in train(
        module, repeat([task()]), [plain], progress=lambda _: watch.elapsed / 10, learning_rate=lambda done: 1 - done
    ):
        seen.append((step.number, step.progress, step.learning_rate))
        time[0] += 1.5
    assert [number for number, _, _ in seen] == [0, 1, 2]
    assert [value for step in seen for value in step[1:]] == pytest.approx([0.6, 0.4, 0.75, 0.25, 0.9, 0.1])
