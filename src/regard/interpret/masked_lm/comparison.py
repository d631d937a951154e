"""From what a user typed to a comparison: two sentences, a grid, a sweep or the words of one sentence.

Knows which text asks for what. The numbers are made in `answers`, `compare`, `grid`, `sweep` and `completions`, and
what a page needs of them in `drawn`.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.errors import InputError
from regard.interpret.masked_lm.completions import complete_words
from regard.interpret.masked_lm.grid import ComparisonGrid
from regard.interpret.masked_lm.pair import ALL, CHARTS, TOKEN_COUNTS, Chart, PairComparison, PairKind, check_chart
from regard.interpret.masked_lm.payload import ComparisonResult, result_payload
from regard.interpret.masked_lm.predictions import (
    MaskedPredictions,
    NamedModel,
    load_models,
    predict_blanks,
    read_predictions,
)
from regard.interpret.masked_lm.sweep import SERIES, ComparisonSweep, make_sweep
from regard.interpret.masked_lm.templates import WARNING, Slot, contrast_labels, parse_template
from regard.known import DEFAULT

__all__ = ["MaskedComparison", "compare", "compare_models", "compare_stored"]

MOST_CELLS = 64  # sentences of a grid


@dataclass(frozen=True, eq=False)
class MaskedComparison:
    """A result, how much of it is asked for, and the lines that make it again."""

    result: ComparisonResult
    texts: tuple[str, ...]
    models: tuple[str, ...]
    number: int
    chart: Chart
    cli: str
    python: str

    def document(self) -> dict[str, object]:
        """What `regard compare --json` prints."""
        if isinstance(self.result, PairComparison | ComparisonGrid):
            return self.result.document(self.number, self.chart)
        return self.result.document()

    def payload(self) -> dict[str, object]:
        """What the page of this view shows."""
        asked = {"texts": list(self.texts), "models": list(self.models), "number": self.number, "chart": self.chart}
        shown = result_payload(self.result)
        return {"view": "compare", "asked": asked, "warning": WARNING, **shown, "cli": self.cli, "python": self.python}


def compare(
    texts: Sequence[str],
    *,
    models: Sequence[str] = (DEFAULT,),
    number: int | None = None,
    chart: str = "likelihoods",
    device: str = "auto",
) -> MaskedComparison:
    """Compare sentences with one model, or two models with each other; see `compare_subjects`."""
    _check_count(models)
    return compare_models(texts, load_models(models, device=device), number=number, chart=chart)


def compare_models(
    texts: Sequence[str], subjects: Sequence[NamedModel], *, number: int | None = None, chart: str = "likelihoods"
) -> MaskedComparison:
    """What varies decides: nothing, the words of one sentence; one thing, a pair or a row; two things, a grid.

    A thing that varies is a slot `[he|she]`, the two texts, or the two models; a slot `[1860..2018]` makes a sweep.
    `number` of tokens is 30, in a sweep 150; 0 is all.
    """
    _check_count([subject.name for subject in subjects])
    if not 1 <= len(texts) <= 2:
        raise InputError(f"expected one or two sentences, got {len(texts)}; a slot such as [he|she] makes more of one")
    kind = check_chart(30 if number is None else number, chart)
    result = _result(list(texts), subjects, number)
    count = number if number is not None else SERIES if isinstance(result, ComparisonSweep) else TOKEN_COUNTS[0]
    names = tuple(subject.name for subject in subjects)
    return MaskedComparison(result, tuple(texts), names, count, kind, *_lines(texts, names, number, kind))


def compare_stored(
    paths: Sequence[str | os.PathLike[str]],
    vocabulary: str | os.PathLike[str],
    *,
    texts: Sequence[str] | None = None,
    number: int | None = None,
    chart: str = "likelihoods",
) -> MaskedComparison:
    """Compare two files of logits. `texts` are their sentences; the files' names where they are not given."""
    if len(paths) != 2 or (texts and len(texts) != 2):
        raise InputError("expected two files of logits, and two sentences for them or none")
    kind = check_chart(30 if number is None else number, chart)
    told = read_predictions(paths, vocabulary, texts=texts or None)
    count = TOKEN_COUNTS[0] if number is None else number
    said = told.rows[0].text, told.rows[1].text
    files = [os.fspath(path) for path in paths]
    stored = ["--logits", *files, "--vocab", os.fspath(vocabulary)]
    cli = _command(texts or (), [*stored, *_options(number, kind)])
    python = (
        "from regard.interpret.masked_lm.comparison import compare_stored\n"
        f"compare_stored({files!r}, {os.fspath(vocabulary)!r}, texts={list(texts or said)!r}, "
        f"number={count}, chart={kind!r}).document()"
    )
    pair = PairComparison(told.tokens, told.rows[0], told.rows[1], contrast_labels(*said), told.model_name)
    return MaskedComparison(pair, said, (), count, kind, cli, python)


