"""What the page of a comparison needs: logits as bytes, the range of every chart, and all words around it.

Knows the results of a comparison. Knows nothing of HTML: the page draws, and only chooses by the numbers given here.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import reduce
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from regard.interpret.masked_lm.completions import WordCompletions
from regard.interpret.masked_lm.grid import ComparisonGrid
from regard.interpret.masked_lm.pair import ALL, PALETTE, TOKEN_COUNTS, Chart, PairComparison
from regard.interpret.masked_lm.predictions import MaskedPrediction
from regard.interpret.masked_lm.sweep import ComparisonSweep

__all__ = ["ComparisonResult", "result_payload"]

ComparisonResult: TypeAlias = PairComparison | ComparisonGrid | ComparisonSweep | WordCompletions

WHOLE = 12  # so many sentences may bring the whole vocabulary into a page; of more it has the likelier tokens
FEWER = (30, 200, 1000)
BOTH: tuple[Chart, ...] = ("likelihoods", "differences")


def result_payload(result: ComparisonResult) -> dict[str, object]:
    """The part of the payload that says what is drawn; `kind` is pair, grid, sweep or sentence."""
    match result:
        case PairComparison():
            return {"kind": "pair"} | _charts(result.tokens, [result.a, result.b], [(0, 1, result)], TOKEN_COUNTS)
        case ComparisonGrid():
            return _grid(result)
        case ComparisonSweep():
            document = result.document()
            return {
                "kind": "sweep",
                "values": document["values"],
                "labels": document["labels"],
                "caption": result.caption,
                "tokens": result.tokens,
                "series": _bytes(result.series),
            }
        case WordCompletions():
            words = [
                {
                    "word": word.word,
                    "spaced": word.spaced,
                    "completions": [[c.token, c.probability] for c in word.completions],
                }
                for word in result.words
            ]
            return {"kind": "sentence", "text": result.text, "model": result.model, "words": words}


def _grid(grid: ComparisonGrid) -> dict[str, object]:
    answers = grid.predictions.rows
    numbers = TOKEN_COUNTS if len(answers) <= WHOLE else FEWER
    pairs = [(a, b, grid.pair(a, b)) for a, b in grid.pairs()]
    places = {(a, b): number for number, (a, b, _) in enumerate(pairs)}
    squares = [
        {"across": places[square.first], "up": places[square.second], "axes": _axes(grid, square.first, square.second)}
        for square in grid.squares()
    ]
    return {
        "kind": "grid",
        "rows": list(grid.rows),
        "columns": list(grid.columns),
        **_charts(grid.predictions.tokens, answers, pairs, numbers),
        "squares": squares,
    }


def _axes(grid: ComparisonGrid, across: tuple[int, int], up: tuple[int, int]) -> dict[str, str]:
    names = [grid.label(cell) for cell in (*across, *up)]
    return {"left": f"← {names[0]}", "right": f"{names[1]} →", "down": f"← {names[2]}", "up": f"{names[3]} →"}


def _charts(
    tokens: Sequence[str],
    answers: Sequence[MaskedPrediction],
    pairs: Sequence[tuple[int, int, PairComparison]],
    numbers: Sequence[int],
) -> dict[str, object]:
    """The tokens that any chart may show, every sentence's logits of them, and each pair's ranges and words."""
    kept = np.arange(len(tokens))
    if ALL not in numbers:
        kept = reduce(np.union1d, [pair.visible(max(numbers), chart) for _, _, pair in pairs for chart in BOTH])
    return {
        "numbers": list(numbers),
        "palette": PALETTE,
        "tokens": [tokens[place] for place in kept.tolist()],
        "sentences": [
            {"text": one.text, "model": one.model, "total": one.total, "logits": _bytes(one.logits[kept])}
            for one in answers
        ],
        "pairs": [
            {
                "a": a,
                "b": b,
                "labels": list(pair.labels),
                "axes": pair.axes(),
                "extents": {str(number): pair.extent(number) for number in numbers},
                "captions": {chart: {str(n): pair.caption(n, chart) for n in numbers} for chart in BOTH},
            }
            for a, b, pair in pairs
        ],
    }


def _bytes(values: NDArray[np.floating]) -> str:
    """float32, little-endian, as base64."""
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode("ascii")
