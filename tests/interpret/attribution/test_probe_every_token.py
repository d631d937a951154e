"""Predictions at every token: each equals the prediction at that position alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import regard
from regard.errors import InputError
from regard.inference.load_model import load_model
from regard.interpret.ablation import ablate, sweep_heads
from regard.interpret.attribution.attributions import gradient_times_input
from regard.interpret.attribution.probe import (
    MAX_MASKED_TOKENS,
    pretrained_probe,
    probe_model,
    probe_modes,
    subsample_targets,
)
from regard.nn.masks import Padded
from regard.tasks.fine_tuned_model import save_fine_tuned
from regard.text import Tokenizer
from tests.inference.folders import tiny_gpt
from tests.interpret.classifiers import deciding

Pair = tuple[nn.Module, Tokenizer | None]
TEXT = "the good film was a dull _ for them"
WORDS = TEXT.split()


@pytest.fixture(scope="module")
def bert(tiny_bert_folder: Path) -> Pair:
    return regard.load(tiny_bert_folder)


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return regard.load(tiny_gpt(tmp_path_factory.mktemp("gpt")))


def test_masking_in_turn_equals_masking_each_word(bert: Pair) -> None:
    probe = pretrained_probe(*bert, TEXT, at="masked")
    assert (probe.positions, probe.rows_per_copy) == (tuple(range(1, 10)), 9)
    assert probe.targets[1] == "2 good" and probe.targets[6] == "7 [MASK]"
    with probe.evaluation_mode():
        found = probe.logits()[0]
        assert found.shape == (9, len(probe.outputs))
        for index in range(9):
            words = [("_" if number == index else word) for number, word in enumerate(WORDS)]
            alone = pretrained_probe(*bert, " ".join(words))
            torch.testing.assert_close(found[index], alone.logits()[0, alone.positions.index(index + 1)])


def test_unmasked_predictions_use_one_forward_pass(bert: Pair) -> None:
    model, tokenizer = bert
    assert tokenizer is not None
    probe = pretrained_probe(*bert, "the good film", at="plain")
    ids = torch.tensor([tokenizer.encode("the good film").ids])
    with torch.no_grad():
        expected = model.mlm_head(model(ids, Padded()))[0, 1:-1]
    with probe.evaluation_mode():
        torch.testing.assert_close(probe.logits()[0], expected)


def test_gpt_predicts_the_next_token_at_each_position(gpt: Pair) -> None:
    probe = pretrained_probe(*gpt, "the film day", at="plain")
    tokenizer = gpt[1]
    assert tokenizer is not None
    ids = probe.ids.tolist()
    assert probe.positions == tuple(range(1, len(ids) + 1))
    assert probe.targets[-1] == "next token"
    with probe.evaluation_mode():
        found = probe.logits()[0]
        for count in range(1, len(ids) + 1):
            alone = pretrained_probe(*gpt, tokenizer.decode(ids[:count]))
            assert alone.ids.tolist() == ids[:count]
            torch.testing.assert_close(found[count - 1], alone.logits()[0, 0])


@pytest.mark.parametrize("at", ["masked", "plain"])
def test_a_sweep_equals_one_ablation_per_head(bert: Pair, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        regard.interpret.ablation.BATCH_TOKENS, "cpu", 3 * 9 * 11
    )  # several copies per batch, several batches
    probe = pretrained_probe(*bert, TEXT, at=at)
    found = sweep_heads(probe)
    assert len(found.ranked) == 8
    for one in found.ranked:
        effects = ablate(probe, heads=[(one.layer, one.head)]).effects
        assert one.strengths == pytest.approx([effect.strength for effect in effects], rel=1e-4, abs=1e-7)
        assert one.strength == pytest.approx(sum(one.strengths) / 9)
        assert one.after == tuple(effect.after for effect in effects)
        assert one.changed == tuple(effect.target for effect in effects if effect.before != effect.after)


def test_successors_are_the_likeliest_outputs_after_ablation(bert: Pair) -> None:
    probe = pretrained_probe(*bert, TEXT, at="masked")
    for effect in ablate(probe, heads=[(1, 0), (2, 1)], layers=[2], top=4).effects:
        assert effect.successors[0].output == effect.after
        after = [one.after for one in effect.successors]
        assert after == sorted(after, reverse=True) and len(after) == 4
        assert all(after[-1] >= one.after for one in effect.likeliest if one not in effect.successors)


def test_subsampled_targets_are_evenly_spaced(bert: Pair) -> None:
    probe = pretrained_probe(*bert, TEXT, at="masked")
    few = subsample_targets(probe, 3)
    assert few.positions == (1, 4, 7) and few.targets == tuple(probe.targets[i] for i in (0, 3, 6))
    with probe.evaluation_mode():
        torch.testing.assert_close(few.logits()[0], probe.logits()[0, [0, 3, 6]])
    assert subsample_targets(probe, 9) is probe
    plain = pretrained_probe(*bert, TEXT, at="plain")
    assert subsample_targets(plain, 3) is plain


def test_models_by_name(tiny_bert_folder: Path, tmp_path: Path) -> None:
    assert probe_model(load_model(tiny_bert_folder), TEXT).targets == ("blank",)
    assert len(probe_model(load_model(tiny_bert_folder), TEXT, at="masked").targets) == 9
    save_fine_tuned(deciding(Tokenizer.open(tiny_bert_folder), 1), tmp_path / "task")
    assert probe_model(load_model(tmp_path / "task"), "a good day").outputs == ("negative", "positive")
    with pytest.raises(InputError, match="predicts its labels, not every token"):
        probe_model(load_model(tmp_path / "task"), "a good day", at="plain")


def test_invalid_input_is_rejected(bert: Pair, gpt: Pair) -> None:
    assert (probe_modes(bert[0]), probe_modes(gpt[0])) == (("masked", "plain", "blanks"), ("plain", "blanks"))
    with pytest.raises(InputError, match="'masked' is for a BERT"):
        pretrained_probe(*gpt, "the film", at="masked")
    with pytest.raises(InputError, match="did you mean 'masked'"):
        pretrained_probe(*bert, TEXT, at="maskd")
    with pytest.raises(InputError, match="a second text is for a fine-tuned model"):
        pretrained_probe(*bert, TEXT, "second", at="plain")
    with pytest.raises(InputError, match="the text is empty"):
        pretrained_probe(*bert, "  ", at="plain")
    with pytest.raises(InputError, match="shorten it"):
        pretrained_probe(*bert, "a " * (MAX_MASKED_TOKENS + 1), at="masked")
    with pytest.raises(ValueError, match="read by its ids"):
        gradient_times_input(pretrained_probe(*bert, TEXT, at="masked"))
