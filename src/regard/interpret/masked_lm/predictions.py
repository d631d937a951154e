"""What masked language models predict at the blank of a sentence, or for each of its words masked in turn.

Predictions are logits over the vocabulary, computed by a model or read from files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from regard.checkpoints.loaded_model import LoadedModel
from regard.data.batch import group_by_token_budget
from regard.data.files import display_name, read_all_bytes, read_all_lines
from regard.errors import InputError
from regard.inference.masked_lm import BLANK_PATTERN, Candidate, MaskedLM, find_blanks
from regard.models.family import family_name
from regard.nn.evaluation import evaluation_mode
from regard.text import Encoding

Logits = NDArray[np.float32]

FAMILY_NAMES = {"bert": "BERT", "distilbert": "DistilBERT", "roberta": "RoBERTa"}
TOP = 90  # completions of each word
MAX_WORDS = 100  # each takes a pass over the whole text


@dataclass(frozen=True, eq=False)
class MaskedPrediction:
    """The logit of each token at the blank of `text`; `total` is the log-sum-exp over the whole vocabulary."""

    text: str
    model: str
    logits: Logits
    total: float

    @property
    def probabilities(self) -> NDArray[np.float64]:
        return np.exp(self.logits.astype(np.float64) - self.total)


@dataclass(frozen=True, eq=False)
class MaskedPredictions:
    """Predictions over the same tokens. `model_name` is the model as captions call it."""

    tokens: list[str]
    rows: list[MaskedPrediction]
    model_name: str


@dataclass(frozen=True)
class MaskedWord:
    """A word of the text ("_" for a blank), whether a space precedes it, and the likeliest tokens in its place."""

    word: str
    spaced: bool
    completions: list[Candidate]


def short_name(loaded: LoadedModel) -> str:
    """The last part of the model's name, which fits an axis better than a path."""
    return Path(loaded.name).name or loaded.name


def predict_blanks(models: Sequence[LoadedModel], texts: Sequence[str]) -> MaskedPredictions:
    """The predictions of every model for the one blank of every text, over the tokens that all models have."""
    predictions = [_predict(loaded, texts) for loaded in models]
    tokens = list(predictions[0][0])
    for vocabulary, _, _ in predictions[1:]:
        tokens = [token for token in tokens if token in vocabulary]
    if not tokens:
        raise InputError("these models have no token in common; compare models of the same vocabulary")
    rows = []
    for loaded, (vocabulary, logits, totals) in zip(models, predictions, strict=True):
        columns = [vocabulary[token] for token in tokens]
        for text, row, total in zip(texts, logits[:, columns], totals.tolist(), strict=True):
            rows.append(MaskedPrediction(text, short_name(loaded), row, total))
    family = family_name(models[0].model)
    return MaskedPredictions(tokens, rows, FAMILY_NAMES.get(family, family))


def _predict(loaded: LoadedModel, texts: Sequence[str]) -> tuple[dict[str, int], Logits, NDArray[np.float64]]:
    """Tokens with their columns, the logits (texts, V), and the log-sum-exp of each row."""
    masked = MaskedLM.from_model(loaded.model, loaded.tokenizer, purpose="comparing blanks")
    rows, positions = [], []
    for text in texts:
        marked = find_blanks(text, masked.tokenizer, masked.mask_id)
        if len(marked.positions) != 1:
            raise InputError(f"expected one blank in {text[:80]!r}, found {len(marked.positions)}; leave one _ of them")
        _check_length(len(marked.ids), masked.max_length, loaded)
        rows.append(marked.ids)
        positions.append(marked.positions[0])
    count = len(masked.head.bias)
    logits = np.empty((len(rows), count), dtype=np.float32)
    with evaluation_mode(masked.model):
        for group in group_by_token_budget([len(row) for row in rows], masked.batch_tokens):
            where = [(index, positions[row]) for index, row in enumerate(group)]
            logits[group] = masked.logits([rows[row] for row in group], where).cpu().numpy()
    vocabulary = {token: number for token, number in masked.tokenizer.vocabulary.items() if number < count}
    return vocabulary, logits, _log_sum_exp(logits)


def _check_length(tokens: int, limit: int, loaded: LoadedModel) -> None:
    if tokens > limit:
        raise InputError(
            f"the text has {tokens} tokens, special ones included, and {short_name(loaded)} reads {limit}; "
            f"shorten it by {tokens - limit}"
        )


def read_predictions(
    paths: Sequence[str | os.PathLike[str]],
    vocabulary: str | os.PathLike[str],
    *,
    texts: Sequence[str] | None = None,
) -> MaskedPredictions:
    """Stored logits: one JSON list of numbers per file, compressed or not, one number per line of the vocabulary.

    `texts` are the sentences they belong to; by default made from the file names.
    """
    tokens = read_all_lines(vocabulary)
    rows = []
    for path, text in zip(paths, texts or [_text_of_file_name(path) for path in paths], strict=True):
        logits = _read_logits(path)
        if len(logits) != len(tokens):
            raise InputError(
                f"{display_name(path)} holds {len(logits):,} logits, but {display_name(vocabulary)} has "
                f"{len(tokens):,} tokens; "
                "expected the vocabulary of the model that made them"
            )
        rows.append(MaskedPrediction(text, "stored logits", logits, float(_log_sum_exp(logits[None])[0])))
    return MaskedPredictions(tokens, rows, "The model")


