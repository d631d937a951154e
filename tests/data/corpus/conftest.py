"""A small plain-text corpus and tokenizers trained on it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from regard.data.corpus import Document, read_documents, train_tokenizer
from regard.text import Tokenizer

NOUNS = ["river", "city", "teacher", "garden", "engine", "letter", "winter", "market", "village", "painter"]
VERBS = ["follows", "remembers", "paints", "crosses", "builds", "forgets", "answers", "watches"]


def sentence(rng: random.Random) -> str:
    return f"The {rng.choice(NOUNS)} {rng.choice(VERBS)} the {rng.choice(NOUNS)} {rng.randrange(100)}."


@pytest.fixture(scope="session")
def text() -> str:
    """40 documents of several paragraphs; each paragraph contains the document's number."""
    rng = random.Random(0)
    documents = []
    for number in range(40):
        paragraphs = [
            " ".join([f"Item {number}."] + [sentence(rng) for _ in range(rng.randrange(1, 5))])
            for _ in range(rng.randrange(1, 4))
        ]
        documents.append("\n".join(paragraphs))
    return "\n\n".join(documents) + "\n"


@pytest.fixture
def source(text: str, tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def documents(source: Path) -> list[Document]:
    return list(read_documents(source))


@pytest.fixture(scope="session")
def wordpiece(text: str) -> Tokenizer:
    return train_tokenizer(text.split("\n"), size=150)


@pytest.fixture(scope="session")
def bpe(text: str) -> Tokenizer:
    return train_tokenizer(text.split("\n"), kind="bpe", size=320)
