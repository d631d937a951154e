"""Corpus search by head: scores equal those of recorded maps, and the best texts are kept in order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.checkpoints.loaded_model import LoadedModel
from regard.data.rows import Row
from regard.errors import InputError
from regard.events import drain
from regard.interpret.activations import CHUNK_TEXTS, HeadPattern, allowed_pairs, head_activations
from regard.interpret.attention.recording import record_attention

TEXTS = [
    "the film was good and the film was long",
    "a bad day",
    "they love it",
    "the water was bad and they love the water",
    "good",
    "it was a long day and a good film",
]
Loaded = tuple[Any, Any]


@pytest.fixture(scope="module")
def bert(tiny_bert_folder: Path) -> Loaded:
    model, tokenizer = regard.load(tiny_bert_folder)
    return model, tokenizer


def rows(texts: list[str]) -> Iterator[Row]:
    return (Row(number, number + 1, (text,), {}) for number, text in enumerate(texts))


def expected(bert: Loaded, text: str, layer: int, head: int, pattern: HeadPattern, distance: int) -> float | None:
    weights = record_attention(*bert, text).map().weights[layer - 1, head]
    allowed = allowed_pairs(bert[1].encode(text), pattern, distance)
    return float(weights[allowed].max()) if allowed.any() else None


@pytest.mark.parametrize(("pattern", "distance"), [("any", 1), ("any", 3), ("previous", 1), ("next", 1), ("same", 1)])
def test_scores_are_those_of_the_maps(bert: Loaded, pattern: HeadPattern, distance: int) -> None:
    options = {"layer": 2, "head": 1, "top": 3, "pattern": pattern, "min_distance": distance}
    found = drain(head_activations(LoadedModel("", *bert), rows(TEXTS), **options))  # type: ignore[arg-type]
    scores = {text: expected(bert, text, 2, 1, pattern, distance) for text in TEXTS}
    known = sorted((score for score in scores.values() if score is not None), reverse=True)
    assert [one.weight for one in found.texts] == pytest.approx(known[:3], abs=1e-5)
    assert found.read == len(TEXTS) and found.scored == len(known)
    assert found.mean == pytest.approx(float(np.mean(known)), abs=1e-5)
    assert sum(found.histogram) == found.scored
    for one in found.texts:
        assert one.text == TEXTS[one.line - 1] and not one.special[one.query] and not one.special[one.key]
        assert abs(one.query - one.key) >= distance and one.weights[one.key] == pytest.approx(one.weight)
        assert sum(one.weights) == pytest.approx(1, abs=1e-4)


def test_allowed_pairs_exclude_special_tokens_and_the_token_itself(bert: Loaded) -> None:
    encoding = bert[1].encode("the film was the film")
    any_pair, same = allowed_pairs(encoding, "any"), allowed_pairs(encoding, "same")
    assert not any_pair.diagonal().any() and not any_pair[0].any() and not any_pair[:, -1].any()
    assert any_pair.sum() == 5 * 4
    assert sorted(map(tuple, np.argwhere(same).tolist())) == [(1, 4), (2, 5), (4, 1), (5, 2)]


def test_texts_are_read_in_chunks_and_repeated_ones_are_listed_once(bert: Loaded) -> None:
    ahead = 0  # rows that were read before the progress event of their chunk

    def stream() -> Iterator[Row]:
        nonlocal ahead
        for number in range(300):
            ahead += 1
            yield Row(number, number + 1, (TEXTS[number % len(TEXTS)],), {})

    events = head_activations(LoadedModel("", *bert), stream(), layer=1, head=0, top=10)
    most = 0
    while True:
        try:
            next(events)
        except StopIteration as end:
            found = end.value
            break
        most, ahead = max(most, ahead), 0
    assert most <= CHUNK_TEXTS + 1
    assert found.read == 300 and [one.line for one in found.texts if one.line > len(TEXTS)] == []
    assert len(found.texts) == 5  # the text of one word has no pair


def test_errors(bert: Loaded) -> None:
    for layer, head, message in [(9, 0, "no layer 9"), (1, 9, "no head 9")]:
        with pytest.raises(InputError, match=message):
            drain(head_activations(LoadedModel("", *bert), rows(TEXTS), layer=layer, head=head))
    with pytest.raises(InputError, match="none of the 1 text has such a pair"):
        drain(head_activations(LoadedModel("", *bert), rows(["good"]), layer=1, head=0))
    with pytest.raises(InputError, match="there are no texts"):
        drain(head_activations(LoadedModel("", *bert), rows([]), layer=1, head=0))
