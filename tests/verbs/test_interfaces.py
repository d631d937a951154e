"""Every verb gives the same result and the same error through all interfaces: command line, Python, HTTP."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Generator
from dataclasses import asdict
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from starlette.testclient import TestClient

import regard
from regard.cli.app import run
from regard.data.translation_pairs import TranslationPair
from regard.errors import InputError, RegardError
from regard.inference.load_model import load_model
from regard.inference.translation.subwords import train_subwords
from regard.inference.translation.translator import Translator, default_alignment_heads, save_translator
from regard.render.result import Result
from regard.server.models.registry import ModelOptions
from regard.server.models.served_model import ServedModel
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel, save_fine_tuned
from regard.tasks.text_classification import PairClassification, TextClassification
from regard.text import Tokenizer
from regard.training.recipes.translation.config import TranslatorSection
from regard.training.recipes.translation.recipe import new_model
from regard.verbs import FUNCTIONS, VERBS, find
from regard.verbs.base import cli_of, flag_of, holds_texts
from tests.checkpoints.conftest import FakeHub, fake_hub  # noqa: F401
from tests.inference.folders import tiny_clip, tiny_gpt
from tests.interpret.classifiers import deciding
from tests.server.conftest import BEARER, create_app
from tests.server.local import local_registry
from tests.verbs.examples import EXAMPLES

NAMES = {verb: name for name, verb in FUNCTIONS.items()}


@pytest.fixture(scope="session")
def placeholders(tiny_bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The values of the placeholders in the examples."""
    task = TextClassification(["negative", "positive"])
    classifier = tmp_path_factory.mktemp("classifier") / "task"
    save_fine_tuned(deciding(Tokenizer.open(tiny_bert_folder), 3), classifier)
    encoder, tokenizer = regard.load(tiny_bert_folder)
    teacher = FineTunedModel(task, EncoderWithHead.from_encoder(encoder, task), tokenizer, 32)
    save_fine_tuned(teacher, classifier.with_name("teacher"))
    translator = tmp_path_factory.mktemp("translator") / "model"
    subwords = train_subwords(
        [TranslationPair("the dog sees a cat", "der Hund sieht eine Katze")] * 4, size=264, joint=True
    )
    section = TranslatorSection(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    network = new_model(section, subwords, seed=0).eval()
    save_translator(Translator(network, subwords, default_alignment_heads(network)), translator)
    gpt = tiny_gpt(tmp_path_factory.mktemp("gpt"))
    passages = tmp_path_factory.mktemp("data") / "passages.txt"
    passages.write_text("the film was good\nthey love the day\n", encoding="utf-8")
    tagged = passages.with_name("tagged.conll")
    tagged.write_text("the O\nwater B-X\n\na O\nfilm B-X\nday O\n" * 2, encoding="utf-8")
    labeled = passages.with_name("labeled.tsv")
    rows = "".join(f"the good film {n}\tpositive\na bad day {n}\tnegative\n" for n in range(12))
    labeled.write_text("text\tlabel\n" + rows, encoding="utf-8")
    pairs = passages.with_name("pairs.tsv")
    pairs.write_text("".join(f"the dog sees a cat {n}\tder Hund sieht eine Katze {n}\n" for n in range(9)), "utf-8")
    runs = {
        name: passages.with_name(name.lower())
        for name in ("PRETRAINED", "TRAINED", "DISTILLED", "TRANSLATED", "EMBEDDER", "INDEXED", "EXPORTED", "CORPUS")
    }
    folders = {"MODEL": tiny_bert_folder, "CLASSIFIER": classifier, "GPT": gpt, "TRANSLATOR": translator}
    folders["CLIP"] = tiny_clip(tmp_path_factory.mktemp("clip"))
    pair = PairClassification(["0", "1"], positive_label="1")
    reranker = FineTunedModel(pair, EncoderWithHead.from_encoder(encoder, pair).eval(), tokenizer, 32)
    save_fine_tuned(reranker, classifier.with_name("reranker"))
    folders |= {"TEACHER": classifier.with_name("teacher"), "RERANKER": classifier.with_name("reranker"), **runs}
    files = {"PASSAGES": passages, "TAGGED": tagged, "LABELED": labeled, "PAIRS": pairs}
    return {name: str(path) for name, path in {**folders, **files}.items()}


@pytest.fixture(autouse=True)
def hub(fake_hub: FakeHub) -> None:  # noqa: F811
    """The hub of `regard download`, and an empty cache."""
    fake_hub.models["user/tiny"] = {"config.json": b"{}", "model.safetensors": b"weights"}


@pytest.fixture(scope="session")
def client(placeholders: dict[str, str]) -> TestClient:
    registry = local_registry([path for path in placeholders.values() if Path(path).is_dir()])
    return TestClient(create_app(registry), base_url="http://127.0.0.1", headers=BEARER)


def fill_placeholders(arguments: dict[str, Any], placeholders: dict[str, str]) -> dict[str, Any]:
    def fill(value: Any) -> Any:
        return placeholders.get(value, value) if isinstance(value, str) else value

    return {
        key: [fill(item) for item in value] if isinstance(value, list) else fill(value)
        for key, value in arguments.items()
    }


def without_times(document: Any) -> Any:
    """The document without times, and without lines, which a list does not have."""
    if isinstance(document, list):
        return [without_times(item) for item in document]
    if not isinstance(document, dict):
        return document
    left_out = ("seconds", "texts_per_second", "line")
    return {key: without_times(value) for key, value in document.items() if key not in left_out}


def command_line(name: str, arguments: dict[str, Any], folder: Path) -> list[str]:
    verb, line, positional = find(name), find(name).command.split(), []
    for key, value in arguments.items():
        info = verb.request.model_fields[key]
        if verb.subcommands is not None and key == verb.subcommands[0]:
            line.insert(1, value)
            continue
        if isinstance(value, list) and holds_texts(info):  # texts: the command reads them from a file
            (folder / f"{key}.txt").write_text(
                "".join(text + "\n" if isinstance(text, str) else "\t".join(text) + "\n" for text in value),
                encoding="utf-8",
            )
            value = folder / f"{key}.txt"
        if cli_of(info).get("repeat"):
            line += [word for item in value for word in (flag_of(key, info), str(item))]
            continue
        words = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        if cli_of(info).get("position"):
            positional += map(str, value) if isinstance(value, list) else [words]
        else:
            line += [flag_of(key, info)] if value is True else [flag_of(key, info), words]
    return [*line, "--json", "--", *positional]


def test_every_verb_has_an_example() -> None:
    assert set(EXAMPLES) == set(VERBS)


@pytest.mark.parametrize("name", VERBS)
def test_all_interfaces_give_the_same_result(
    name: str, placeholders: dict[str, str], client: TestClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = fill_placeholders(EXAMPLES[name].good, placeholders)
    assert run(command_line(name, arguments, tmp_path)) == 0
    printed = json.loads(capsys.readouterr().out)
    verb = find(name)
    if name in NAMES:
        result = getattr(regard, NAMES[name])(**arguments)
        assert isinstance(result, verb.result_type())
        assert without_times(result.to_dict()) == without_times(printed)
        assert without_times(json.loads(result.to_json())) == without_times(printed)
    if verb.http:
        response = client.post(f"/v1/{name}", json=arguments)
        assert response.status_code == 200, response.text
        assert without_times(response.json()) == without_times(printed)


PAGE_OPTIONS = {"generate": {"candidates": True}, "translate": {"steps": True}, "predict": {"evidence": True}}
PAGE_KEYS = {"view", "notes", "cli", "python"}  # added to the data of every view


@pytest.mark.parametrize("name", [name for name in VERBS if find(name).http and find(name).result_type().page_view])
def test_the_data_of_the_view_has_the_type_that_the_page_expects(
    name: str, placeholders: dict[str, str], client: TestClient
) -> None:
    arguments = {**fill_placeholders(EXAMPLES[name].good, placeholders), **PAGE_OPTIONS.get(name, {})}
    response = client.post(f"/v1/{name}/view", json=arguments)
    assert response.status_code == 200, response.text
    result = find(name).result_type()
    module, _, view = (result.view_type or "").partition(":")
    model: Any = getattr(import_module(module), view) if module else result
    schema = TypeAdapter(model).json_schema(mode="serialization")
    options = [schema["$defs"][one["$ref"].rpartition("/")[2]] for one in schema.get("anyOf", ())] or [schema]
    keys = set(response.json()) - PAGE_KEYS
    fitting = [
        one for one in options if set(one.get("required", ())) <= keys | PAGE_KEYS and keys <= {*one["properties"]}
    ]
    assert fitting, (keys, options)


@pytest.mark.parametrize("name", [name for name in VERBS if EXAMPLES[name].bad])
def test_all_interfaces_give_the_same_error(
    name: str, placeholders: dict[str, str], client: TestClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = EXAMPLES[name]
    assert example.bad is not None
    arguments = fill_placeholders(example.bad, placeholders)
    assert run(command_line(name, arguments, tmp_path)) == 2
    printed = capsys.readouterr().err
    assert example.error in printed
    message = printed.splitlines()[-1].removeprefix("error: ")
    if name in NAMES:
        with pytest.raises(InputError) as error:
            getattr(regard, NAMES[name])(**arguments)
        assert message in str(error.value)
    if find(name).http:
        response = client.post(f"/v1/{name}", json=arguments)
        assert response.status_code == 422
        assert message in response.json()["error"]


@pytest.mark.parametrize("name", VERBS)
def test_the_reproduction_lines_make_the_same_request(name: str, placeholders: dict[str, str]) -> None:
    verb = find(name)
    request = verb.parse(fill_placeholders(EXAMPLES[name].good, placeholders))
    words = shlex.split(verb.command_line(request).rpartition(" | ")[2])
    assert words[1:].count(verb.command.split()[-1]) and words[:2] == ["regard", verb.command.split()[0]]
    code = verb.python_code(request)
    if name in NAMES:
        calls: list[dict[str, Any]] = []
        scope: dict[str, Any] = {"Path": Path}
        scope["regard"] = type("Module", (), {NAMES[name]: staticmethod(lambda *a, **k: calls.append({"a": a, **k}))})
        exec(code.partition("\n\n")[2], scope)
        positional = [key for key, info in verb.request.model_fields.items() if cli_of(info).get("position")]
        given = dict(zip(positional, calls[0].pop("a"), strict=False)) | calls[0]
        assert verb.parse(given, python=True) == request


@pytest.mark.parametrize("name", VERBS)
def test_the_formats_are_those_of_the_result(name: str) -> None:
    verb = find(name)
    assert set(verb.formats) <= set(verb.result_type().formats())
    assert issubclass(verb.result_type(), Result)


@pytest.mark.parametrize("name", [name for name in VERBS if find(name).formats])
def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    name: str, placeholders: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = command_line(name, fill_placeholders(EXAMPLES[name].good, placeholders), tmp_path)
    suffixes, options = find(name).formats, words.index("--json")
    for output, parts in {
        tmp_path / "a.pdf": [f".{one.removeprefix('.')}" for one in suffixes],
        tmp_path / "nowhere" / f"a.{suffixes[0].removeprefix('.')}": ["there is no folder", "nowhere"],
    }.items():
        assert run([*words[:options], "--output", str(output), *words[options:]]) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and all(part in printed.err for part in parts)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        (name, field)
        for name in VERBS
        if find(name).http
        for field, info in find(name).request.model_fields.items()
        if holds_texts(info) or "Path" in str(info.annotation)
    ],
)
def test_a_client_cannot_name_a_file(name: str, field: str, placeholders: dict[str, str], tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("a secret text\n", encoding="utf-8")
    arguments = {**fill_placeholders(EXAMPLES[name].good, placeholders), field: str(secret)}
    try:
        request = find(name).parse(arguments, files=False)
    except InputError:
        return
    value = getattr(request, field)
    assert isinstance(value, list) or (value == str(secret) and not isinstance(value, Path))  # it is the text itself


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in VERBS if find(name).http])
def test_a_server_does_not_tell_where_its_models_are(name: str, placeholders: dict[str, str]) -> None:
    """Neither a result in one of its forms nor an error: clients call the models by other names."""
    folders = {key: path for key, path in placeholders.items() if Path(path).is_dir()}
    paths = {f"served-{key.lower()}": path for key, path in folders.items()}
    names = {key: f"served-{key.lower()}" for key in folders}
    served = load_served("served-model", paths["served-model"])
    forms = ["page"] if find(name).result_type().page_view else []
    forms += ["document"] if name not in ("features", "layers") else []  # slow; their pages have all of it
    good = {**EXAMPLES[name].good, **PAGE_OPTIONS.get(name, {})}
    for arguments in [good, *([EXAMPLES[name].bad] if EXAMPLES[name].bad else [])]:
        for form in forms:
            message = {"verb": name, "arguments": fill_placeholders(arguments, names), "form": form}
            message |= {"seconds": 60.0, "max_items": 2048, "paths": paths, "images": None}
            try:
                answer, *_ = next_value(served.jobs["verb"](message, threading.Event(), lambda event: None))
            except RegardError as error:
                assert arguments is not good, error
                answer = str(error).encode()
            for path in folders.values():
                assert path.encode() not in answer, answer[:2000]


