"""Translations: independent of the batch, in the order of the texts, greedy and with beam search."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.events import drain
from regard.inference.generation.beam_search import Beam
from regard.inference.generation.trace import Trace
from regard.inference.translation.translator import Translator, load_translator
from regard.nn.masks import Padded
from tests.inference.translation.conftest import sentences

TEXTS = [*(pair.source for pair in sentences(12, seed=5)), "", "  ", "Grüße 😀 <|begin|> aus Köln"]


@pytest.fixture(params=["transformer", "lstm"])
def translator(request: pytest.FixtureRequest, folders: dict[str, Path], randomised: Callable[..., Any]) -> Translator:
    """A translator with random weights in which every part matters."""
    found = load_translator(folders[request.param])
    randomised(found.model)
    return found


@pytest.mark.parametrize("beam", [None, Beam(num_beams=3, num_return_sequences=2)])
def test_translations_do_not_depend_on_the_batch(translator: Translator, beam: Beam | None) -> None:
    together = translator.translate(TEXTS, beam=beam)
    for text, found in zip(TEXTS, together, strict=True):
        [alone] = translator.translate([text], beam=beam)
        if not found[0].finished or not alone[0].finished:
            continue  # the maximum length depends on the longest text of a batch
        assert [one.text for one in alone] == [one.text for one in found]
        assert [one.score for one in alone] == pytest.approx([one.score for one in found], abs=1e-4)


def test_blank_texts(translator: Translator) -> None:
    done: list[int] = []
    found = drain(translator.translate_steps(["", " \t", "the dog"]), done.append)
    assert [len(several) for several in found] == [1, 1, 1]
    assert found[0][0].text == found[1][0].text == "" and found[0][0].finished
    assert sum(done) == 3
    assert translator.translate([]) == []


def test_the_log_probability_is_that_of_the_tokens(translator: Translator) -> None:
    [several] = translator.translate(["the small dog runs"], beam=Beam(num_beams=4, num_return_sequences=4))
    assert [one.score for one in several] == sorted((one.score for one in several), reverse=True)
    for one in several:
        target = [*one.ids, *([translator.subwords.end] if one.finished else [])]
        source = torch.tensor(translator.subwords.encode_sources(["the small dog runs"]))
        with torch.no_grad():
            scores = translator.model.teacher_forced_logits(source, Padded(), torch.tensor([target]))[0].log_softmax(-1)
        total = sum(float(row[token]) for row, token in zip(scores, target, strict=True))
        assert one.log_probability == pytest.approx(total, abs=1e-3)
        assert one.score == pytest.approx(total / len(target), abs=1e-4)
        assert one.text == translator.subwords.decode(one.ids)


def test_a_trace_records_every_text(translator: Translator) -> None:
    trace = Trace()
    found = translator.translate(["the dog", "", "a big house"], beam=Beam(num_beams=2), trace=trace)
    rows: Any = trace.document()["rows"]
    assert [row["row"] for row in rows] == [0, 2]
    assert [row["results"][0]["tokens"] for row in rows] == [list(found[0][0].ids), list(found[2][0].ids)]
    plain, greedy = Trace(), translator.translate(["the dog"])
    assert translator.translate(["the dog"], trace=plain)[0][0].ids == greedy[0][0].ids
