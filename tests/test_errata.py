"""Contradictions in the decks or with the literature (docs/errata.md): one test per line shows what Regard does."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from regard.inference.embedding.engine import LayerSelection
from regard.lessons.reverse import create_dataset, evaluate, new_model, one_hot_decode
from regard.models import Bert, BertConfig, Seq2Seq, Seq2SeqConfig
from regard.models.family import known_checkpoints
from regard.nn.embedding import sinusoids
from regard.nn.masks import Padded
from regard.nn.stack import ScalarMix
from regard.text import Tokenizer

DOCS = Path(__file__).resolve().parents[1] / "docs"


def small_bert() -> Bert:
    torch.manual_seed(0)
    return Bert(
        BertConfig(
            vocab_size=100,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=40,
        )
    ).eval()


def test_p1_one_hot_rows_have_one_column_per_digit() -> None:
    data = create_dataset(20, 5, 4, 10, held_out=[(2, 8, 1, 6)])
    row = data.X_test[0]
    assert row.shape == (4, 10)
    assert row[1].tolist() == [0, 0, 0, 0, 0, 0, 0, 0, 1, 0]
    assert one_hot_decode(data.y_test[0]) == [6, 1, 8, 2]


def test_p2_digits_run_from_zero_to_one_less_than_the_features() -> None:
    data = create_dataset(2000, 200, 4, 10)
    digits = torch.cat([data.X_train, data.X_test]).argmax(-1)
    assert (int(digits.min()), int(digits.max())) == (0, 9)


def test_p3_the_second_sentence_follows_the_first(shared_data: Callable[[str], Path]) -> None:
    tokenizer = Tokenizer.open(shared_data("vocab-bert-base-uncased/vocab.txt").parent)
    pair = tokenizer.encode("the first", "and then the second")
    assert pair.tokens == ["[CLS]", "the", "first", "[SEP]", "and", "then", "the", "second", "[SEP]"]
    assert pair.segments == [0, 0, 0, 0, 1, 1, 1, 1, 1]
    # The first logit of the head means "B follows A", as in BERT's checkpoints (parity: tests/parity).
    assert small_bert().nsp_head is not None and small_bert().nsp_head.out_features == 2  # type: ignore[union-attr]


def test_p4_the_first_frequency_is_one() -> None:
    encoded = sinusoids(torch.arange(50), 8)
    torch.testing.assert_close(encoded[:, 0], torch.arange(50).float().sin())
    torch.testing.assert_close(encoded[:, 3], (torch.arange(50) / 10000 ** (2 / 8)).cos())


def test_p5_split_encodings_are_a_permutation_of_interleaved_ones() -> None:
    interleaved = sinusoids(torch.arange(50), 64)
    halves = sinusoids(torch.arange(50), 64, arrangement="halves")
    order = [*range(0, 64, 2), *range(1, 64, 2)]
    assert torch.equal(halves, interleaved[:, order])
    assert not torch.equal(halves, interleaved)


def test_p6_layer_norm_has_gain_bias_and_epsilon() -> None:
    norm = small_bert().encoder.layers[0].attention_residual.norm  # type: ignore[union-attr]
    assert norm.eps == 1e-12
    norm.weight.data.fill_(3.0)
    norm.bias.data.fill_(5.0)
    x = torch.randn(7, 16)
    plain = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    torch.testing.assert_close(norm(x), 3 * plain + 5)


def test_p7_both_decoder_recipes_exist_and_differ() -> None:
    widths = {}
    for recipe in ("luong", "deck"):
        model = Seq2Seq(Seq2SeqConfig(score="dot", recipe=recipe))  # type: ignore[arg-type]
        widths[recipe] = model.decoder.cell.cells[0].input_size
        assert model(torch.randn(2, 4, 10), steps=4).shape == (2, 4, 10)
        assert (model.decoder.join is not None) == (recipe == "luong")
    assert widths == {"luong": 10, "deck": 10 + 16}


def test_p8_padding_is_masked_unless_disabled_as_in_the_deck() -> None:
    model, ids = small_bert(), torch.randint(1, 100, (1, 5))
    padded = torch.cat([ids, torch.zeros(1, 9, dtype=torch.long)], dim=1)
    alone = model(ids)
    masked = model(padded, Padded(padded != 0))[:, :5]
    as_in_deck = model(padded)[:, :5]
    torch.testing.assert_close(masked, alone, atol=1e-5, rtol=0)
    assert (as_in_deck - alone).abs().max() > 1e-3


def test_p9_the_first_layer_is_the_embeddings_and_sums_are_unweighted() -> None:
    assert LayerSelection.parse("0", 13).chosen == (0,)
    assert LayerSelection.parse("sum(1:)", 13).chosen == tuple(range(1, 13))
    assert LayerSelection.parse("concat(-4:)", 13).chosen == (9, 10, 11, 12)
    states = [torch.randn(3, 4) for _ in range(13)]
    total = LayerSelection.parse("sum(1:)", 13)
    torch.testing.assert_close(total.join(list(total.select(states))), torch.stack(states[1:]).sum(0))
    mix = ScalarMix(12)
    mix.s.data = torch.randn(12)
    assert not torch.allclose(mix(states[1:]), torch.stack(states[1:]).mean(0))


def test_p10_tokens_are_masked_not_words(shared_data: Callable[[str], Path]) -> None:
    tokenizer = Tokenizer.open(shared_data("vocab-bert-base-uncased/vocab.txt").parent)
    encoded = tokenizer.encode("rumination", add_special_tokens=False)
    assert len(encoded.ids) > 1 and set(encoded.words) == {0}


def test_p11_the_results_are_for_squad_without_unanswerable_questions(shared_data: Callable[[str], Path]) -> None:
    with gzip.open(shared_data("squad/squaddev_v1.1.json.gz")) as file:
        articles = json.load(file)["data"]
    questions = [q for article in articles for paragraph in article["paragraphs"] for q in paragraph["qas"]]
    assert len(questions) > 10_000
    assert all(q["answers"] for q in questions)
    assert not any(q.get("is_impossible", False) for q in questions)


def test_p12_the_hidden_units_of_the_deck_are_the_hidden_size_not_the_ffn() -> None:
    base, layer = BertConfig(), small_bert().encoder.layers[0]
    assert (base.hidden_size, base.intermediate_size, base.hidden_act) == (768, 3072, "gelu")
    assert (layer.ffn.inner.in_features, layer.ffn.inner.out_features) == (16, 32)  # type: ignore[union-attr]
    large = next(known for known in known_checkpoints() if known.name.endswith("bert-large-uncased"))
    assert (large.shape["hidden_size"], large.shape["intermediate_size"]) == (1024, 4096)


def test_p13_the_accuracy_of_the_deck_is_per_token() -> None:
    data = create_dataset(50, 200, 4, 10)
    measures = evaluate(new_model(data), data)
    digits, sequences = data.y_test.shape[0] * data.y_test.shape[1], data.y_test.shape[0]
    assert math.isclose(98.125 / 100 * digits, 785) and not (98.125 / 100 * sequences).is_integer()
    right = (measures.answers == data.y_test.argmax(-1)).float()
    assert math.isclose(measures.test.token_accuracy, 100 * float(right.mean()), abs_tol=1e-3)
    assert math.isclose(measures.test.sequence_accuracy, 100 * float(right.all(1).float().mean()), abs_tol=1e-3)


def test_p14_one_glossary_entry_for_three_names() -> None:
    entries = [line for line in (DOCS / "glossary.md").read_text().split("\n**") if "-supervised" in line]
    assert len(entries) == 1
    assert all(name in entries[0] for name in ("self-supervised", "semi-supervised", "unsupervised"))


def test_p15_the_longest_sentence_has_59_or_67_tokens(shared_data: Callable[[str], Path]) -> None:
    tokenizer = Tokenizer.from_vocabulary(shared_data("vocab-bert-base-uncased/vocab.txt"))
    lines = shared_data("sst2/train.tsv").read_text(encoding="utf-8").splitlines()
    ids, _ = tokenizer.ids_batch([line.split("\t")[0] for line in lines])
    assert (len(ids), max(map(len, ids[:2000])), max(map(len, ids))) == (6920, 59, 67)


@pytest.mark.parametrize("number", range(1, 16))
def test_every_line_names_its_test(number: int) -> None:
    rows = re.findall(rf"^\| P{number} \|.*$", (DOCS / "errata.md").read_text(), re.MULTILINE)
    assert len(rows) == 1
    names = re.findall(r"`(test_\w+)`", rows[0])
    assert names and all(name in globals() for name in names)
