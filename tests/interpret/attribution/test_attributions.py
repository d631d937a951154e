"""Attribution: completeness, a linear model with known scores, a fine Riemann sum, and the results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.errors import InputError
from regard.interpret.attribution.attributions import (
    Method,
    attribute,
    gradient_times_input,
    integrated_gradients,
    occlusion,
)
from regard.interpret.attribution.probe import Probe, pretrained_probe, task_probe
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.tasks.question_answering import QuestionAnswering
from regard.text import Tokenizer
from tests.inference.folders import tiny_gpt
from tests.interpret.classifiers import deciding, sentence


@pytest.fixture(scope="module")
def masked_probe(tiny_bert_folder: Path) -> Probe:
    return pretrained_probe(*regard.load(tiny_bert_folder), "the _ was a [MASK] film")


@pytest.fixture(scope="module")
def next_token_probe(tmp_path_factory: pytest.TempPathFactory) -> Probe:
    return pretrained_probe(*regard.load(tiny_gpt(tmp_path_factory.mktemp("gpt"))), "the good film")


class Linear(nn.Module):
    """A model that returns its input embeddings."""

    def __init__(self, like: nn.Module) -> None:
        super().__init__()
        self.embedding = like.embedding

    def forward(self, given: Tensor, layout: object) -> Tensor:
        return given if given.is_floating_point() else self.embedding.tokens(given)


@pytest.fixture(scope="module")
def linear(masked_probe: Probe) -> tuple[Probe, Tensor]:
    """A probe whose logits are linear in the embeddings, with a separate matrix per token."""
    width, count = masked_probe.encoder.config.hidden_size, len(masked_probe.ids)
    factors = torch.randn(count, width, 3, generator=torch.Generator().manual_seed(1))
    model = Linear(masked_probe.encoder)

    def read(hidden: Tensor) -> Tensor:
        return torch.einsum("btw,two->bo", hidden, factors)[:, None]

    probe = replace(
        masked_probe, model=model, encoder=model, targets=("text",), outputs=("a", "b", "c"), task="classify", read=read
    )
    return probe, factors


def test_scores_of_a_linear_model_are_products(linear: tuple[Probe, Tensor]) -> None:
    probe, factors = linear
    vectors = probe.token_embeddings().detach()
    for number, name in enumerate(probe.outputs):
        expected = (vectors * factors[:, :, number]).sum(-1)
        simple = gradient_times_input(probe, output=name)
        assert simple.scores == pytest.approx(expected.tolist(), abs=1e-4)
        assert simple.value == pytest.approx(expected.sum().item(), abs=1e-4)
        assert simple.completeness_error is None
        found = integrated_gradients(probe, output=name, steps=1, baseline="zero")
        assert found.scores == pytest.approx(expected.tolist(), abs=1e-4)
        assert found.baseline_value == 0
        assert found.completeness_error == pytest.approx(0, abs=1e-4)


def test_scores_of_a_linear_model_with_the_mask_baseline(linear: tuple[Probe, Tensor]) -> None:
    probe, factors = linear
    vectors = probe.token_embeddings().detach()
    mask = probe.encoder.embedding.tokens.weight[probe.tokenizer.mask_token_id].detach()
    found = integrated_gradients(probe, output="b", steps=1)
    assert found.baseline == "mask"
    expected = ((vectors - mask) * factors[:, :, 1]).sum(-1).tolist()
    expected[0] = expected[-1] = 0.0  # the baseline leaves [CLS] and [SEP] unchanged
    assert found.scores == pytest.approx(expected, abs=1e-4)
    assert found.scores[2] == pytest.approx(0, abs=1e-5)  # and the mask token


@pytest.mark.parametrize("fixture_name", ["masked_probe", "next_token_probe"])
@pytest.mark.parametrize("baseline", ["zero", None])
def test_scores_sum_to_the_gain_over_the_baseline(
    fixture_name: str, baseline: None, request: pytest.FixtureRequest
) -> None:
    probe: Probe = request.getfixturevalue(fixture_name)
    target = len(probe.targets) - 1
    rough = integrated_gradients(probe, target=target, steps=2, baseline=baseline)
    found = integrated_gradients(probe, target=target, steps=128, baseline=baseline)
    assert found.baseline_value is not None
    gain = found.value - found.baseline_value
    assert abs(gain) > 0.1
    assert sum(found.scores) == pytest.approx(gain, abs=0.01)
    assert found.completeness_error == pytest.approx(sum(found.scores) - gain, abs=1e-9)
    assert rough.completeness_error is not None
    assert abs(rough.completeness_error) > abs(found.completeness_error or 0)
    with probe.evaluation_mode():
        row = probe.logits()[0, target]
    assert found.output == probe.outputs[int(row.argmax())]
    assert found.value == pytest.approx(row.max().item(), abs=1e-5)


def test_quadrature_equals_a_fine_sum(next_token_probe: Probe) -> None:
    found = integrated_gradients(next_token_probe, steps=64, baseline="zero", output="the")
    end = next_token_probe.token_embeddings().detach()
    middles = (torch.arange(500) + 0.5) / 500
    given = (end * middles[:, None, None]).requires_grad_()
    logits = next_token_probe.encoder.logits(next_token_probe.encoder(given)[:, -1])
    logits[:, next_token_probe.outputs.index("the")].sum().backward()
    assert given.grad is not None
    expected = (given.grad.mean(0) * end).sum(-1).tolist()
    assert found.scores == pytest.approx(expected, abs=0.01)


def test_the_batch_size_does_not_change_the_scores(next_token_probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = integrated_gradients(next_token_probe, steps=7)
    monkeypatch.setattr(
        "regard.interpret.attribution.attributions.BATCH_TOKENS", {"cpu": 2 * len(next_token_probe.ids)}
    )
    assert integrated_gradients(next_token_probe, steps=7).scores == pytest.approx(whole.scores, abs=1e-5)


def test_the_deciding_word_has_the_highest_score(tiny_bert_folder: Path) -> None:
    tokenizer = Tokenizer.open(tiny_bert_folder)
    for seed in range(5):
        text, label = sentence(seed)
        probe = task_probe(deciding(tokenizer, seed), text)
        found = integrated_gradients(probe, output=label)
        best = max(range(len(found.scores)), key=found.scores.__getitem__)
        assert found.tokens[best] in ("good", "love", "funny", "bad", "dull")
        other = integrated_gradients(probe, output="negative" if label == "positive" else "positive")
        assert other.scores[best] < 0 < found.scores[best]


def test_occlusion_of_a_linear_model_is_the_difference(linear: tuple[Probe, Tensor]) -> None:
    probe, factors = linear
    found = occlusion(probe, output="c", baseline="zero")
    expected = (probe.token_embeddings().detach() * factors[:, :, 2]).sum(-1)
    assert found.scores == pytest.approx(expected.tolist(), abs=1e-4)
    assert (found.baseline, found.value) == ("zero", pytest.approx(expected.sum().item(), abs=1e-4))


@pytest.mark.parametrize("method", ["integrated-gradients", "gradient-x-input", "occlusion", "attention", "rollout"])
def test_every_method_explains_the_likeliest_output(
    method: Method, masked_probe: Probe, next_token_probe: Probe
) -> None:
    for probe in (masked_probe, next_token_probe):
        result = attribute(probe, method=method)
        with probe.evaluation_mode():
            logits = probe.logits()[0, 0]
        assert result.label == probe.outputs[int(logits.argmax())]
        assert result.value == pytest.approx(logits.max().item(), abs=1e-4)
        assert result.probability == pytest.approx(logits.softmax(-1).max().item(), abs=1e-5)
        assert result.label in result.to_text() and len(result.to_table()[1]) == len(probe.ids)
        if method in ("attention", "rollout"):
            assert sum(one.score for one in result.tokens) == pytest.approx(1, abs=1e-5)


def test_tokens_have_offsets_into_their_texts(
    masked_probe: Probe, next_token_probe: Probe, tiny_bert_folder: Path
) -> None:
    tokens = attribute(masked_probe, method="attention").tokens
    found = [None if one.start is None else masked_probe.texts[0][one.start : one.end] for one in tokens]
    assert found == [None, "the", "_", "was", "a", "[MASK]", "film", None]
    tokens = attribute(next_token_probe, method="attention").tokens
    assert "".join(next_token_probe.texts[0][one.start : one.end] for one in tokens).replace(" ", "") == "thegoodfilm"
    encoder, tokenizer = regard.load(tiny_bert_folder)
    task = QuestionAnswering()
    fine_tuned = FineTunedModel(task, EncoderWithHead.from_encoder(encoder, task).eval(), tokenizer, 64)
    texts = "what film", "the good film"
    result = attribute(task_probe(fine_tuned, *texts), target=1, method="rollout")
    assert result.target == "end"
    found = [None if one.text is None else texts[one.text][one.start : one.end] for one in result.tokens]
    assert found == [None, "what", "film", None, "the", "good", "film", None]


def test_a_model_in_training_mode_is_evaluated_without_dropout(tiny_bert_folder: Path) -> None:
    model, tokenizer = regard.load(tiny_bert_folder)
    probe = pretrained_probe(model, tokenizer, "the _ was long")
    expected = gradient_times_input(probe)
    model.train()
    assert gradient_times_input(probe).scores == pytest.approx(expected.scores)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_invalid_arguments_are_rejected(masked_probe: Probe, next_token_probe: Probe) -> None:
    with pytest.raises(InputError, match="target is 2; expected 0 to 1"):
        gradient_times_input(masked_probe, target=2)
    with pytest.raises(InputError, match="steps is 0"):
        regard.attribute("the _", steps=0)
    with pytest.raises(InputError, match="unknown baseline 'zeros'; did you mean 'zero'"):
        integrated_gradients(masked_probe, baseline="zeros")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="has no such token; use zero"):
        integrated_gradients(next_token_probe, baseline="mask")
    with pytest.raises(InputError, match="is not a token"):
        gradient_times_input(masked_probe, output="filmm")