@cache
def load_served(name: str, path: str) -> ServedModel:
    return ServedModel({"name": name, "path": path, "lane": "verbs", **asdict(ModelOptions(device="cpu"))})


def next_value(job: Generator[Any, None, tuple[Any, ...]]) -> tuple[Any, ...]:
    """What a job that takes one step returns."""
    try:
        next(job)
    except StopIteration as end:
        return end.value
    raise AssertionError("the job has not ended")


def test_loaded_models_give_the_same_result(placeholders: dict[str, str]) -> None:
    for name in ("embed", "score", "predict", "translate"):
        arguments = fill_placeholders(EXAMPLES[name].good, placeholders)
        loaded = load_model(arguments["model"])
        by_name = getattr(regard, name)(**arguments).to_dict()
        assert without_times(getattr(regard, name)(**{**arguments, "model": loaded}).to_dict()) == without_times(
            by_name
        )
    model, subwords = load_model(placeholders["TRANSLATOR"])
    assert regard.translate((model, subwords), "the dog sees").texts[0].source == "the dog sees"


def test_the_openapi_description_covers_every_route(client: TestClient) -> None:
    document = client.get("/v1/openapi.json").json()
    verbs = {f"/v1/{name}" for name in VERBS if find(name).http}
    assert verbs <= set(document["paths"]) and {"/embed", "/v1/embeddings", "/info"} <= set(document["paths"])
    assert '"cli"' not in json.dumps(document)
