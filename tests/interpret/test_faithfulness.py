"""Faithfulness: handcrafted classifiers over 20 seeds, each test against its definition, and invalid input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from regard.errors import InputError
from regard.interpret.attribution.probe import Probe, task_probe
from regard.interpret.faithfulness import (
    MIN_CHANGE,
    MIN_CORRELATION_MARGIN,
    MIN_KENDALL,
    FaithfulnessCheck,
    FaithfulnessResult,
    attention_map,
    kendall_tau_b,
    measure_faithfulness,
)
from regard.models import Gpt, GptConfig
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.tasks.text_classification import TextClassification
from regard.text import Tokenizer
from tests.inference.folders import byte_level, randomized
from tests.interpret.classifiers import deciding, sentence

SEEDS = range(20)
DECIDE = {"good", "love", "funny", "bad", "dull"}


@pytest.fixture(scope="module")
def tokens(tiny_bert_folder: Path) -> Tokenizer:
    return Tokenizer.open(tiny_bert_folder)


@pytest.fixture(scope="module")
def measured(tokens: Tokenizer) -> Callable[..., list[FaithfulnessResult]]:
    def measure(*, head: int | None = None, **kind: bool) -> list[FaithfulnessResult]:
        found = []
        for seed in SEEDS:
            text, label = sentence(seed)
            found.append(measure_faithfulness(task_probe(deciding(tokens, seed, **kind), text), head=head))
            assert found[-1].label == label
        return found

    return measure


def test_frozen_uniform_attention_is_flagged(measured: Callable[..., list[FaithfulnessResult]]) -> None:
    found = measured(uniform=True)
    assert sum(one.flagged for one in found) >= len(SEEDS) - 1
    for one in found:
        assert one.weights == pytest.approx([1 / len(one.weights)] * len(one.weights))
        assert max(one.checks[1].numbers.values()) < 1e-5  # permuting equal weights changes nothing


def test_decisive_attention_is_not_flagged(measured: Callable[..., list[FaithfulnessResult]]) -> None:
    found = measured()
    assert sum(not one.flagged for one in found) >= len(SEEDS) - 1
    for one in found:
        assert one.tokens[int(np.argmax(one.weights))] in DECIDE


def test_a_head_with_a_plausible_map_and_no_output_is_flagged(
    measured: Callable[..., list[FaithfulnessResult]],
) -> None:
    found = measured(unused_head=True, head=0)
    assert sum(one.verdict == "unfaithful" for one in found) >= len(SEEDS) - 1
    for one in found:
        assert one.tokens[int(np.argmax(one.weights))] in DECIDE  # the map looks perfect
        assert one.checks[0].passed  # and removing words does not reveal it
        assert not one.checks[2].passed


@pytest.fixture(scope="module")
def probe(tokens: Tokenizer) -> Probe:
    return task_probe(deciding(tokens, 4), sentence(4)[0])


def test_values_equal_their_definitions(probe: Probe) -> None:
    """Recompute each value in the simplest way: one text, one change, one probability."""
    found = measure_faithfulness(probe)
    checks = {check.name: check for check in found.checks}
    label, words = probe.outputs.index(found.label), range(1, len(probe.ids) - 1)
    weights = np.array(found.weights)[list(words)]

    def probability(positions: set[int]) -> float:
        keep = torch.tensor([[position in positions for position in range(len(probe.ids))]])
        with probe.evaluation_mode():
            return probe.probabilities(probe.logits_of_subsets(keep))[0, 0, label].item()

    every = set(range(len(probe.ids)))
    order = [list(words)[position] for position in np.argsort(-weights, kind="stable")]
    whole = probability(every)
    assert found.probability == pytest.approx(whole, abs=1e-6)
    counts = [1, 2, 5]  # of ten words
    drop = [whole - probability(every - set(order[:count])) for count in counts]
    loss = [whole - probability(every - set(order[count:])) for count in counts]
    assert checks["comprehensiveness"].numbers["comprehensiveness"] == pytest.approx(np.mean(drop), abs=1e-6)
    assert checks["sufficiency"].numbers["sufficiency"] == pytest.approx(np.mean(loss), abs=1e-6)

    odds = [np.log(p / (1 - p)) for p in [whole, *(probability(every - {word}) for word in words)]]
    own = stats.pearsonr(weights, odds[0] - np.array(odds[1:])).statistic
    assert checks["class swap"].numbers["label"] == pytest.approx(own, abs=1e-4)
    assert checks["class swap"].value == pytest.approx(2 * own, abs=1e-4)  # two labels are opposites

    sizes = np.abs(np.array(found.gradient.scores)[list(words)])
    correlation = checks["correlation with gradients"]
    assert correlation.value == correlation.numbers["kendall"]
    assert correlation.numbers["kendall"] == pytest.approx(stats.kendalltau(weights, sizes).statistic, abs=1e-9)
    assert correlation.numbers["spearman"] == pytest.approx(stats.spearmanr(weights, sizes).statistic, abs=1e-9)


def test_zeroed_values_equal_a_hook_on_the_projection(probe: Probe) -> None:
    """The hook sets the values of these positions to zero."""
    positions = torch.tensor([[1, 5]])  # the decisive word and another
    attention = probe.encoder.encoder.layers[0].attention

    def zero(module: object, given: object, found: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        query, key, value = found
        value = value.clone()
        value[:, positions[0]] = 0
        return query, key, value

    with probe.evaluation_mode():
        found = attention_map(probe).zero_values(positions)
        hook = attention.project.register_forward_hook(zero)
        expected = probe.logits()[:, 0]
        hook.remove()
        assert torch.allclose(found, expected, atol=1e-5)
        assert not torch.allclose(found, probe.logits()[:, 0], atol=1e-3)


@pytest.fixture(scope="module")
def gpt_probe(tmp_path_factory: pytest.TempPathFactory) -> Probe:
    tokens = byte_level(tmp_path_factory.mktemp("gpt") / "v", specials=["<|endoftext|>"], kind="gpt2")
    shape = GptConfig(
        vocab_size=tokens.size,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=32,
        bos_token_id=0,
        eos_token_id=0,
    )
    task = TextClassification(["a", "b", "c"])
    return task_probe(
        FineTunedModel(task, randomized(EncoderWithHead.from_encoder(Gpt(shape), task)).eval(), tokens, 32),
        "the good film day",
    )


def test_edited_maps_of_a_gpt_stay_causal(gpt_probe: Probe) -> None:
    attention = attention_map(gpt_probe, layer=1)
    count = len(gpt_probe.ids)
    seen: list[torch.Tensor] = []
    with gpt_probe.evaluation_mode():
        edited = attention._edited

        def edited_and_recorded(change: Callable[[torch.Tensor, slice], torch.Tensor], copies: int) -> torch.Tensor:
            def record_and_change(maps: torch.Tensor, some: slice) -> torch.Tensor:
                seen.append(torch.stack([maps, change(maps, some)]))
                return seen[-1][1]

            return edited(record_and_change, copies)

        object.__setattr__(attention, "_edited", edited_and_recorded)
        attention.permute(5, torch.Generator().manual_seed(0))
        attention.flatten()
    (before, after), (_, flat) = seen
    assert not after.triu(1).any()
    assert torch.allclose(before.sort(-1).values, after.sort(-1).values)  # the same weights, permuted
    assert not torch.allclose(before, after)
    assert torch.allclose(flat[0, 0], torch.ones(count, count).tril() / torch.arange(1, count + 1)[:, None])


def test_a_gpt_with_three_labels(gpt_probe: Probe) -> None:
    found = measure_faithfulness(gpt_probe, layer=1, head=2)
    assert (found.layer, found.head) == (1, 2)
    assert sum(found.weights) == pytest.approx(1, abs=1e-5)
    assert found.special_weight == pytest.approx(found.weights[0] + found.weights[-1], abs=1e-6)
    other = measure_faithfulness(gpt_probe, layer=1, head=2, label=found.other)
    assert (other.label, other.other) == (found.other, found.label)
    swap, turned = found.checks[0].value, other.checks[0].value
    assert swap is not None
    assert swap == pytest.approx(-(turned or 0))


def test_the_same_seed_gives_the_same_numbers(probe: Probe) -> None:
    assert measure_faithfulness(probe, seed=3) == measure_faithfulness(probe, seed=3)
    assert measure_faithfulness(probe, seed=3).checks[1] != measure_faithfulness(probe, seed=4).checks[1]


def test_the_document_is_json(probe: Probe) -> None:
    found = measure_faithfulness(probe)
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["verdict"] == "faithful"
    assert document["flagged"] is False
    assert [check["name"] for check in document["checks"]] == [
        "class swap",
        "permuted attention",
        "zeroed values",
        "correlation with gradients",
        "comprehensiveness",
        "sufficiency",
    ]
    assert [check["threshold"] for check in document["checks"]] == [0.5, 0.1, 0.1, 0.2, 0.1, 0.1]
    assert [check["passed"] for check in document["checks"]] == [check.passed for check in found.checks]


def test_the_documentation_has_the_thresholds() -> None:
    documentation = (Path(__file__).parents[2] / "docs" / "faithfulness.md").read_text(encoding="utf-8")
    rows = {
        line.split("|")[1].strip(): line.split("|")[4].strip()
        for line in documentation.splitlines()
        if line[:2] == "| "
    }
    assert rows == {
        "test": "passes at",
        "class swap": f"{MIN_CORRELATION_MARGIN:.2f}",
        "permuted attention": f"{MIN_CHANGE:.2f}",
        "zeroed values": f"{MIN_CHANGE:.2f}",
        "correlation with gradients": f"{MIN_KENDALL:.2f}",
        "comprehensiveness": f"{MIN_CHANGE:.2f}",
        "sufficiency": f"{MIN_CHANGE:.2f}",
    }


def test_a_check_without_a_value_fails() -> None:
    assert not FaithfulnessCheck.of("x", None, 0.1).passed
    assert FaithfulnessCheck.of("x", 0.1, 0.1).passed
    assert not FaithfulnessCheck.of("x", 0.09, 0.1).passed


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=30))
def test_kendall_equals_scipy(pairs: list[tuple[int, int]]) -> None:
    x, y = (np.array(values, dtype=np.float64) for values in zip(*pairs, strict=True))
    expected = stats.kendalltau(x, y).statistic
    assert kendall_tau_b(x, y) == pytest.approx(0.0 if np.isnan(expected) else expected)


def test_invalid_input_is_rejected(tokens: Tokenizer, probe: Probe) -> None:
    with pytest.raises(InputError, match="has 3 tokens that are not special; the tests need 5"):
        measure_faithfulness(task_probe(deciding(tokens, 0), "a good film"))
    with pytest.raises(InputError, match="no layer 2: this model has one layer, number 1; 0 is"):
        measure_faithfulness(probe, layer=2)
    with pytest.raises(InputError, match="unknown label 'positiv'; did you mean 'positive'"):
        measure_faithfulness(probe, label="positiv")
