"""Next-sentence prediction compared with transformers, and errors for unsupported pairs and models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import regard
from regard.errors import InputError
from regard.inference.masked_lm import predict_next_sentence
from regard.models import Bert, BertConfig
from tests.inference.conftest import Loaded

PAIRS = [
    ("the film was good.", "they love it"),
    ("they love it", "the film was good."),
    ("how long is it?", "no."),
    ("film " * 90, "day " * 100),
    ("film " * 200, "a day"),
]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_equals_transformers(first: str, second: str, bert: Loaded, tiny_bert_folder: Path) -> None:
    from transformers import AutoTokenizer, BertForNextSentencePrediction

    theirs = BertForNextSentencePrediction.from_pretrained(tiny_bert_folder).eval()
    options = {"truncation": "longest_first", "max_length": 128, "return_tensors": "pt"}
    inputs = AutoTokenizer.from_pretrained(tiny_bert_folder)(first, second, **options)
    assert inputs["token_type_ids"].any()
    with torch.no_grad():
        expected = float(theirs(**inputs).logits.softmax(-1)[0, 0])
    found = predict_next_sentence(*bert, first, second)
    assert found.is_next == pytest.approx(expected, abs=1e-5)
    assert found.cut == {90: 65, 200: 77}.get(first.count("film "), 0)


def test_order_and_segments_matter(bert: Loaded) -> None:
    (first, second), (again, turned) = PAIRS[:2]
    assert predict_next_sentence(*bert, first, second).is_next != pytest.approx(
        predict_next_sentence(*bert, again, turned).is_next, abs=1e-3
    )


def test_on_every_device(bert: Loaded, tiny_bert_folder: Path, device: torch.device) -> None:
    there = predict_next_sentence(*regard.load(tiny_bert_folder, device=device), *PAIRS[0])
    assert there.is_next == pytest.approx(predict_next_sentence(*bert, *PAIRS[0]).is_next, abs=1e-4)


def test_training_mode_is_restored(bert: Loaded, tiny_bert_folder: Path) -> None:
    model, _ = regard.load(tiny_bert_folder)
    model.train()
    assert predict_next_sentence(model, bert[1], *PAIRS[0]) == predict_next_sentence(*bert, *PAIRS[0])
    assert model.training


def test_unsupported_pairs_and_models_are_refused(bert: Loaded, gpt: Loaded, roberta: Loaded) -> None:
    with pytest.raises(InputError, match="expected two texts, but the second is empty"):
        predict_next_sentence(*bert, "the film", " ")
    with pytest.raises(InputError, match=r"next-sentence head.*gpt2 model"):
        predict_next_sentence(*gpt, *PAIRS[0])
    with pytest.raises(InputError, match="this roberta model has none; use a pretrained one"):
        predict_next_sentence(*roberta, *PAIRS[0])
    small = BertConfig(vocab_size=200, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    for heads in (["pooler", "mlm_head"], ["nsp_head"]):
        with pytest.raises(InputError, match="this bert model has none"):
            predict_next_sentence(Bert(small, output_heads=heads), bert[1], *PAIRS[0])
    with pytest.raises(InputError, match="has no tokenizer"):
        predict_next_sentence(bert[0], None, *PAIRS[0])
