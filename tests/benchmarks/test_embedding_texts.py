"""Texts for the embedding model: many kinds, each once, reproducible, and none of an evaluation set."""

from __future__ import annotations

import gzip
import json
import random
import zipfile
from pathlib import Path

import pytest

from benchmarks.embedding_texts import Excluded, caption, paragraph_texts, plural, write_texts

PARAGRAPHS = [
    "The river begins in the mountains and flows to the sea. Many towns lie on its banks. It floods in spring! "
    f"People who live there, about {number}, have built walls. They hold back the water in most years."
    for number in range(40)
]
SECRET = "Nobody who reads this sentence may ever find its words again. Never. It is kept for the evaluation of models."


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    documents = ["The river\n" + "\n".join(PARAGRAPHS[start : start + 4]) for start in range(0, 40, 4)]
    path = tmp_path / "corpus.txt"
    path.write_text("\n\n".join([*documents, f"A secret\n{SECRET}"]) + "\n", encoding="utf-8")
    with zipfile.ZipFile(tmp_path / "pairs.zip", "w") as archive:
        archive.writestr("deu.txt", "Is it cold?\tIst es kalt?\nA man is playing a guitar.\tEin Mann.\n" + "x\ty\n" * 9)
        archive.writestr("_about.txt", "about")
    squad = {"data": [{"paragraphs": [{"context": SECRET, "qas": [{"question": "What is the river?"}]}]}]}
    (tmp_path / "squad.json.gz").write_bytes(gzip.compress(json.dumps(squad).encode()))
    (tmp_path / "sts.csv").write_text("genre\t1.0\tA man is playing a guitar.\tA man plays.\n", encoding="utf-8")
    return path


def test_texts_are_distinct_reproducible_and_not_evaluated_on(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.embedding_texts.NUM_CAPTIONS", 50)
    folder = corpus.parent
    exclude = [folder / "squad.json.gz", folder / "sts.csv"]
    for name in ("one.txt", "two.txt"):
        count = write_texts([corpus], [folder / "pairs.zip"], folder / name, exclude=exclude, processes=1)
    texts = (folder / "one.txt").read_text(encoding="utf-8").splitlines()
    assert texts == (folder / "two.txt").read_text(encoding="utf-8").splitlines()
    assert len(set(texts)) == len(texts) == count > 150
    assert "Is it cold?" in texts and "A man is playing a guitar." not in texts
    assert not any("may ever find" in text or "kept for the evaluation" in text for text in texts)
    assert any(text in PARAGRAPHS for text in texts) and sum(text.endswith("?") for text in texts) > 20
    assert any(len(text.split()) <= 4 for text in texts)


def test_what_is_excluded() -> None:
    excluded = Excluded(["one two three four five six seven eight nine", "short text"])
    assert "Short text." in excluded and "short texts" not in excluded
    assert "and two, three; four five six seven eight NINE ten" in excluded
    assert "two three four five six seven eight" not in excluded  # seven words


def test_the_texts_of_a_paragraph_are_neighbors() -> None:
    texts = paragraph_texts(PARAGRAPHS[0], "The river", random.Random(1))
    assert texts and all(text and text == text.strip() for text in texts)
    assert paragraph_texts("Early life.", "A man", random.Random(0))[0] == "Early life"


def test_captions_are_english_enough() -> None:
    assert plural("man") == "men" and plural("baby") == "babies" and plural("bench") == "benches"
    assert plural("group of people") == "groups of people" and plural("police officer") == "police officers"
    generator = random.Random(0)
    assert len({caption(generator) for _ in range(200)}) > 190
