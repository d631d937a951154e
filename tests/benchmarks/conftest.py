"""A small corpus for the pretraining benchmarks."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from regard.data.corpus import build_corpus
from regard.text import Tokenizer

WORDS = "the a film day water people was is good bad long time of to and one would like more first down"


@pytest.fixture(scope="session")
def corpus_folder(tiny_bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 documents of 8 to 20 sentences, most of them long enough to fill rows of 64 tokens."""
    draw = random.Random(0)
    documents = []
    for _ in range(40):
        sentences = [
            " ".join(draw.choices(WORDS.split(), k=draw.randint(4, 12))) + "." for _ in range(draw.randint(8, 20))
        ]
        documents.append(" ".join(sentence.capitalize() for sentence in sentences))
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    build_corpus(folder / "text.txt", folder / "built", tokenizer=Tokenizer.open(tiny_bert_folder))
    return folder / "built"
