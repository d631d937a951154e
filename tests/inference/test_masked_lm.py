"""Blanks compared with transformers: each alone, and jointly by multiplying step by step."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.errors import InputError
from regard.inference.masked_lm import fill_blanks
from regard.models import Bert, BertConfig, Vit, VitConfig
from regard.text import Tokenizer
from tests.inference.conftest import Loaded

TEXT = "they like to _ the film."
TWO = "the _ was so [MASK]!"


@pytest.fixture(scope="module")
def theirs(tiny_bert_folder: Path) -> Any:
    from transformers import BertForMaskedLM

    return BertForMaskedLM.from_pretrained(tiny_bert_folder).eval()


def their_probabilities(theirs: Any, ids: list[int], position: int) -> Tensor:
    with torch.no_grad():
        found: Tensor = theirs(torch.tensor([ids])).logits[0, position].double().softmax(-1)
    return found


def step_by_step(theirs: Any, ids: list[int], token_ids: tuple[int, ...]) -> float:
    """The probability of one assignment, filled in from left to right."""
    row, positions = list(ids), [position for position, number in enumerate(ids) if number == 4]
    total = 1.0
    for position, number in zip(positions, token_ids, strict=True):
        total *= float(their_probabilities(theirs, row, position)[number])
        row[position] = number
    return total


def test_one_blank_equals_transformers(bert: Loaded, theirs: Any, tiny_bert_folder: Path) -> None:
    from transformers import AutoTokenizer, FillMaskPipeline

    # Without a device argument, the pipeline would move the model to a GPU.
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert_folder)
    pipeline = FillMaskPipeline(model=theirs, tokenizer=tokenizer, device="cpu")
    expected = pipeline(TEXT.replace("_", "[MASK]"), top_k=7)
    found = fill_blanks(*bert, TEXT, top=7)
    assert [candidate.id for candidate in found.masks[0]] == [one["token"] for one in expected]
    for candidate, one in zip(found.masks[0], expected, strict=True):
        assert candidate.token == one["token_str"]
        assert candidate.probability == pytest.approx(one["score"], rel=1e-4)
    assert (found.text, found.exact) == (TEXT, True)
    assert [(one.ids, one.tokens, one.probability) for one in found.joint] == [
        ([candidate.id], [candidate.token], candidate.probability) for candidate in found.masks[0]
    ]
    # transformers' pipeline may list special tokens and write them into the text.
    assert found.joint[0].text.startswith("they like to")


def test_probabilities_are_over_the_full_vocabulary(bert: Loaded) -> None:
    found = fill_blanks(*bert, TEXT, top=10_000).masks[0]
    assert len(found) == bert[1].size
    assert sum(candidate.probability for candidate in found) == pytest.approx(1, abs=1e-6)
    probabilities = {candidate.token: candidate.probability for candidate in found}
    assert sorted(probabilities.values(), reverse=True) == list(probabilities.values())
    chosen = fill_blanks(*bert, TEXT, top=1, targets=["Love", "see", "write", "love"]).masks[0]
    assert sorted(candidate.token for candidate in chosen) == ["love", "see", "write"]
    for candidate in chosen:
        assert candidate.probability == pytest.approx(probabilities[candidate.token], rel=1e-9)
    assert chosen == sorted(chosen, key=lambda candidate: -candidate.probability)


def test_single_blanks_are_predicted_with_the_others_masked(bert: Loaded, theirs: Any) -> None:
    _, tokenizer = bert
    ids = tokenizer.encode(TWO.replace("_", "[MASK]")).ids
    positions = [position for position, number in enumerate(ids) if number == tokenizer.mask_token_id]
    found = fill_blanks(*bert, TWO, top=5)
    assert len(found.masks) == len(positions) == 2
    for candidates, position in zip(found.masks, positions, strict=True):
        expected = their_probabilities(theirs, ids, position).topk(5)
        assert [candidate.id for candidate in candidates] == expected.indices.tolist()
        assert [c.probability for c in candidates] == pytest.approx(expected.values.tolist(), rel=1e-4)


def test_targets_together_are_all_combinations(bert: Loaded, theirs: Any) -> None:
    _, tokenizer = bert
    words = ["good", "film", "dull"]
    ids = tokenizer.encode("the [MASK] was [MASK] [MASK]").ids
    found = fill_blanks(*bert, "the _ was _ _", top=100, targets=words)
    token_ids = [tokenizer.id(word) for word in words]
    expected = {chosen: step_by_step(theirs, ids, chosen) for chosen in product(token_ids, repeat=3)}
    assert found.exact
    assert [tuple(one.ids) for one in found.joint] == sorted(expected, key=lambda chosen: -expected[chosen])
    assert [one.probability for one in found.joint] == pytest.approx(sorted(expected.values(), reverse=True), rel=1e-4)
    best = found.joint[0]
    assert best.text == "the {} was {} {}".format(*best.tokens)
    assert len(fill_blanks(*bert, "the _ was _ _", top=1, targets=words).joint) == len(words)
    # The order of filling matters: the result is not the product of the blanks' own probabilities.
    alone = [{c.id: c.probability for c in candidates} for candidates in found.masks]
    assert best.probability != pytest.approx(alone[0][best.ids[0]] * alone[1][best.ids[1]] * alone[2][best.ids[2]])


def test_targets_of_several_pieces_are_filled_from_left_to_right(bert: Loaded, theirs: Any) -> None:
    _, tokenizer = bert
    film, plural = tokenizer.id("film"), tokenizer.id("##s")
    found = fill_blanks(*bert, "the _ was _", targets=["films", "good"])
    twice = tokenizer.encode("the [MASK] [MASK] was [MASK]").ids
    masked = [position for position, number in enumerate(twice) if number == tokenizer.mask_token_id]
    first = their_probabilities(theirs, twice, masked[0])[film]
    second = [film if position == masked[0] else number for position, number in enumerate(twice)]
    expected = float(first * their_probabilities(theirs, second, masked[1])[plural])
    films = next(one for one in found.masks[0] if one.token == "film ##s")
    assert (films.id, films.ids) == (film, [film, plural])
    assert films.probability == pytest.approx(expected, rel=1e-4)
    once = tokenizer.encode("the [MASK] was [MASK]").ids
    good = next(one for one in found.masks[0] if one.token == "good")
    assert good.probability == pytest.approx(float(their_probabilities(theirs, once, masked[0])[good.id]), rel=1e-4)
    assert {one.text for one in found.joint} == {
        "the films was films",
        "the films was good",
        "the good was films",
        "the good was good",
    }
    both = next(one for one in found.joint if one.text == "the films was good")
    assert (both.tokens, both.ids) == (["film ##s", "good"], [film, plural, good.id])
    assert both.probability == pytest.approx(step_by_step(theirs, twice, (film, plural, good.id)), rel=1e-4)


def test_a_small_vocabulary_is_enumerated(tmp_path: Path, randomized: Callable[..., Any]) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "day"]
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    model = randomized(
        Bert(
            BertConfig(
                vocab_size=8,
                hidden_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=16,
                max_position_embeddings=8,
            )
        )
    )
    found = fill_blanks(model, Tokenizer.open(tmp_path), "a _ _", top=64)
    assert found.exact
    assert len({tuple(one.ids) for one in found.joint}) == 64
    assert sum(one.probability for one in found.joint) == pytest.approx(1, abs=1e-6)


def test_the_beam_reports_whether_it_may_be_inexact(bert: Loaded, theirs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = fill_blanks(*bert, "a _ _", top=40).joint
    monkeypatch.setattr("regard.inference.masked_lm.ENUMERATED", 0)
    beam = fill_blanks(*bert, "a _ _", top=40)
    assert not beam.exact  # 40 prefixes cannot rule out that the 41st has a continuation among the best
    ids = bert[1].encode("a [MASK] [MASK]").ids
    for one in beam.joint[:5]:
        assert one.probability == pytest.approx(step_by_step(theirs, ids, (one.ids[0], one.ids[1])), rel=1e-4)
    assert beam.joint[0].probability <= everything[0].probability
    # If the omitted prefixes together are less likely than the last listed result, the result is exact.
    model = Bert(bert[0].config).eval()  # type: ignore[arg-type]
    assert model.mlm_head is not None
    with torch.no_grad():
        model.mlm_head.bias[100:105] += 30.0
    sure = fill_blanks(model, bert[1], "a _ _", top=3)
    assert sure.exact
    assert not fill_blanks(model, bert[1], "a _ _", top=40).exact  # only the first 25 of which are certain
    assert [one.ids for one in sure.joint] == [one.ids for one in _enumerated(model, bert, monkeypatch)]


def _enumerated(model: Bert, bert: Loaded, monkeypatch: pytest.MonkeyPatch) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr("regard.inference.masked_lm.ENUMERATED", 10**6)
        return fill_blanks(model, bert[1], "a _ _", top=3).joint


def test_many_prefixes_are_split_into_batches(bert: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    batched = fill_blanks(*bert, TWO, top=6)
    monkeypatch.setattr("regard.inference.masked_lm.BATCH_TOKENS", {"cpu": 30})
    parts = fill_blanks(*bert, TWO, top=6)
    assert [one.ids for one in parts.joint] == [one.ids for one in batched.joint]
    # Batches change the order of sums: 1.2e-6 was measured with AVX2, and 1e-5 is the documented limit.
    batched_probabilities = [one.probability for one in batched.joint]
    assert [one.probability for one in parts.joint] == pytest.approx(batched_probabilities, rel=1e-5)


def test_an_output_layer_wider_than_the_vocabulary(bert: Loaded) -> None:
    _, tokenizer = bert
    model = Bert(
        BertConfig(
            vocab_size=tokenizer.size + 8,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=32,
        )
    )
    assert model.mlm_head is not None
    with torch.no_grad():
        model.mlm_head.bias[tokenizer.size :] = 5.0
    found = fill_blanks(model, tokenizer, TEXT, top=10_000).masks[0]
    assert len(found) == tokenizer.size
    assert sum(candidate.probability for candidate in found) < 0.5  # the rest belongs to ids without a token


def test_training_mode_is_restored_and_dropout_is_off(bert: Loaded, tiny_bert_folder: Path) -> None:
    model, _ = regard.load(tiny_bert_folder)
    model.train()
    assert fill_blanks(model, bert[1], TEXT) == fill_blanks(*bert, TEXT)
    assert model.training
    assert not bert[0].training


def test_on_every_device(bert: Loaded, tiny_bert_folder: Path, device: torch.device) -> None:
    there = fill_blanks(*regard.load(tiny_bert_folder, device=device), TWO, top=5)
    here = fill_blanks(*bert, TWO, top=5)
    assert [one.ids for one in there.joint] == [one.ids for one in here.joint]
    assert [one.probability for one in there.joint] == pytest.approx([one.probability for one in here.joint], rel=1e-3)
    words = fill_blanks(*regard.load(tiny_bert_folder, device=device), TWO, targets=["good", "bad"])
    assert len(words.joint) == 4


def test_distilbert_and_roberta_fill_blanks(bert: Loaded, roberta: Loaded) -> None:
    _, tokenizer = bert
    config = BertConfig(
        family="distilbert",
        vocab_size=tokenizer.size,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
        type_vocab_size=0,
    )
    assert len(fill_blanks(Bert(config), tokenizer, TEXT).masks[0]) == 10
    found = fill_blanks(*roberta, "the _ was good, the <mask>", targets=["film", "day"])
    assert {candidate.token for candidate in found.masks[0]} == {"Ġfilm", "Ġday"}
    assert {one.text for one in found.joint} >= {"the film was good, the day", "the day was good, the day"}


def test_the_longest_text_that_fits(bert: Loaded) -> None:
    assert len(fill_blanks(*bert, "film " * 125 + "_").masks) == 1


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("no blank", {}, "expected a text with a blank, got 'no blank'; mark it with _"),
        ("film " * 130 + "_", {}, "the text has 133 tokens .* reads 128; .* by 5"),
        (TEXT, {"targets": ["film", "ß€"]}, "'ß€' is .UNK."),
        ("_ _ _ _", {"targets": ["film", "films", "good", "day", "dull"]}, "make 625 combinations"),
        ("film " * 125 + "_", {"targets": ["films"]}, "the text has 129 tokens"),
        (TEXT, {"targets": []}, "targets is empty"),
        (TEXT, {"top": 0}, "top is 0"),
    ],
)
def test_invalid_texts_and_options(text: str, options: dict[str, Any], message: str, bert: Loaded) -> None:
    with pytest.raises(InputError, match=message):
        fill_blanks(*bert, text, **options)


def test_unsupported_models_are_refused(bert: Loaded, gpt: Loaded, roberta: Loaded) -> None:
    _, tokenizer = bert
    bare = Bert(
        BertConfig(vocab_size=200, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16),
        output_heads=["pooler"],
    )
    with pytest.raises(InputError, match=r"bert model .*tuned for a task, .*; take the pretrained"):
        fill_blanks(bare, tokenizer, TEXT)
    with pytest.raises(InputError, match=r"masked-word head, .*gpt2 model .*none; take a BERT"):
        fill_blanks(*gpt, TEXT)
    image = Vit(VitConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16))
    with pytest.raises(InputError, match="this vit model has no tokenizer"):
        fill_blanks(image, None, TEXT)
    with pytest.raises(InputError, match=r"needs a mask token, .*bert model's tokenizer"):
        fill_blanks(bert[0], gpt[1], TEXT)
