"""Attribution: completeness, a linear model where the answer is known, and an integral summed finely."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.errors import InputError
from regard.interpret.attribution.gradients import gradient_times_input, integrated_gradients
from regard.interpret.attribution.probe import Probe, pretrained_probe, task_probe
from regard.text import Tokenizer
from tests.inference.folders import tiny_gpt
from tests.interpret.classifiers import deciding, sentence


@pytest.fixture(scope="module")
def blanks(tiny_bert_folder: Path) -> Probe:
    return pretrained_probe(*regard.load(tiny_bert_folder), "the _ was a [MASK] film")


@pytest.fixture(scope="module")
def following(tmp_path_factory: pytest.TempPathFactory) -> Probe:
    return pretrained_probe(*regard.load(tiny_gpt(tmp_path_factory.mktemp("gpt"))), "the good film")


class Linear(nn.Module):
    """In a model's place: vectors are handed on as they are."""

    def __init__(self, like: nn.Module) -> None:
        super().__init__()
        self.embedding = like.embedding

    def forward(self, given: Tensor, layout: object) -> Tensor:
        return given if given.is_floating_point() else self.embedding.tokens(given)


@pytest.fixture(scope="module")
def linear(blanks: Probe) -> tuple[Probe, Tensor]:
    """A trial whose logits are sums over tokens of the products with a matrix that is its own for every token."""
    width, count = blanks.encoder.config.hidden_size, len(blanks.ids)
    factors = torch.randn(count, width, 3, generator=torch.Generator().manual_seed(1))
    model = Linear(blanks.encoder)

    def read(hidden: Tensor) -> Tensor:
        return torch.einsum("btw,two->bo", hidden, factors)[:, None]

    trial = replace(
        blanks, model=model, encoder=model, targets=("text",), outputs=("a", "b", "c"), task="classify", read=read
    )
    return trial, factors


def test_of_a_linear_model_both_are_the_products(linear: tuple[Probe, Tensor]) -> None:
    trial, factors = linear
    vectors = trial.token_embeddings().detach()
    for number, name in enumerate(trial.outputs):
        wanted = (vectors * factors[:, :, number]).sum(-1)
        simple = gradient_times_input(trial, output=name)
        assert simple.scores == pytest.approx(wanted.tolist(), abs=1e-4)
        assert simple.value == pytest.approx(wanted.sum().item(), abs=1e-4)
        assert simple.completeness_error is None
        found = integrated_gradients(trial, output=name, steps=1, baseline="zero")
        assert found.scores == pytest.approx(wanted.tolist(), abs=1e-4)
        assert found.baseline_value == 0
        assert found.completeness_error == pytest.approx(0, abs=1e-4)


def test_of_a_linear_model_with_masks_before(linear: tuple[Probe, Tensor]) -> None:
    trial, factors = linear
    vectors = trial.token_embeddings().detach()
    mask = trial.encoder.embedding.tokens.weight[trial.tokenizer.mask_token_id].detach()
    found = integrated_gradients(trial, output="b", steps=1)
    assert found.baseline == "mask"
    wanted = ((vectors - mask) * factors[:, :, 1]).sum(-1).tolist()
    wanted[0] = wanted[-1] = 0.0  # [CLS] and [SEP] were there before
    assert found.scores == pytest.approx(wanted, abs=1e-4)
    assert found.scores[2] == pytest.approx(0, abs=1e-5)  # and so was the blank


@pytest.mark.parametrize("which", ["blanks", "following"])
@pytest.mark.parametrize("baseline", ["zero", None])
def test_scores_add_up(which: str, baseline: None, request: pytest.FixtureRequest) -> None:
    trial: Probe = request.getfixturevalue(which)
    place = len(trial.targets) - 1
    rough = integrated_gradients(trial, target=place, steps=2, baseline=baseline)
    found = integrated_gradients(trial, target=place, steps=128, baseline=baseline)
    assert found.baseline_value is not None
    gained = found.value - found.baseline_value
    assert abs(gained) > 0.1
    assert sum(found.scores) == pytest.approx(gained, abs=0.01)
    assert found.completeness_error == pytest.approx(sum(found.scores) - gained, abs=1e-9)
    assert rough.completeness_error is not None
    assert abs(rough.completeness_error) > abs(found.completeness_error or 0)
    with trial.evaluation_mode():
        row = trial.logits()[0, place]
    assert found.output == trial.outputs[int(row.argmax())]
    assert found.value == pytest.approx(row.max().item(), abs=1e-5)


def test_the_integral_is_that_of_many_small_steps(following: Probe) -> None:
    found = integrated_gradients(following, steps=64, baseline="zero", output="the")
    end = following.token_embeddings().detach()
    middles = (torch.arange(500) + 0.5) / 500
    given = (end * middles[:, None, None]).requires_grad_()
    logits = following.encoder.logits(following.encoder(given)[:, -1])
    logits[:, following.outputs.index("the")].sum().backward()
    assert given.grad is not None
    wanted = (given.grad.mean(0) * end).sum(-1).tolist()
    assert found.scores == pytest.approx(wanted, abs=0.01)


def test_copies_in_several_batches_give_the_same(following: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = integrated_gradients(following, steps=7)
    monkeypatch.setattr("regard.interpret.attribution.gradients.BATCH_TOKENS", {"cpu": 2 * len(following.ids)})
    assert integrated_gradients(following, steps=7).scores == pytest.approx(whole.scores, abs=1e-5)


def test_the_word_that_decides_gets_the_most(tiny_bert_folder: Path) -> None:
    tokenizer = Tokenizer.open(tiny_bert_folder)
    for seed in range(5):
        text, label = sentence(seed)
        trial = task_probe(deciding(tokenizer, seed), text)
        found = integrated_gradients(trial, output=label)
        best = max(range(len(found.scores)), key=found.scores.__getitem__)
        assert found.tokens[best] in ("good", "love", "funny", "bad", "dull")
        other = integrated_gradients(trial, output="negative" if label == "positive" else "positive")
        assert other.scores[best] < 0 < found.scores[best]


def test_models_in_training_are_asked_without_dropout(tiny_bert_folder: Path) -> None:
    model, tokenizer = regard.load(tiny_bert_folder)
    trial = pretrained_probe(model, tokenizer, "the _ was long")
    calm = gradient_times_input(trial)
    model.train()
    assert gradient_times_input(trial).scores == pytest.approx(calm.scores)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_cannot_be_attributed(blanks: Probe, following: Probe) -> None:
    with pytest.raises(InputError, match="target is 2; expected 0 to 1"):
        gradient_times_input(blanks, target=2)
    with pytest.raises(InputError, match="steps is 0"):
        integrated_gradients(blanks, steps=0)
    with pytest.raises(InputError, match="unknown baseline 'zeros'; did you mean 'zero'"):
        integrated_gradients(blanks, baseline="zeros")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="has no such token; use zero"):
        integrated_gradients(following, baseline="mask")
    with pytest.raises(InputError, match="is not a token"):
        gradient_times_input(blanks, output="filmm")
