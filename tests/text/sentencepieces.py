"""Small SentencePiece models, trained on English and French sentences, and folders as published models have them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import sentencepiece

from regard.text.sentencepiece import read_sentencepiece

NUM_TRAINED, NUM_TESTED = 1500, 500


def sentences(archive: Path) -> tuple[list[str], list[str]]:
    """English and French sentences, those to train on first."""
    with ZipFile(archive) as opened:
        lines = opened.read("fra-eng/fra.txt").decode().splitlines()
    step = len(lines) // (NUM_TRAINED + NUM_TESTED)
    pairs = [line.split("\t")[:2] for line in lines[::step]][: NUM_TRAINED + NUM_TESTED]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def train(path: Path, texts: Sequence[str], **settings: Any) -> Path:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_prefix=str(path.with_suffix("")),
        minloglevel=2,
        num_threads=1,
        **{"vocab_size": 600, "model_type": "unigram"} | settings,
    )
    path.with_suffix(".vocab").unlink()
    return path.with_suffix(".model").rename(path)


def marian_files(folder: Path, english: Sequence[str], french: Sequence[str]) -> dict[str, int]:
    """Write the tokenizer of a Marian folder, without some pieces, and return its vocabulary."""
    train(folder / "source.spm", english)
    train(folder / "target.spm", french)
    pieces = {
        piece.text for side in ("source", "target") for piece in read_sentencepiece(folder / f"{side}.spm").pieces[3:]
    }
    tokens = ["</s>", "<unk>", *sorted(pieces, reverse=True)[5:], ">>fra<<", ">>ron<<", "<pad>"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "fr"}))
    return vocabulary
