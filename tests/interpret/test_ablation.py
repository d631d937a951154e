"""Ablation: heads and layers by name, effects against the formulas, and a sweep against one head at a time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy

import regard
from regard.errors import InputError
from regard.interpret.ablation import (
    ablate,
    kl_divergence,
    output_distance,
    parse_heads,
    parse_layers,
    skip_layers,
    sweep_heads,
)
from regard.interpret.attribution.probe import Probe, pretrained_probe, task_probe
from regard.nn.masks import Padded
from regard.nn.recording import ablate_heads, record
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.tasks.regression import Regression
from regard.tasks.text_classification import TextClassification
from regard.text import Tokenizer
from tests.inference.folders import tiny_gpt
from tests.interpret.classifiers import deciding


@pytest.fixture(scope="module")
def masked_probe(tiny_bert_folder: Path) -> Probe:
    return pretrained_probe(*regard.load(tiny_bert_folder), "the _ was a [MASK] film")


@pytest.fixture(scope="module")
def next_token_probe(tmp_path_factory: pytest.TempPathFactory) -> Probe:
    return pretrained_probe(*regard.load(tiny_gpt(tmp_path_factory.mktemp("gpt"))), "the good film")


def test_head_names() -> None:
    assert parse_heads("3.1, 1.*,3.1", num_layers=4, num_heads=2) == ((1, 0), (1, 1), (3, 1))
    assert parse_heads("*.0", num_layers=3, num_heads=2) == ((1, 0), (2, 0), (3, 0))
    assert parse_heads("-1.1,4.1", num_layers=4, num_heads=2) == ((4, 1),)
    assert parse_layers("3, 1,-1", num_layers=3) == (1, 3)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("3", "a head is named '3'; expected LAYER.HEAD, from layer 1 and head 0"),
        ("1.2.3", "a head is named"),
        ("1.-1", "a head is named"),
        ("5.0", "no layer 5: this model has layers 1 to 4; 0 is the embeddings, which have no attention"),
        ("0.0", "no layer 0: this model has layers 1 to 4; 0 is the embeddings, which have no attention"),
        ("-5.0", "no layer -5"),
        ("1.2", "no head 2: this model has heads 0 to 1"),
        (" , ", "no head in"),
    ],
)
def test_invalid_head_names_are_rejected(names: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_heads(names, num_layers=4, num_heads=2)


@pytest.mark.parametrize("names", ["", "x", "1.0", "-5", "0", "5"])
def test_invalid_layer_names_are_rejected(names: str) -> None:
    with pytest.raises(InputError, match="layer"):
        parse_layers(names, num_layers=4)


@given(st.sets(st.tuples(st.integers(1, 12), st.integers(0, 11)), min_size=1))
def test_head_names_round_trip(heads: set[tuple[int, int]]) -> None:
    names = ",".join(f"{layer}.{head}" for layer, head in heads)
    assert parse_heads(names, num_layers=12, num_heads=12) == tuple(sorted(heads))


def test_removed_heads_equal_ablate_heads(masked_probe: Probe) -> None:
    heads = [(1, 1), (2, 0), (2, 3)]
    found = ablate(masked_probe, heads=heads, top=3)
    model = masked_probe.encoder
    with torch.no_grad():
        before = model.mlm_head(model(masked_probe.ids[None], Padded()))[0, [2, 5]].softmax(-1)
        with record(model, edit=ablate_heads(heads)):
            after = model.mlm_head(model(masked_probe.ids[None], Padded()))[0, [2, 5]].softmax(-1)
    assert found.heads == tuple(heads)
    assert found.layers == ()
    for effect, old, new in zip(found.effects, before.double().numpy(), after.double().numpy(), strict=True):
        assert effect.divergence == pytest.approx(entropy(old, new), rel=1e-3)
        assert effect.distance == pytest.approx(abs(old - new).sum() / 2, rel=1e-4)
        assert effect.before == masked_probe.outputs[old.argmax()]
        assert effect.after == masked_probe.outputs[new.argmax()]
        order = abs(new - old).argsort()[::-1][:3]
        assert [one.output for one in effect.changes] == [masked_probe.outputs[index] for index in order]
        assert [one.after for one in effect.changes] == pytest.approx(new[order].tolist(), rel=1e-4)
        assert [one.before for one in effect.likeliest] == pytest.approx(sorted(old)[:-4:-1], rel=1e-4)


def test_a_removed_layer_returns_its_input(masked_probe: Probe, next_token_probe: Probe) -> None:
    bert, gpt = masked_probe.encoder, next_token_probe.encoder
    with torch.no_grad():
        x = bert.embedding(masked_probe.ids[None], Padded())
        alone = bert.mlm_head(bert.encoder.layers[1](x, Padded()))[0, [2, 5]].softmax(-1)
        y = gpt.embedding(next_token_probe.ids[None], Padded())
        last = gpt.logits(gpt.decoder.norm(gpt.decoder.layers[0](y, Padded())))[0, -1].softmax(-1)
    found = ablate(masked_probe, layers=[1], heads=[(1, 2)], top=1).effects
    assert [effect.after for effect in found] == [masked_probe.outputs[index] for index in alone.argmax(-1).tolist()]
    for effect, row in zip(found, alone, strict=True):
        now = ablate(masked_probe, layers=[1], top=len(row)).effects[found.index(effect)]
        after = {one.output: one.after for one in now.likeliest}
        assert [after[name] for name in masked_probe.outputs] == pytest.approx(row.tolist(), abs=1e-6)
    effect = ablate(next_token_probe, layers=[-1], top=len(last)).effects[0]
    after = {one.output: one.after for one in effect.likeliest}
    assert [after[name] for name in next_token_probe.outputs] == pytest.approx(last.tolist(), abs=1e-6)


def test_other_threads_keep_their_layers(masked_probe: Probe) -> None:
    found: list[torch.Tensor] = []

    def compute_in_thread() -> None:
        with masked_probe.evaluation_mode():
            found.append(masked_probe.logits().clone())

    compute_in_thread()
    with skip_layers(masked_probe.encoder, [1, 2]):
        thread = threading.Thread(target=compute_in_thread)
        thread.start()
        thread.join()
        compute_in_thread()
    compute_in_thread()
    whole, beside, inside, after = found
    assert torch.equal(whole, beside)
    assert torch.equal(whole, after)
    assert not torch.allclose(whole, inside)
    assert not any(block._forward_hooks for block in masked_probe.encoder.encoder.layers)


@pytest.mark.parametrize("which", ["masked_probe", "next_token_probe"])
def test_a_sweep_equals_one_ablation_per_head(
    which: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe: Probe = request.getfixturevalue(which)
    # Three copies at a time: the eight heads need several batches.
    monkeypatch.setattr("regard.interpret.ablation.BATCH_TOKENS", {"cpu": 3 * len(probe.ids)})
    found = sweep_heads(probe)
    assert {(one.layer, one.head) for one in found.ranked} == {(i, j) for i in (1, 2) for j in range(4)}
    assert [one.strength for one in found.ranked] == sorted((one.strength for one in found.ranked), reverse=True)
    for one in found.ranked:
        effects = ablate(probe, heads=[(one.layer, one.head)]).effects
        assert one.strength == pytest.approx(sum(e.strength for e in effects) / len(effects), rel=1e-3, abs=1e-7)
        assert one.distance == pytest.approx(sum(e.distance for e in effects) / len(effects), rel=1e-3, abs=1e-7)
        assert one.changed == tuple(e.target for e in effects if e.before != e.after)


def test_decisive_head_ranks_first(tiny_bert_folder: Path) -> None:
    fine_tuned = deciding(Tokenizer.open(tiny_bert_folder), 3, unused_head=True)
    probe = task_probe(fine_tuned, "it is a good day for them")
    ranked = sweep_heads(probe).ranked
    # The first head outputs nothing; without the second, both classes are equally likely.
    assert [(one.layer, one.head) for one in ranked] == [(1, 1), (1, 0)]
    assert ranked[0].distance > 0.1
    assert ranked[1].distance < 0.01
    effect = ablate(probe, heads=[(1, 1)]).effects[0]
    assert (effect.target, effect.before) == ("text", "positive")
    assert {one.output for one in effect.changes} == {"negative", "positive"}
    assert effect.changes[0].before - effect.changes[0].after == pytest.approx(
        effect.changes[1].after - effect.changes[1].before
    )


def test_multi_label_and_regression(tiny_bert_folder: Path) -> None:
    model, tokenizer = regard.load(tiny_bert_folder)
    assert tokenizer is not None
    several = TextClassification(["a", "b"], multi_label=True)
    probe = task_probe(
        FineTunedModel(several, EncoderWithHead.from_encoder(model, several).eval(), tokenizer, 32), "the film"
    )
    before, after = torch.tensor([0.0, 2.0]), torch.tensor([1.0, 2.0])
    p, q = 0.5, 1 / (1 + torch.e**-1)
    apart = kl_divergence(probe, before, after)
    assert apart is not None
    assert apart.item() == pytest.approx(entropy([p, 1 - p], [q, 1 - q]))
    assert output_distance(probe, before, after).item() == pytest.approx(q - p)

    regress = Regression(0.0, 1.0)
    value = task_probe(
        FineTunedModel(regress, EncoderWithHead.from_encoder(model, regress).eval(), tokenizer, 32), "the film"
    )
    effect = ablate(value, layers=[1, 2]).effects[0]
    assert effect.divergence is None
    (change,) = effect.changes
    assert effect.distance == pytest.approx(abs(change.after - change.before))
    assert effect.strength == effect.distance > 0
    assert sweep_heads(value).measure == "change"


def test_invalid_arguments_are_rejected(masked_probe: Probe) -> None:
    with pytest.raises(InputError, match="no layer 3: this model has layers 1 to 2"):
        ablate(masked_probe, heads=[(3, 0)])
    with pytest.raises(InputError, match="top is 0"):
        regard.ablate("the _", top=0)
