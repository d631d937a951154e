"""The studio answers any request to any verb, with every kind of model, and keeps running.

A verb with a page is covered as soon as it is in `VERBS`; its request defines its arguments.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.applications import Starlette

import regard
from regard.data.translation_pairs import TranslationPair
from regard.inference.translation.subwords import train_subwords
from regard.inference.translation.translator import Translator, default_alignment_heads, save_translator
from regard.models import Vit, VitConfig
from regard.server.models.client_verbs import http_verbs
from regard.server.studio.routes import ACTIONS
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel, save_fine_tuned
from regard.tasks.text_classification import TextClassification
from regard.training.recipes.translation.config import TranslatorSection
from regard.training.recipes.translation.recipe import new_model
from tests.inference.folders import tiny_clip
from tests.inference.generation.folders import gpt_folder
from tests.server.conftest import create_app
from tests.server.local import local_registry
from tests.server.test_app import send_request as post

VERBS = {
    name: verb
    for name, verb in http_verbs().items()
    if verb.result_type().page_view is not None and "model" in verb.request.model_fields
}
# In make test: those of few seconds that read a text, words, a prompt and a table.
SOME_VERBS = [
    name if name in ("fill", "tokenize", "predict") else pytest.param(name, marks=pytest.mark.long) for name in VERBS
]
# Arguments that are texts.
TEXTS = {"text", "text_b", "texts", "data", "source", "prompt", "word", "target", "train", "clean", "corrupted"}
LABELED = "\n".join(f"the film {n} is {w} | {w}" for n in range(6) for w in ("good", "bad"))
PLAIN: dict[str, dict[str, Any]] = {
    "tokenize": {"source": "the film was good"},
    "fill": {"text": "the film was _ ."},
    "layers": {"train": LABELED, "task": "classify"},
    "compare": {"text": "the film was _ .", "text_b": "a good day was _ ."},
    "senses": {"word": "film", "texts": "the film was good\na film is long"},
    "map": {"texts": "the film was good\na film is long\nno water"},
    "features": {"data": LABELED},
    "activations": {"source": "the film was good\na film is long", "layer": 1, "head": 0},
    "heads": {"text": "the film was good\na film is long"},
    "patch": {"clean": "the film a", "corrupted": "the film s", "answer": "a", "wrong": "s"},
    "generate": {"prompt": "the film", "max_new_tokens": 3, "candidates": True},
    "translate": {"source": "the film was good", "steps": True},
    "predict": {"source": "the film was good", "evidence": True},
    "search": {"source": "the film was good\na film is long\nno water", "query": ["the film"]},
    "cluster": {"source": "the film was good\na film is long\nno water\na day", "num_clusters": 2},
    "similarity": {"image": "digit-7", "texts": ["the film", "a dog"]},
    "evaluate": {"data": "the film was good\tfine\na film is long\ttoxic\nthe film is no water\tfine"},
}
MAY_BE_EMPTY = {"generate"}  # a model can start without a prompt
UNUSUAL = {
    "emoji": "😀 🏳️‍🌈 film",
    "right to left": "שלום film עולם \u202e abc",
    "markup": "</script><script>alert(1)</script><img src=x onerror=alert(1)> film",
    "half a pair": "film \ud800 half",
    "null": "a\0b film",
    "only signs": "!!! ??? ...",
    "one long word": "film" * 2000,
    "many lines": "film\n" * 500,
    "marks": "f\u0301\u0327\u0336ilm" * 50,
    "quotes": "'\"`$(touch x)`; film \\n | & -- --model x",
}


def arguments_of(name: str) -> set[str]:
    return set(VERBS[name].request.model_fields)


def request_with_text(name: str, text: str) -> dict[str, Any]:
    """A request with this text for every text argument."""
    texts = arguments_of(name) & TEXTS
    assert texts, f"the request of {name} has none of {sorted(TEXTS)}: add its own to TEXTS"
    return {**PLAIN.get(name, {}), **dict.fromkeys(texts, text)}


def with_markup(value: Any) -> Any:
    if isinstance(value, list):
        return [with_markup(one) for one in value]
    return value.replace("the film", f"the film {UNUSUAL['markup']}") if isinstance(value, str) else value


def plain_request(name: str) -> dict[str, Any]:
    return PLAIN.get(name) or {"text": "the film was good and they love it"}


@pytest.fixture(scope="module")
def folders(tiny_bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model of each kind, with random weights."""
    folder = tmp_path_factory.mktemp("kinds")
    encoder, tokenizer = regard.load(tiny_bert_folder)
    task = TextClassification(["toxic", "fine"])
    with_head = EncoderWithHead.from_encoder(encoder, task).eval()
    save_fine_tuned(FineTunedModel(task, with_head, tokenizer, 64), folder / "tuned")
    pairs = [
        TranslationPair("the film was good", "der Film war gut"),
        TranslationPair("a long day", "ein langer Tag"),
    ] * 4
    subwords = train_subwords(pairs, size=290, joint=True)
    translating = new_model(
        TranslatorSection(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, embedding_size=16
        ),
        subwords,
        seed=0,
    )
    save_translator(
        Translator(translating.eval(), subwords, default_alignment_heads(translating)), folder / "translator"
    )
    torch.manual_seed(0)
    shape = VitConfig(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        image_size=(8, 8),
        patch_size=(4, 4),
        num_labels=2,
    )
    regard.save(Vit(shape), folder / "vit")
    shutil.copytree(tiny_bert_folder, folder / "bert")
    gpt = gpt_folder(folder / "gpt", positions=128)
    (folder / "clip").mkdir()
    clip = tiny_clip(folder / "clip")
    return {**{name: folder / name for name in ("bert", "tuned", "translator", "vit")}, "gpt": gpt, "clip": clip}


