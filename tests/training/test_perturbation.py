"""Adversarial perturbations: their direction, that they are undone, and training steps with them."""

from __future__ import annotations

from itertools import repeat

import pytest
import torch
from torch import Tensor, nn

from regard.training.loop import AdversarialPerturbation, train


class Sentences(nn.Module):
    """A classifier of the mean of word vectors with a nonlinearity."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 4)
        self.output = nn.Linear(4, 2)

    def forward(self, ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.output(self.words(ids).mean(1).tanh())
        return {"loss": nn.functional.cross_entropy(logits, labels)}


@pytest.fixture
def batch() -> dict[str, Tensor]:
    torch.manual_seed(0)
    return {"ids": torch.randint(10, (8, 5)), "labels": torch.randint(2, (8,))}


def test_the_perturbation_increases_the_loss_and_is_undone(batch: dict[str, Tensor]) -> None:
    model = Sentences()
    weight, before = model.words.weight, model.words.weight.detach().clone()
    loss = model(**batch)["loss"]
    loss.backward()
    with AdversarialPerturbation(weight, 0.5).applied():
        assert (weight - before).norm().item() == pytest.approx(0.5, rel=1e-5)
        there = model(**batch)["loss"]
    assert there > loss
    for other in range(5):  # no direction of that length increases the loss more, to first order
        torch.manual_seed(other)
        step = torch.randn_like(before)
        with torch.no_grad():
            weight.copy_(before + 0.5 * step / step.norm())
            assert model(**batch)["loss"] < there
            weight.copy_(before)
    assert torch.equal(weight, before)


def test_the_perturbation_is_undone_after_an_error(batch: dict[str, Tensor]) -> None:
    model = Sentences()
    before = model.words.weight.detach().clone()
    model(**batch)["loss"].backward()
    with pytest.raises(ZeroDivisionError), AdversarialPerturbation(model.words.weight, 3.0).applied():
        raise ZeroDivisionError
    assert torch.equal(model.words.weight, before)


def test_a_perturbation_needs_a_gradient() -> None:
    with (
        pytest.raises(RuntimeError, match="no gradient"),
        AdversarialPerturbation(nn.Parameter(torch.ones(2, 2)), 1.0).applied(),
    ):
        pass


def test_a_step_learns_from_both_passes(batch: dict[str, Tensor]) -> None:
    torch.manual_seed(1)
    model, twin = Sentences(), Sentences()
    twin.load_state_dict(model.state_dict())
    plain = torch.optim.SGD(model.parameters(), lr=1.0)
    for _ in train(
        model,
        repeat([batch]),
        [plain],
        progress=float,
        learning_rate=lambda done: 0.1,
        max_grad_norm=1e9,
        perturbation=AdversarialPerturbation(model.words.weight, 0.7),
    ):
        pass
    loss = twin(**batch)["loss"]
    clean = torch.autograd.grad(loss, [*twin.parameters()])
    original = twin.words.weight.detach().clone()
    with torch.no_grad():
        twin.words.weight.add_(0.7 * clean[0] / clean[0].norm())
    moved = torch.autograd.grad(twin(**batch)["loss"], [*twin.parameters()])
    with torch.no_grad():
        twin.words.weight.copy_(original)
        for parameter, first, second in zip(twin.parameters(), clean, moved, strict=True):
            parameter.sub_(0.1 * (first + second))
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
