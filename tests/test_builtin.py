"""The models that come with Regard: complete, small enough, equal in transformers, and as good as their cards say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

import regard
from benchmarks.blanks import BLANKS, answers, read_blanks
from regard.known import DEFAULT, builtin_folder, builtins
from regard.models import Bert
from regard.text import Tokenizer

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"


@pytest.fixture(scope="module")
def loaded() -> tuple[Bert, Tokenizer]:
    model, tokenizer = regard.load(DEFAULT)
    assert isinstance(model, Bert) and tokenizer is not None
    return model, tokenizer


@pytest.mark.parametrize("name", builtins())
def test_it_is_small_and_says_what_it_is(name: str) -> None:
    folder = builtin_folder(name)
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 45e6
    card = (folder / "README.md").read_text(encoding="utf-8")
    for heading in ("Scores", "Text", "Training", "Limits"):
        assert f"## {heading}" in card
    assert "{" not in card, "a figure was not filled in"


def test_the_default_is_what_its_card_says(loaded: tuple[Bert, Tokenizer]) -> None:
    model, tokenizer = loaded
    config = model.config
    assert (config.depth, config.width, config.positions, config.vocabulary) == (8, 384, 512, tokenizer.size)
    assert tokenizer.size >= 16_000 and tokenizer.encode("The END").ids == tokenizer.encode("the end").ids
    figures = json.loads((RESULTS / "regard-bert.json").read_text(encoding="utf-8"))
    found = answers(model, tokenizer, read_blanks(BLANKS))
    assert [answer.rank for answer in found] == [blank["rank"] for blank in figures["blanks"]]
    right = sum(answer.rank is not None for answer in found)
    assert right >= 15
    card = (builtin_folder(DEFAULT) / "README.md").read_text(encoding="utf-8")
    assert f"{right} of 30" in card
    assert f"{figures['words_128']['accuracy']:.1%}" in card
    assert len(re.findall(r"^\| (?:\d+|-) \| .* _", card, flags=re.MULTILINE)) == 30


def test_transformers_reads_it_with_the_same_outputs(loaded: tuple[Bert, Tokenizer]) -> None:
    transformers = pytest.importorskip("transformers")
    model, tokenizer = loaded
    peer = transformers.BertForPreTraining.from_pretrained(builtin_folder(DEFAULT), dtype=torch.float32).eval()
    words = transformers.AutoTokenizer.from_pretrained(builtin_folder(DEFAULT))
    first, second = "In winter the fields are [MASK] with snow.", "Nobody goes out."
    theirs = words(first, second, return_tensors="pt")
    ours = tokenizer.encode(first, second)
    assert theirs["input_ids"][0].tolist() == ours.ids
    with torch.no_grad():
        expected = peer(**theirs)
        hidden = model(theirs["input_ids"], segments=theirs["token_type_ids"])
        assert model.masked is not None and model.pooler is not None and model.next is not None
        torch.testing.assert_close(model.masked(hidden), expected.prediction_logits, atol=1e-4, rtol=1e-4)
        pooled = model.pooler(hidden, regard.nn.Padded())
        torch.testing.assert_close(model.next(pooled), expected.seq_relationship_logits, atol=1e-4, rtol=1e-4)
