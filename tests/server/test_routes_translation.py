"""The translation route: responses to valid and invalid requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from regard.inference.generation.beam_search import Beam
from regard.inference.translation.translator import load_translator
from regard.interpret.translation import MAX_SOURCE_TOKENS, translate_in_steps
from tests.server.translators import MODELS, TEXT, write_translators


@pytest.fixture(scope="module")
def folders(tiny_bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {"plain": str(tiny_bert_folder), **write_translators(tmp_path_factory.mktemp("translators"), steps=3)}


def request_translation(client: TestClient, model: str, text: str, beams: object = 2) -> Any:
    request = {"model": model, "source": [text], "num_beams": beams, "num_return_sequences": beams, "steps": True}
    return client.post("/v1/translate/view", json=request)


@pytest.mark.parametrize("name", MODELS)
def test_the_response_equals_the_librarys_document(client: TestClient, folders: dict[str, str], name: str) -> None:
    answer = request_translation(client, folders[name], TEXT, 4).json()
    beam = Beam(num_beams=4, num_return_sequences=4)
    result = translate_in_steps(load_translator(folders[name]), TEXT, beam=beam, name=folders[name])
    assert answer == {**result.page_data(), "cli": answer["cli"], "python": answer["python"]}
    assert "regard translate" in answer["cli"] and "regard.translate(" in answer["python"]


@pytest.mark.parametrize(
    ("text", "beams", "model", "message"),
    [
        (" ", 2, "dot", "empty"),
        ("a", "0", "dot", "num_beams is '0'"),
        ("a", 2, "plain", "does not translate"),
        ("a", 2, "nowhere", "the studio has no model 'nowhere'"),
    ],
)
def test_invalid_requests_are_rejected(
    client: TestClient, folders: dict[str, str], text: str, beams: object, model: str, message: str
) -> None:
    answer = request_translation(client, folders.get(model, model), text, beams)
    assert answer.status_code == 422 and message in answer.json()["error"]


def test_of_a_text_that_is_cut_the_first_part_is_shown(client: TestClient, folders: dict[str, str]) -> None:
    answer = request_translation(client, folders["dot"], "Markt " * MAX_SOURCE_TOKENS, 1).json()
    assert len(answer["source"]["tokens"]) <= MAX_SOURCE_TOKENS
    assert any("number 1" in note for note in answer["notes"])


@pytest.mark.parametrize("text", ["😀 🏳️‍🌈", "שלום עולם", "a\0b", "\n-x\n", "ﷺ", "/etc/hosts"])
def test_any_text_gets_a_response(client: TestClient, folders: dict[str, str], text: str) -> None:
    answer = request_translation(client, folders["transformer"], text).json()
    assert answer["text"] == text and len(answer["hypotheses"]) == 2