@pytest.fixture(scope="module")
def address(folders: dict[str, Path], run_app: Callable[[Starlette], str]) -> str:
    registry = local_registry([str(folder) for folder in folders.values()])
    assert {one.state for one in registry.states()} == {"ready"}
    return run_app(create_app(registry))


def check_handled(status: int, answer: Any) -> bool:
    """Checks that the response is a result or a one-line error message, never an internal error."""
    if status == 200:
        return bool(answer)
    return status == 422 and list(answer) == ["error"] and bool(answer["error"].strip())


def send_request(
    address: str, name: str, folder: Path, arguments: dict[str, Any], more: dict[str, str] | None = None
) -> tuple[int, Any]:
    raw = json.dumps({"model": str(folder), **arguments, **(more or {})}).encode()
    return post(address, f"/v1/{name}/view", raw=raw)[:2]


@pytest.mark.parametrize("name", VERBS)
def test_a_plain_request_is_answered_and_unsupported_models_are_rejected(
    address: str, folders: dict[str, Path], name: str
) -> None:
    answers = {kind: send_request(address, name, folder, plain_request(name)) for kind, folder in folders.items()}
    assert {kind: one for kind, one in answers.items() if not check_handled(*one)} == {}
    served = [kind for kind, (status, _) in answers.items() if status == 200]
    assert served, answers
    assert all({"view", "cli", "python"} <= set(answers[kind][1]) for kind in served)


@pytest.mark.parametrize("kind", ["bert", "gpt", "tuned", "translator"])
@pytest.mark.parametrize("name", SOME_VERBS)
def test_unusual_texts(address: str, folders: dict[str, Path], name: str, kind: str) -> None:
    wrong = {}
    for what, text in UNUSUAL.items():
        arguments = request_with_text(name, text)
        alone = {argument: value for argument, value in arguments.items() if argument != "text_b"}
        for one in (arguments, alone) if alone != arguments else (arguments,):
            answer = send_request(address, name, folders[kind], one)
            if not check_handled(*answer):
                wrong[what] = answer
    assert wrong == {}
    assert post(address, "/api/models")[0] == 200


@pytest.mark.parametrize("name", VERBS)
@pytest.mark.parametrize("text", ["", " \n\t "], ids=["empty", "blank"])
def test_empty_texts(address: str, folders: dict[str, Path], name: str, text: str) -> None:
    for folder in folders.values():
        status, answer = send_request(address, name, folder, request_with_text(name, text))
        assert check_handled(status, answer)
        if name not in MAY_BE_EMPTY and folder != folders["vit"]:
            assert status == 422


@pytest.mark.parametrize("name", SOME_VERBS)
def test_the_error_about_a_long_text_names_the_limit(address: str, folders: dict[str, Path], name: str) -> None:
    limit_errors = 0
    for kind in ("bert", "gpt", "tuned", "translator"):
        status, answer = send_request(address, name, folders[kind], request_with_text(name, "a " * 50_000))
        assert check_handled(status, answer)
        status, answer = send_request(address, name, folders[kind], request_with_text(name, "a" * 400_000))
        # A view may first report that it does not support this model.
        assert check_handled(status, answer)
        limit_errors += status == 422 and bool(re.search(r"has 400,000 characters; .*at most [\d,]+", answer["error"]))
    assert limit_errors


