"""The data of the translation view: the same arrays, and commands that reproduce them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from regard.errors import InputError
from regard.inference.generation.beam_search import Beam
from regard.inference.translation.translator import Translator
from regard.interpret import translation as module
from regard.interpret.translation import translate_in_steps

TEXT = "a dog sees the red house"
BEAM = Beam(num_beams=3, num_return_sequences=3)


def decode_array(text: str, shape: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.frombuffer(base64.b64decode(text), "<f4").reshape(shape)


def test_the_view_has_all_arrays(translator: Translator) -> None:
    found = translate_in_steps(translator, TEXT, beam=BEAM, name="here")
    document = json.loads(json.dumps(found.page_data(), allow_nan=False))
    attention = found.encoder
    assert attention is not None
    assert document["view"] == "translation" and document["model"]["name"] == "here"
    np.testing.assert_array_equal(decode_array(document["encoder"]["states"], attention.states.shape), attention.states)
    if attention.values is None:
        assert document["encoder"]["values"] is None
    else:
        np.testing.assert_array_equal(
            decode_array(document["encoder"]["values"], attention.values.shape), attention.values
        )
    for decoded, sent in zip(found.hypotheses, document["hypotheses"], strict=True):
        assert decoded.attention is not None and sent["text"] == decoded.translation.text
        for name, part in decoded.attention:
            np.testing.assert_array_equal(decode_array(sent["attention"][name], part.shape), part)
        assert [step["probability"] for step in sent["steps"]] == [step.probability for step in decoded.steps]


def test_the_view_describes_the_attention_of_the_model(make_translator: Callable[[str], Translator]) -> None:
    def decoded(kind: str) -> dict[str, object]:
        document = translate_in_steps(make_translator(kind), TEXT, name="here").page_data()["model"]
        assert isinstance(document, dict)
        return document

    both = {"name": "here", "width": 16}
    transformer = {
        "kind": "transformer",
        "recurrent": False,
        "score": "scaled dot",
        "recipe": None,
        "layers": 2,
        "heads": 2,
    }
    assert decoded("transformer") == {**both, **transformer, "layers": 2, "heads": 2}
    lstm = {"kind": "lstm", "recurrent": True, "score": "additive", "recipe": "deck", "layers": 1, "heads": 1}
    assert decoded("lstm additive deck") == {**both, **lstm}
    none = {"kind": "lstm", "recurrent": True, "score": "none", "recipe": "luong", "layers": 0, "heads": 0}
    assert decoded("lstm none") == {**both, **none}


def test_hypotheses_that_do_not_fit_are_left_out(
    make_translator: Callable[[str], Translator], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = translate_in_steps(make_translator("lstm dot luong"), TEXT, beam=BEAM)
    before = found.page_data()["notes"]  # random weights end at the length limit
    assert found.encoder is not None and found.hypotheses[0].attention is not None
    parts = [found.encoder.states, *(array for _, array in found.hypotheses[0].attention)]
    room = sum(len(base64.b64encode(part.tobytes())) for part in parts)
    monkeypatch.setattr(module, "MAX_PAGE_SIZE", room)
    document: Any = found.page_data()
    assert len(document["hypotheses"]) == 1
    assert document["notes"][:-1] == before and document["notes"][-1].startswith(
        "the last 2 of 3 translations are left out"
    )
    monkeypatch.setattr(module, "MAX_PAGE_SIZE", room - 1)
    with pytest.raises(InputError, match="are too many for a page; give a shorter text"):
        found.page_data()