def _check_count(models: Sequence[str]) -> None:
    if not 1 <= len(models) <= 2:
        raise InputError(f"expected one model or two to set against each other, got {len(models)}")


def _result(texts: list[str], subjects: Sequence[NamedModel], number: int | None) -> ComparisonResult:
    templates = [parse_template(text) for text in texts]
    varying = list(templates[0].slots)
    if len(texts) == 2:
        if any(template.slots for template in templates):
            raise InputError("slots such as [he|she] belong in a single sentence; give one text, or two without slots")
        varying = [Slot(contrast_labels(*texts), swept=False)]
    sentences = texts if len(texts) == 2 else templates[0].sentences()
    if len(subjects) == 2:
        varying.insert(0, Slot(tuple(subject.label for subject in subjects), swept=False))
    if not varying:
        return complete_words(subjects[0], texts[0])
    _check_varying(varying)
    told = predict_blanks(subjects, sentences)
    if any(slot.swept for slot in varying):
        return _sweep(texts[0], varying, told, SERIES if number is None else number)
    if len(varying) == 1 and len(varying[0].values) == 2:
        a, b = varying[0].values
        kind: PairKind = "models" if len(subjects) == 2 else "sentences"
        return PairComparison(told.tokens, told.rows[0], told.rows[1], (a, b), told.model_name, kind=kind)
    rows = varying[0].values if len(varying) == 2 else ("",)
    return ComparisonGrid(" / ".join(texts), rows, varying[-1].values, told)


def _check_varying(varying: Sequence[Slot]) -> None:
    if len(varying) > 2:
        raise InputError(
            f"{len(varying)} things vary, and at most two can: two slots such as [he|she], or one slot or two "
            "sentences with two models"
        )
    swept = [slot for slot in varying if slot.swept]
    steady = [len(slot.values) for slot in varying if not slot.swept]
    if len(swept) == 2 or (swept and steady and steady[0] != 2):
        raise InputError(
            "beside a range such as [1860..2018] there may be one slot of two words, such as [he|she], or two models; "
            f"here is {'another range' if not steady else f'one of {steady[0]}'}"
        )
    if not swept and (cells := math.prod(steady)) > MOST_CELLS:
        raise InputError(f"these are {cells} sentences, and a grid has at most {MOST_CELLS}; leave some out")


def _sweep(text: str, varying: Sequence[Slot], told: MaskedPredictions, number: int) -> ComparisonSweep:
    at = next(place for place, slot in enumerate(varying) if slot.swept)
    others = [slot.values for slot in varying if not slot.swept]
    numbers = np.arange(len(told.rows)).reshape([len(slot.values) for slot in varying])
    by_value = MaskedPredictions(
        told.tokens, [told.rows[i] for i in np.moveaxis(numbers, at, 0).ravel()], told.model_name
    )
    values = tuple(int(value) for value in varying[at].values)
    return make_sweep(text, values, others[0] if others else ("logit",), by_value, number)


def _options(number: int | None, chart: str) -> list[str]:
    count = [] if number is None else ["--number", str(number) if number != ALL else "all"]
    return [*count, *(["--chart", chart] if chart != CHARTS[0] else [])]


def _lines(texts: Sequence[str], models: Sequence[str], number: int | None, chart: str) -> tuple[str, str]:
    """The command and the Python that make a comparison again."""
    named = [word for model in models for word in ("--model", model)]
    python = (
        "from regard.interpret.masked_lm.comparison import compare\n"
        f"compare({list(texts)!r}, models={list(models)!r}, number={number}, chart={chart!r}).document()"
    )
    return _command(texts, [*_options(number, chart), *named]), python


def _command(texts: Sequence[str], options: Sequence[str]) -> str:
    """A text that begins as an option does stands behind all options and the sign that ends them."""
    dashed = any(text.startswith("-") for text in texts)
    options = [*options, "--output", "page.html"]
    return shlex.join(["regard", "compare", *([*options, "--", *texts] if dashed else [*texts, *options])])
