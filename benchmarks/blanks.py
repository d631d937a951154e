"""Cloze test of a pretrained BERT: 30 sentences with a blank; an accepted word must be among the top 10 predictions.

    python -m benchmarks.blanks MODEL [--json]

The sentences and their accepted words are in blanks.tsv, written before any model was evaluated on them. A blank counts
if one of its words is among the 10 most probable tokens of the full vocabulary, including word pieces and punctuation.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

import regard
from regard.data.batch import collate
from regard.data.files import open_text
from regard.errors import InputError
from regard.models import Bert
from regard.text import Tokenizer

BLANKS = Path(__file__).parent / "blanks.tsv"
TOP = 10


@dataclass(frozen=True)
class Blank:
    """A sentence with `_` in place of one word, and the accepted words."""

    sentence: str
    accepted: list[str]


@dataclass(frozen=True)
class BlankPrediction(Blank):
    """A model's most probable tokens for a blank, and the rank of the first accepted one, from 1."""

    top: list[str]
    rank: int | None


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="model folder or name")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON document")
    options = parser.parse_args(arguments)
    model, tokenizer = regard.load(options.model)
    if not isinstance(model, Bert) or tokenizer is None:
        raise InputError(f"{options.model}: expected a BERT with its tokenizer, got {type(model).__name__}")
    predictions = predict_blanks(model, tokenizer, read_blanks(BLANKS))
    score = sum(prediction.rank is not None for prediction in predictions)
    if options.as_json:
        summary = {"model": options.model, "score": score, "count": len(predictions)}
        print(json.dumps({**summary, "blanks": [asdict(prediction) for prediction in predictions]}, ensure_ascii=False))
        return
    width = max(len(prediction.sentence) for prediction in predictions)
    for prediction in predictions:
        print(f"{prediction.rank or '-':>3}  {prediction.sentence:<{width}}  {' '.join(prediction.top)}")
    print(f"{score} of {len(predictions)} have an accepted word in the top {TOP}")


def read_blanks(path: Path) -> list[Blank]:
    """Read lines of: sentence, tab, accepted words separated by commas."""
    blanks = []
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            sentence, _, words = line.partition("\t")
            if sentence.count("_") != 1 or not all(words.split(",")):
                raise InputError(f"{path} line {number}: expected a sentence with one _, a tab, words; got {line!r}")
            blanks.append(Blank(sentence, words.split(",")))
    return blanks


def predict_blanks(model: Bert, tokenizer: Tokenizer, blanks: Sequence[Blank]) -> list[BlankPrediction]:
    """The model's most probable tokens for each blank, with all sentences in one packed batch."""
    if model.mlm_head is None or tokenizer.mask_token_id is None:
        raise InputError("this model cannot fill a blank: it lacks a masked-LM head or a mask token")
    mask = tokenizer.token(tokenizer.mask_token_id)
    ids, _ = tokenizer.ids_batch([blank.sentence.replace("_", mask) for blank in blanks])
    batch = collate(ids)
    with torch.inference_mode():
        hidden = model(batch.ids, batch.layout)[batch.ids == tokenizer.mask_token_id]
        top_ids = model.mlm_head(hidden)[:, : tokenizer.size].topk(TOP).indices.tolist()
    predictions = []
    for blank, ids_of_blank in zip(blanks, top_ids, strict=True):
        top = [tokenizer.token(token_id) for token_id in ids_of_blank]
        rank = next((rank for rank, token in enumerate(top, start=1) if token in blank.accepted), None)
        predictions.append(BlankPrediction(blank.sentence, blank.accepted, top, rank))
    return predictions


if __name__ == "__main__":
    main()
