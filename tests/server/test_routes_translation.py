"""What the route of translations answers to good and bad questions."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from regard.inference.generation.beam_search import Beam
from regard.inference.translation import load_translator
from regard.interpret.translation import MAX_SOURCE_TOKENS, reproduction, translate_in_steps
from tests.server.translators import MODELS, TEXT, write_translators


@pytest.fixture(scope="module")
def folders(tiny_bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {"plain": str(tiny_bert_folder), **write_translators(tmp_path_factory.mktemp("translators"), lessons=3)}


@pytest.mark.parametrize("name", MODELS)
def test_it_is_the_librarys_document(client: TestClient, folders: dict[str, str], name: str) -> None:
    answer = client.post("/api/translation", json={"model": folders[name], "text": TEXT, "beam": "4"}).json()
    assert answer.pop("studio") == {"translators": [folders[one] for one in MODELS]}
    beam = Beam(num_beams=4, num_return_sequences=4)
    result = translate_in_steps(load_translator(folders[name]), TEXT, beam=beam, name=folders[name])
    result.with_reproduction(*reproduction(folders[name], TEXT, beam))
    assert answer == result.page_data()


def test_what_does_not_translate(client: TestClient, folders: dict[str, str]) -> None:
    question = {"model": folders["plain"], "text": TEXT}
    answer = client.post("/api/translation", json=question).json()
    assert answer["model"] is None and answer["hypotheses"] == []
    assert answer["notes"] == [f"{folders['plain']} does not translate: it was not trained on pairs of sentences."]
    assert answer["studio"]["translators"] == [folders[one] for one in MODELS]
    assert "studio" not in client.post("/api/translation", json={**question, "place": "#translation"}).json()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": " "}, "'text' is empty; type a text"),
        ({"text": "Markt " * MAX_SOURCE_TOKENS}, f"expected at most {MAX_SOURCE_TOKENS}: give one sentence"),
        ({"text": "a", "beam": "0"}, "'beam' should be a whole number from 1 to 10, got '0'"),
        ({"text": "a", "beam": "9" * 5000}, "'beam' should be a whole number from 1 to 10"),
        ({"text": "a", "model": "nowhere"}, "the studio has no model 'nowhere'"),
    ],
)
def test_what_cannot_be_used_is_told(
    client: TestClient, folders: dict[str, str], arguments: dict[str, str], message: str
) -> None:
    answer = client.post("/api/translation", json={"model": folders["dot"], **arguments})
    assert answer.status_code == 400 and message in answer.json()["error"]


@pytest.mark.parametrize("text", ["😀 🏳️‍🌈", "שלום עולם", "a\0b", "\n-x\n", "ﷺ"])
def test_any_text_gets_an_answer(client: TestClient, folders: dict[str, str], text: str) -> None:
    answer = client.post("/api/translation", json={"model": folders["transformer"], "text": text, "beam": "2"}).json()
    assert answer["text"] == text and len(answer["hypotheses"]) == 2
