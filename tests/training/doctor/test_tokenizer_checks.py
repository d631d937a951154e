"""Casing and truncation, with small vocabularies and rows that are too short."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from regard.data.examples import Answer, ChoiceExample, QuestionExample, TaggedExample, TextExample
from regard.tasks.inputs import InputBuilder
from regard.tasks.multiple_choice import MultipleChoice
from regard.tasks.question_answering import QuestionAnswering
from regard.tasks.text_classification import PairClassification, TextClassification
from regard.tasks.token_classification import TokenClassification
from regard.text import Tokenizer
from regard.training.doctor.data import casing, truncation
from tests.inference.folders import byte_level

NAMES = ("London", "Paris", "Rome", "Berlin", "Madrid", "Vienna", "Oslo", "Prague", "Athens", "Lisbon", "The", "In")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = tuple("abcdefghijklmnopqrstuvwxyz")


def wordpiece(folder: Path, words: Sequence[str], *, lowercase: bool) -> Tokenizer:
    folder.mkdir()
    tokens = [*SPECIAL, *words, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lowercase}))
    return Tokenizer.open(folder)


@pytest.mark.parametrize(
    ("capitals", "lowercase", "status"),
    [(True, True, "error"), (True, False, "ok"), (False, True, "ok"), (False, False, "error")],
)
def test_casing_of_vocabulary_and_tokenizer(capitals: bool, lowercase: bool, status: str, tmp_path: Path) -> None:
    words = NAMES if capitals else [name.lower() for name in NAMES]
    found = casing(wordpiece(tmp_path / "t", words, lowercase=lowercase), [" ".join(NAMES)])
    assert found.status == status
    if capitals and lowercase:
        assert f"12 of {5 + 12 + 52} tokens of its vocabulary are capitalized words, such as 'London'" in found.evidence
    elif not capitals:
        assert found.evidence.startswith(f"{0 if lowercase else 12} of 12 capitalized words")


def test_a_vocabulary_with_capitals_is_wrong_for_any_text(tmp_path: Path) -> None:
    assert casing(wordpiece(tmp_path / "t", NAMES, lowercase=True), ["no capitals here"]).status == "error"


def test_half_of_the_words_may_be_unknown(tmp_path: Path) -> None:
    tokenizer = wordpiece(tmp_path / "t", [*NAMES, "film", "day"], lowercase=False)
    assert casing(tokenizer, ["London Film Paris Day " * 5]).status == "ok"
    assert casing(tokenizer, ["London Film Paris Day Film " * 5]).status == "error"
    assert casing(tokenizer, ["Film Day Film"]).evidence == "the texts have hardly any capitalized words"


def test_a_byte_level_vocabulary_encodes_everything(tmp_path: Path) -> None:
    tokenizer = byte_level(tmp_path / "t", specials=["<|endoftext|>"], kind="gpt2")
    assert casing(tokenizer, ["Went By Car To Rome And Paris With Her Old Dog"]).status == "ok"


@pytest.fixture(scope="module")
def tokenizer(tiny_bert_folder: Path) -> Tokenizer:
    return Tokenizer.open(tiny_bert_folder)


def rows(tokenizer: Tokenizer, limit: int) -> InputBuilder:
    return InputBuilder(tokenizer, family="bert", max_length=limit)


@pytest.mark.parametrize(("long", "status"), [(0, "ok"), (9, "ok"), (10, "warning"), (49, "warning"), (50, "error")])
def test_truncation_thresholds_of_ten_and_fifty_percent(long: int, status: str, tokenizer: Tokenizer) -> None:
    texts = [
        TextExample("the film was good " * (4 if index < long else 1), None, "ab"[index % 2]) for index in range(100)
    ]
    found = truncation(TextClassification.from_examples(texts), texts, rows(tokenizer, 16))
    fraction = 2 * long / (18 * long + 6 * (100 - long))
    assert found.status == status
    expected = f"{long} of 100 texts lose more than a tenth at 16 tokens; {fraction:.1%} of all tokens are cut"
    assert found.evidence == expected
    assert ("training.max_length" in found.remedy) == (status != "ok")


def test_unknown_labels_do_not_matter(tokenizer: Tokenizer) -> None:
    texts = [TextExample("the film", "was good", "new")] * 600
    found = truncation(PairClassification(["a", "b"]), texts, rows(tokenizer, 16))
    assert found.status == "ok" and found.evidence.startswith("0 of a sample of 500 ")


def test_a_truncated_choice_counts_once_whatever_its_endings(tokenizer: Tokenizer) -> None:
    choices = [ChoiceExample("the film was good", ("a day " * 4, "a day " * 5), 0)] * 10
    for length, lose, share in ((16, 0, "3.1%"), (12, 10, "25.0%")):
        evidence = truncation(MultipleChoice(), choices, rows(tokenizer, length)).evidence
        assert evidence.startswith(f"{lose} of 10 texts") and f"{length} tokens" in evidence and share in evidence


def test_long_tagged_texts_lose_only_words_without_tokens(tokenizer: Tokenizer) -> None:
    words = ["film"] * 99 + ["\u200b"]  # a character that the tokenizer drops
    text = " ".join(words)
    spans, start = [], 0
    for word in words:
        spans.append((start, start + len(word)))
        start += len(word) + 1
    whole = TaggedExample(text, tuple(spans), ("B-X",) * 99 + ("O",))
    found = truncation(TokenClassification.from_examples([whole]), [whole], rows(tokenizer, 16))
    assert found.status == "ok" and found.evidence.startswith("0 of 99 tagged words")
    lost = truncation(
        TokenClassification.from_examples([whole]), [replace(whole, tags=("B-X",) * 100)], rows(tokenizer, 16)
    )
    assert lost.status == "warning" and lost.evidence.startswith("1 of 100 tagged words")
    bare = truncation(
        TokenClassification.from_examples([whole]), [replace(whole, tags=("O",) * 100)], rows(tokenizer, 16)
    )
    assert bare.status == "skipped"


def test_an_answer_longer_than_a_window_is_reported(tokenizer: Tokenizer) -> None:
    context = "the film was good and " * 10
    short = QuestionExample("1", "what?", context, (Answer("film was", context.rindex("film was")),))
    long = QuestionExample("2", "what?", context, (Answer(context.strip(), 0),))
    task = QuestionAnswering.from_examples([short])
    assert truncation(task, [short] * 20, rows(tokenizer, 24)).evidence.startswith("0 of 20 answers do not fit")
    found = truncation(task, [*[short] * 19, long], rows(tokenizer, 24))
    assert found.status == "warning"
    assert found.evidence.startswith("1 of 20 answers") and "24 tokens" in found.evidence
    assert truncation(task, [short, long], rows(tokenizer, 24)).status == "error"
    assert truncation(task, [short, long], rows(tokenizer, 128)).status == "ok"
    assert truncation(task, [replace(short, answers=(), answerable=False)], rows(tokenizer, 24)).status == "skipped"
