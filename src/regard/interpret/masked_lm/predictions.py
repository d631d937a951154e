"""What masked language models predict at the blank of a sentence, or for each of its words masked in turn.

Predictions are log-probabilities or logits over the vocabulary, computed by a model or read from files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, product, zip_longest
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from regard.checkpoints.loaded_model import LoadedModel
from regard.data.batch import group_by_token_budget
from regard.data.files import display_name, read_all_bytes, read_all_lines
from regard.errors import InputError
from regard.inference.masked_lm import BLANK_PATTERN, Candidate, MaskedLM, find_blanks
from regard.nn.training import evaluation_mode
from regard.text import Encoding

WARNING = (
    "Some of the text that language models learn from contains harmful stereotypes. This tool uncovers such "
    "associations; it does not endorse them."
)
ValueKind: TypeAlias = Literal["log-probabilities", "logits"]
Indices: TypeAlias = NDArray[np.int64]
MAX_VALUES = 400
MAX_DIGITS = 12  # of a number in a range
# Brackets without a bar or a range are plain text: [MASK], [sic].
_SLOT = re.compile(r"\[([^\[\]]*\|[^\[\]]*|\s*\d+\s*\.\.\s*\d+\s*)\]")


@dataclass(frozen=True)
class Slot:
    """The alternatives of one pair of brackets; `is_range` if they were written as a range of numbers."""

    values: tuple[str, ...]
    is_range: bool


@dataclass(frozen=True)
class Template:
    """A text split at its slots: there is one piece more than there are slots."""

    pieces: tuple[str, ...]
    slots: tuple[Slot, ...]

    def sentences(self) -> list[str]:
        """Every combination of values, the last slot changing fastest."""
        choices = product(*(slot.values for slot in self.slots))
        return ["".join(chain(*zip_longest(self.pieces, values, fillvalue=""))) for values in choices]


def parse_template(text: str) -> Template:
    """Find the slots of a text: `[a|b|c]` lists alternatives, `[1860..2018]` is every number of a range."""
    pieces, slots, end = [], [], 0
    for match in _SLOT.finditer(text):
        pieces.append(text[end : match.start()])
        slots.append(_slot(match[0], match[1]))
        end = match.end()
    return Template((*pieces, text[end:]), tuple(slots))


def _slot(written: str, inside: str) -> Slot:
    if "|" not in inside:
        ends = [number.strip() for number in inside.split("..")]
        if (digits := max(map(len, ends))) > MAX_DIGITS:
            excerpt = written if len(written) <= 60 else f"{written[:30]}..."
            raise InputError(
                f"{excerpt} is a range with a number of {digits:,} digits; expected at most {MAX_DIGITS}, "
                "such as [1860..2018]"
            )
        first, last = map(int, ends)
        if not 0 < last - first < MAX_VALUES:
            raise InputError(
                f"{written} is a range of {last - first + 1} numbers; expected the lower first and 2 to {MAX_VALUES} "
                "of them, such as [1860..2018]"
            )
        return Slot(tuple(str(number) for number in range(first, last + 1)), is_range=True)
    values = tuple(value.strip() for value in inside.split("|"))
    if "" in values or len(set(values)) < len(values):
        raise InputError(f"{written} has an empty or a repeated alternative; expected different ones, such as [he|she]")
    return Slot(values, is_range=False)


Logits = NDArray[np.float32]
TOP = 90  # completions of each word
MAX_WORDS = 100  # each takes a pass over the whole text


@dataclass(frozen=True, eq=False)
class MaskedPrediction:
    """The value of each token at the blank of `text`: its log-probability or its logit.

    `total` is the log-sum-exp of the values over the whole vocabulary, which is 0 for log-probabilities.
    """

    text: str
    model: str
    values: Logits
    total: float

    @property
    def probabilities(self) -> NDArray[np.float64]:
        return np.exp(self.values.astype(np.float64) - self.total)


@dataclass(frozen=True, eq=False)
class MaskedPredictions:
    """Predictions over the same tokens."""

    tokens: list[str]
    rows: list[MaskedPrediction]
    values: ValueKind


@dataclass(frozen=True)
class MaskedWord:
    """A word of the text ("_" for a blank), whether a space precedes it, and the likeliest tokens in its place."""

    word: str
    spaced: bool
    completions: list[Candidate]


def short_name(loaded: LoadedModel) -> str:
    """The last part of the model's name, which fits an axis better than a path."""
    return Path(loaded.name).name or loaded.name


def predict_blanks(
    models: Sequence[LoadedModel], texts: Sequence[str], values: ValueKind = "log-probabilities"
) -> MaskedPredictions:
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
            rows.append(_prediction(text, short_name(loaded), row, total, values))
    return MaskedPredictions(tokens, rows, values)


def _prediction(text: str, model: str, logits: Logits, total: float, values: ValueKind) -> MaskedPrediction:
    if values == "logits":
        return MaskedPrediction(text, model, logits, total)
    return MaskedPrediction(text, model, (logits.astype(np.float64) - total).astype(np.float32), 0.0)


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
    count = len(masked.head.weight)
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
    values: ValueKind = "log-probabilities",
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
        rows.append(_prediction(text, "The model", logits, float(_log_sum_exp(logits[None])[0]), values))
    return MaskedPredictions(tokens, rows, values)


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


def complete_words(loaded: LoadedModel, text: str) -> list[MaskedWord]:
    """The TOP likeliest tokens for every word of a text of at most MAX_WORDS, each word masked in turn.

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
    completions = _top_candidates(masked, rows, [word[0] for word in words])
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
    for position, (word, special) in enumerate(zip(encoded.words, encoded.special_tokens_mask, strict=True)):
        if special:
            continue
        if words and word is not None and word == before:
            words[-1].append(position)
        else:
            words.append([position])
        before = word
    return words


def _top_candidates(masked: MaskedLM, rows: list[list[int]], positions: list[int]) -> list[list[Candidate]]:
    """The likeliest tokens at one position of each row."""
    known = torch.tensor(
        [number for number in masked.tokenizer.vocabulary.values() if number < len(masked.head.weight)]
    )
    candidates: list[list[Candidate]] = [[] for _ in rows]
    with evaluation_mode(masked.model):
        for group in group_by_token_budget([len(row) for row in rows], masked.batch_tokens):
            where = [(index, positions[row]) for index, row in enumerate(group)]
            probabilities = masked.logits([rows[row] for row in group], where).softmax(-1).cpu()[:, known]
            best = probabilities.topk(min(TOP, len(known)))
            for row, ids, values in zip(group, known[best.indices].tolist(), best.values.tolist(), strict=True):
                candidates[row] = [Candidate(masked.tokenizer.token(n), n, p) for n, p in zip(ids, values, strict=True)]
    return candidates


def top_indices(values: NDArray[np.floating], number: int) -> Indices:
    """The indices of the `number` highest values (0: all), the highest first, then the earlier."""
    order = np.argsort(-values, kind="stable")
    return order[:number] if number else order
