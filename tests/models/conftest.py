"""What the tests of the families share: a device, a seed, weights worth testing with, and batchings of one pool."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.nn import Layout, Packed, Padded

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@pytest.fixture(scope="session", params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """The device to test on; float32 means float32 there, not its 19-bit stand-in."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield torch.device(request.param)
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Tensors this small are slower on several cores, and much slower where others want those cores too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def randomised() -> Callable[..., Any]:
    """Give every parameter a value that matters: fresh ones have zero biases, unit norms, nearly flat attention."""

    def randomise(module: nn.Module, *, std: float = 0.3) -> nn.Module:
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.normal_(0.0, std)
                if "norm" in name and name.endswith("weight"):
                    parameter.add_(1.0)
            for part in module.modules():
                if isinstance(part, nn.Embedding) and part.padding_idx is not None:
                    part.weight[part.padding_idx] = 0.0
        return module

    return randomise


def laid_out(parts: Sequence[Tensor], layout: str, junk: float) -> tuple[Tensor, Layout]:
    """Sequences as one batch; `junk` lies where a rectangle holds no token."""
    lengths, device = [len(part) for part in parts], parts[0].device
    if layout == "packed":
        return torch.cat(list(parts)), Packed.of(lengths, device=device)
    rows = nn.utils.rnn.pad_sequence(list(parts), batch_first=True, padding_value=junk)
    return rows, Padded.of(lengths, device=device)


@pytest.fixture(scope="session")
def neighbours() -> Callable[..., None]:
    """Check that a sequence's numbers are its own: 100 random batchings of a pool, padded and packed, in any order.

    An item of the pool is one tensor a side (source, target), tokens first. `run` gets ((tensor, layout), ...) and
    gives the output in the last side's layout, or one row a sequence where `whole` is set.
    """

    def check(
        run: Callable[..., Tensor],
        pool: Sequence[tuple[Tensor, ...]],
        *,
        whole: bool = False,
        trials: int = 100,
        junk: float = 3.0,
    ) -> None:
        draw = random.Random(11)
        with torch.no_grad():
            alone = [run(*((part[None], Padded()) for part in item))[0] for item in pool]
            for _ in range(trials):
                chosen = draw.sample(range(len(pool)), draw.randint(1, 6))
                sizes = [len(pool[i][-1]) for i in chosen]
                for layout in ("padded", "packed"):
                    sides = (laid_out(parts, layout, junk) for parts in zip(*(pool[i] for i in chosen), strict=True))
                    output = run(*sides)
                    rows = output.split(sizes) if layout == "packed" and not whole else output
                    for i, size, row in zip(chosen, sizes, rows, strict=True):
                        got = row if whole else row[:size]
                        torch.testing.assert_close(got, alone[i], atol=1e-5, rtol=1e-4)

    return check


@pytest.fixture(scope="session")
def texts() -> Callable[..., list[tuple[Tensor, ...]]]:
    """A pool of random sequences of ids, `sides` of them an item, each of 1 to 7 tokens (of `characters` each)."""

    def make(device: torch.device, *, sides: int = 1, vocabulary: int = 20, characters: int = 0) -> list[Any]:
        draw = random.Random(5)
        shape = (characters,) if characters else ()
        return [
            tuple(torch.randint(1, vocabulary, (draw.randint(1, 7), *shape), device=device) for _ in range(sides))
            for _ in range(12)
        ]

    return make
