"""The page's document: the same numbers, and lines that give them again."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Callable

import numpy as np
import pytest

from regard.errors import InputError
from regard.inference.generation.beam_search import Beam
from regard.inference.translation import Translator
from regard.interpret.translation import document as module
from regard.interpret.translation.decoding_steps import translate_in_steps
from regard.interpret.translation.document import translation_document

TEXT = "a dog sees the red house"
BEAM = Beam(num_beams=3, num_return_sequences=3)


def numbers(text: str, shape: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.frombuffer(base64.b64decode(text), "<f4").reshape(shape)


def test_every_number_arrives(translator: Translator) -> None:
    found = translate_in_steps(translator, TEXT, beam=BEAM)
    document = json.loads(json.dumps(translation_document("here", found, beam=BEAM), allow_nan=False))
    assert found.seen is not None
    assert document["view"] == "translation" and document["model"]["name"] == "here"
    np.testing.assert_array_equal(numbers(document["states"], found.seen.states.shape), found.seen.states)
    if found.seen.values is None:
        assert document["values"] is None
    else:
        np.testing.assert_array_equal(numbers(document["values"], found.seen.values.shape), found.seen.values)
    for told, sent in zip(found.hypotheses, document["hypotheses"], strict=True):
        assert told.looks is not None and sent["text"] == told.translation.text
        for name, part in vars(told.looks).items():
            np.testing.assert_array_equal(numbers(sent["looks"][name], part.shape), part)
        assert [step["probability"] for step in sent["steps"]] == [step.probability for step in told.steps]


def test_the_model_is_named_by_how_it_attends(made: Callable[[str], Translator]) -> None:
    def told(kind: str) -> dict[str, object]:
        found = translate_in_steps(made(kind), TEXT)
        document = translation_document("here", found, beam=None)["model"]
        assert isinstance(document, dict)
        return document

    both = {"name": "here", "width": 16}
    transformer = {"kind": "transformer", "score": "scaled dot", "recipe": None, "layers": 2, "heads": 2}
    assert told("transformer") == {**both, **transformer, "scale": pytest.approx(8**-0.5)}
    lstm = {"kind": "lstm", "score": "additive", "recipe": "deck", "layers": 1, "heads": 1, "scale": None}
    assert told("lstm additive deck") == {**both, **lstm}
    none = {"kind": "lstm", "score": "none", "recipe": "luong", "layers": 0, "heads": 0, "scale": None}
    assert told("lstm none") == {**both, **none}


def test_what_has_no_room_is_left_out_and_told(
    made: Callable[[str], Translator], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = translate_in_steps(made("lstm dot luong"), TEXT, beam=BEAM)
    whole = translation_document("here", found, beam=BEAM)
    assert whole["notes"] == []
    assert found.seen is not None and found.hypotheses[0].looks is not None
    parts = [found.seen.states, *vars(found.hypotheses[0].looks).values()]
    room = sum(len(base64.b64encode(part.tobytes())) for part in parts)
    monkeypatch.setattr(module, "ROOM", room)
    document = translation_document("here", found, beam=BEAM)
    assert len(document["hypotheses"]) == 1  # type: ignore[arg-type]
    assert document["notes"] == ["the last 2 of 3 translations are left out: a page has no room for them"]
    monkeypatch.setattr(module, "ROOM", room - 1)
    with pytest.raises(InputError, match="are too many for a page; give a shorter text"):
        translation_document("here", found, beam=BEAM)


@pytest.mark.parametrize("beam", [None, BEAM, Beam(num_beams=2, length_penalty=0.5)])
def test_the_python_lines_give_the_same(
    made: Callable[[str], Translator], beam: Beam | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = made("lstm general luong")
    found = translate_in_steps(translator, TEXT, beam=beam)
    lines = translation_document("here", found, beam=beam)["python"]
    assert isinstance(lines, str)
    monkeypatch.setattr("regard.inference.translation.load_translator", lambda name: {"here": translator}[name])
    *before, last = lines.split("\n")
    names: dict[str, object] = {}
    exec("\n".join(before), names)
    again = eval(last, names)
    assert again.document() == found.document()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("the dog's", "regard translate --beam 3 --nbest 3 --page page.html here 'the dog'\"'\"'s'"),
        ("-x y", "regard translate --beam 3 --nbest 3 --page page.html -- here '-x y'"),
        ("dog", "printf '%s\\n' dog | regard translate --beam 3 --nbest 3 --page page.html here -"),
    ],
)
def test_the_command(made: Callable[[str], Translator], text: str, line: str) -> None:
    found = translate_in_steps(made("lstm dot luong"), text, beam=BEAM)
    assert translation_document("here", found, beam=BEAM)["cli"] == line
    assert shlex.split(line)