def _read_logits(path: str | os.PathLike[str]) -> Logits:
    expected = "expected one JSON list of finite numbers"
    try:
        numbers = json.loads(read_all_bytes(path))
    except InputError:
        raise
    except (ValueError, RecursionError, EOFError, OSError) as error:
        raise InputError(f"{display_name(path)}: {expected}, but it cannot be read as JSON ({error})") from None
    if not isinstance(numbers, list) or not numbers or not all(type(number) in (int, float) for number in numbers):
        raise InputError(f"{display_name(path)}: {expected}, got something else; write logits as [-4.8, -5.7, ...]")
    logits = np.array(numbers, dtype=np.float64).astype(np.float32)
    if not np.isfinite(logits).all():
        raise InputError(
            f"{display_name(path)}: {expected}, but number {int(np.argmin(np.isfinite(logits))) + 1} is not"
        )
    return logits


def _text_of_file_name(path: str | os.PathLike[str]) -> str:
    """in-texas-they-like-to-buy.json.gz: "in texas they like to buy _"."""
    name = Path(path).name.split(".")[0]
    return f"{name.replace('-', ' ').replace('_', ' ').strip()} _"


def _log_sum_exp(logits: Logits) -> NDArray[np.float64]:
    totals: NDArray[np.float64] = torch.from_numpy(logits).double().logsumexp(-1).numpy()
    return totals


def complete_words(loaded: LoadedModel, text: str, *, top: int = TOP) -> list[MaskedWord]:
    """The `top` likeliest tokens for every word of a text of at most MAX_WORDS, each word masked in turn.

    A word of several tokens is replaced by one mask, so that every completion is one token. Blanks stay blanks.
    """
    masked = MaskedLM.from_model(loaded.model, loaded.tokenizer, purpose="masking words")
    mask = masked.tokenizer.token(masked.mask_id)
    written = re.sub(f"{re.escape(mask)}|{BLANK_PATTERN}", lambda _: mask, text)
    encoded = masked.tokenizer.encode(written)
    words = _words(encoded)
    if not words:
        raise InputError(f"expected a sentence, got {text[:60]!r}; give one such as 'In Texas, they like to buy _.'")
    if len(words) > MAX_WORDS:
        raise InputError(
            f"the text has {len(words):,} words and signs, and each is masked in turn; at most {MAX_WORDS} can be. "
            f"Shorten it by {len(words) - MAX_WORDS:,}, or give two texts with a blank _ to compare them"
        )
    _check_length(len(encoded), masked.max_length, loaded)
    rows = [[*encoded.ids[: word[0]], masked.mask_id, *encoded.ids[word[-1] + 1 :]] for word in words]
    completions = _top_candidates(masked, rows, [word[0] for word in words], top)
    result = []
    for word, candidates in zip(words, completions, strict=True):
        start, end = encoded.offsets[word[0]][0], encoded.offsets[word[-1]][1]
        spelled = written[start:end].strip()
        around = written[max(0, start - 1) : start + 1]
        result.append(MaskedWord("_" if spelled == mask else spelled, around.strip() != around, candidates))
    return result


def _words(encoded: Encoding) -> list[list[int]]:
    """The positions of the tokens of each word."""
    words: list[list[int]] = []
    before: int | None = None
    for position, (word, special) in enumerate(zip(encoded.words, encoded.special, strict=True)):
        if special:
            continue
        if words and word is not None and word == before:
            words[-1].append(position)
        else:
            words.append([position])
        before = word
    return words


def _top_candidates(masked: MaskedLM, rows: list[list[int]], positions: list[int], top: int) -> list[list[Candidate]]:
    """The likeliest tokens at one position of each row."""
    known = torch.tensor([number for number in masked.tokenizer.vocabulary.values() if number < len(masked.head.bias)])
    candidates: list[list[Candidate]] = [[] for _ in rows]
    with evaluation_mode(masked.model):
        for group in group_by_token_budget([len(row) for row in rows], masked.batch_tokens):
            where = [(index, positions[row]) for index, row in enumerate(group)]
            probabilities = masked.logits([rows[row] for row in group], where).softmax(-1).cpu()[:, known]
            best = probabilities.topk(min(top, len(known)))
            for row, ids, values in zip(group, known[best.indices].tolist(), best.values.tolist(), strict=True):
                candidates[row] = [Candidate(masked.tokenizer.token(n), n, p) for n, p in zip(ids, values, strict=True)]
    return candidates
