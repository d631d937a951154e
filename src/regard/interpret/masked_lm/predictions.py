"""What models answer at the blank of a sentence: a logit for every token of the vocabulary; or such logits from files.

Knows models, tokenizers and files of logits. Knows nothing of charts, templates or the command line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.checkpoints.loading import load
from regard.checkpoints.ready import Masked, evaluating, family_of
from regard.data.batch import group_by_token_budget
from regard.data.files import display_name, read_all_bytes, read_all_lines
from regard.errors import InputError
from regard.inference.masked_lm import find_blanks
from regard.text import Tokenizer

__all__ = ["MaskedPrediction", "MaskedPredictions", "NamedModel", "load_models", "predict_blanks", "read_predictions"]

Logits = NDArray[np.float32]

CALLED = {"bert": "BERT", "distilbert": "DistilBERT", "roberta": "RoBERTa"}


@dataclass(frozen=True, eq=False)
class NamedModel:
    """A loaded model with the name it was asked for by."""

    name: str
    model: nn.Module
    tokenizer: Tokenizer | None

    @property
    def label(self) -> str:
        """The last part of the name, which fits an axis more often than a path does."""
        return Path(self.name).name or self.name

    @property
    def family_name(self) -> str:
        """How a caption calls it."""
        family = family_of(self.model)
        return CALLED.get(family, family)


@dataclass(frozen=True, eq=False)
class MaskedPrediction:
    """A logit for each token at the blank of `text`; `total` is the logarithm of the sum of all exponentials."""

    text: str
    model: str
    logits: Logits
    total: float

    @property
    def probabilities(self) -> NDArray[np.float64]:
        return np.exp(self.logits.astype(np.float64) - self.total)


@dataclass(frozen=True, eq=False)
class MaskedPredictions:
    """Answers over the same tokens. `called` is the model in a caption."""

    tokens: list[str]
    rows: list[MaskedPrediction]
    model_name: str


def load_models(names: Sequence[str], *, device: str = "auto") -> list[NamedModel]:
    """Load one or two models; the same name twice is loaded once."""
    from regard.device import choose

    place = choose(device)
    found = {name: NamedModel(name, *load(name, device=place)) for name in dict.fromkeys(names)}
    return list(found.values())


def predict_blanks(subjects: Sequence[NamedModel], texts: Sequence[str]) -> MaskedPredictions:
    """Every model's logits at the one blank of every text, models first, over the tokens that all models have."""
    told = [_ask(subject, texts) for subject in subjects]
    tokens = list(told[0][0])
    for vocabulary, _, _ in told[1:]:
        tokens = [token for token in tokens if token in vocabulary]
    if not tokens:
        raise InputError("these models have no token in common; compare models of the same vocabulary")
    answers = []
    for subject, (vocabulary, logits, totals) in zip(subjects, told, strict=True):
        columns = [vocabulary[token] for token in tokens]
        for text, row, total in zip(texts, logits[:, columns], totals.tolist(), strict=True):
            answers.append(MaskedPrediction(text, subject.label, row, total))
    return MaskedPredictions(tokens, answers, subjects[0].family_name)


def _ask(subject: NamedModel, texts: Sequence[str]) -> tuple[dict[str, int], Logits, NDArray[np.float64]]:
    """Tokens with their columns, the logits (texts, V), and the logarithm of each row's sum of exponentials."""
    asked = Masked.of(subject.model, subject.tokenizer, doing="comparing blanks")
    rows, places = [], []
    for text in texts:
        marked = find_blanks(text, asked.tokenizer, asked.mask)
        if len(marked.positions) != 1:
            raise InputError(f"expected one blank in {text[:80]!r}, found {len(marked.positions)}; leave one _ of them")
        if len(marked.ids) > asked.limit:
            raise InputError(
                f"a sentence has {len(marked.ids)} tokens, special ones included, and {subject.label} reads "
                f"{asked.limit}; shorten it by {len(marked.ids) - asked.limit}"
            )
        rows.append(marked.ids)
        places.append(marked.positions[0])
    count = len(asked.head.bias)
    found = np.empty((len(rows), count), dtype=np.float32)
    with evaluating(asked.model):
        for group in group_by_token_budget([len(row) for row in rows], asked.budget):
            wanted = [(number, places[row]) for number, row in enumerate(group)]
            found[group] = asked.logits([rows[row] for row in group], wanted).cpu().numpy()
    known = {token: number for token, number in asked.tokenizer.vocabulary.items() if number < count}
    return known, found, _totals(found)


def read_predictions(
    paths: Sequence[str | os.PathLike[str]],
    vocabulary: str | os.PathLike[str],
    *,
    texts: Sequence[str] | None = None,
) -> MaskedPredictions:
    """Stored logits: one JSON list of numbers a file, compressed or not, one for each line of the vocabulary.

    `texts` are the sentences they belong to; without them the files' names stand for them.
    """
    tokens = read_all_lines(vocabulary)
    answers = []
    for path, text in zip(paths, texts or [_title(path) for path in paths], strict=True):
        logits = _stored(path)
        if len(logits) != len(tokens):
            raise InputError(
                f"{display_name(path)} holds {len(logits):,} logits, but {display_name(vocabulary)} has "
                f"{len(tokens):,} tokens; "
                "expected the vocabulary of the model that made them"
            )
        answers.append(MaskedPrediction(text, "stored logits", logits, float(_totals(logits[None])[0])))
    return MaskedPredictions(tokens, answers, "The model")


def _stored(path: str | os.PathLike[str]) -> Logits:
    wanted = "expected one JSON list of finite numbers"
    try:
        numbers = json.loads(read_all_bytes(path))
    except InputError:
        raise
    except (ValueError, RecursionError, EOFError, OSError) as error:
        raise InputError(f"{display_name(path)}: {wanted}, but it cannot be read as JSON ({error})") from None
    if not isinstance(numbers, list) or not numbers or not all(type(number) in (int, float) for number in numbers):
        raise InputError(f"{display_name(path)}: {wanted}, got something else; write logits as [-4.8, -5.7, ...]")
    logits = np.array(numbers, dtype=np.float64).astype(np.float32)
    if not np.isfinite(logits).all():
        raise InputError(f"{display_name(path)}: {wanted}, but number {int(np.argmin(np.isfinite(logits))) + 1} is not")
    return logits


def _title(path: str | os.PathLike[str]) -> str:
    """in-texas-they-like-to-buy.json.gz: "in texas they like to buy _"."""
    name = Path(path).name.split(".")[0]
    return f"{name.replace('-', ' ').replace('_', ' ').strip()} _"


def _totals(logits: Logits) -> NDArray[np.float64]:
    totals: NDArray[np.float64] = torch.from_numpy(logits).double().logsumexp(-1).numpy()
    return totals