@pytest.mark.parametrize("name", SOME_VERBS)
@pytest.mark.parametrize("value", [3, None, [], {}, True, 1e308])
def test_values_that_are_not_text(address: str, folders: dict[str, Path], name: str, value: object) -> None:
    for argument in sorted(arguments_of(name)):
        body = {"model": str(folders["bert"]), **plain_request(name), argument: value}
        assert check_handled(*post(address, f"/v1/{name}/view", body)[:2]), argument


@pytest.mark.parametrize("name", SOME_VERBS)
def test_unusual_settings(address: str, folders: dict[str, Path], name: str) -> None:
    for argument in sorted(arguments_of(name) - TEXTS - {"model"}):
        for value in ("nonsense", "-1", "1e9", "99999999999999999999", "²", "nan", "0.5", "a,b", "1." * 500):
            for kind in ("bert", "gpt", "tuned"):
                answer = send_request(address, name, folders[kind], plain_request(name), {argument: value})
                assert check_handled(*answer), (argument, value, answer)


@pytest.mark.parametrize("name", VERBS)
def test_markup_is_escaped_in_an_exported_file(
    page_built: None, address: str, folders: dict[str, Path], name: str
) -> None:
    arguments = request_with_text(name, UNUSUAL["markup"])
    arguments.pop("text_b", None)  # not every model accepts a pair
    for argument, value in PLAIN.get(name, {}).items():  # a text that the view can use, with markup in it
        arguments[argument] = with_markup(value)
    files = 0
    for folder in (folders[kind] for kind in ("bert", "gpt", "tuned", "translator", "clip")):
        raw = json.dumps({"model": str(folder), **arguments}).encode()
        status, text, _ = post(address, f"/v1/{name}/page", raw=raw)
        assert check_handled(status, text)
        files += status == 200
        assert status != 200 or ("</script><script>alert" not in text and "</script><b>" not in text)
    assert files


@pytest.mark.parametrize("name", VERBS)
def test_two_concurrent_tabs(address: str, folders: dict[str, Path], name: str) -> None:
    folder = next(one for one in folders.values() if send_request(address, name, one, plain_request(name))[0] == 200)
    alone = send_request(address, name, folder, plain_request(name))
    answers: dict[int, Any] = {}

    def tab(number: int) -> None:
        raw = json.dumps({"model": str(folder), **plain_request(name)}).encode()
        answers[number] = post(address, f"/v1/{name}/view", raw=raw, headers={"X-Regard-Tab": str(number)})[:2]

    threads = [threading.Thread(target=tab, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [answers.get(number) for number in range(3)] == [alone] * 3


@pytest.mark.parametrize("path", [*(f"/v1/{name}/view" for name in VERBS), *(f"/api/{name}" for name in ACTIONS)])
def test_missing_and_malformed_bodies(address: str, path: str) -> None:
    for body in ({}, {"model": "nowhere"}, {"model": 3}, {"place": 3}, {"text": {"a": 1}}):
        assert check_handled(*post(address, path, body)[:2]), body


@pytest.mark.parametrize("name", ["generate"])
def test_unusual_texts_in_streams(address: str, folders: dict[str, Path], name: str) -> None:
    for what, text in {**UNUSUAL, "empty": "", "long": "a" * 400_000}.items():
        for kind in ("bert", "gpt", "tuned"):
            raw = json.dumps({"model": str(folders[kind]), **request_with_text(name, text)}).encode()
            status, answer, headers = post(address, f"/v1/{name}/events", raw=raw)
            if status == 200:
                pieces = [json.loads(line) for line in answer.splitlines()]
                assert pieces and "ndjson" in headers["content-type"], what
                assert not any("internal error" in str(piece.get("error")) for piece in pieces), (what, pieces[-1])
            else:
                assert check_handled(status, answer), (what, answer)


@pytest.mark.long
def test_deleted_model_folders(folders: dict[str, Path], tmp_path: Path, run_app: Callable[[Starlette], str]) -> None:
    """Loaded models stay usable, others give an error message, and the studio keeps running."""
    here = {kind: Path(shutil.copytree(folder, tmp_path / kind)) for kind, folder in folders.items()}
    registry = local_registry([*map(str, here.values()), str(tmp_path / "never")])
    address = run_app(create_app(registry))
    before = {
        (name, kind): send_request(address, name, folder, plain_request(name))[0]
        for name in VERBS
        for kind, folder in here.items()
    }
    for folder in here.values():
        shutil.rmtree(folder)
    for (name, kind), status in before.items():
        answer = send_request(address, name, here[kind], plain_request(name))
        assert check_handled(*answer) and answer[0] == status, (name, kind, answer)
    for name in VERBS:
        status, answer = send_request(address, name, tmp_path / "never", plain_request(name))
        assert status == 422 and "no such folder" in answer["error"], (name, answer)
    assert post(address, "/api/models")[0] == 200
