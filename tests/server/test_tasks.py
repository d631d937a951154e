"""The tasks view in a browser: it shows the output of `regard predict`, and models can be trained and used."""

from __future__ import annotations

import csv
import io
import json
import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import torch
from starlette.testclient import TestClient

import regard
from regard.checkpoints.loaded_model import LoadedModel
from regard.data.examples import Example, QuestionExample, TaggedExample, TextExample
from regard.data.readers import split_words
from regard.errors import InputError
from regard.events import drain
from regard.models import T5, T5Config
from regard.server.models.client_verbs import run_verb
from regard.server.studio import training
from regard.server.studio.routes import Studio
from regard.server.studio.training import TrainingJobs
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel, load_fine_tuned, predict, save_fine_tuned
from regard.tasks.question_answering import QuestionAnswering
from regard.tasks.registry import read_examples
from regard.tasks.task import Task
from regard.tasks.text_classification import TextClassification
from regard.tasks.token_classification import TokenClassification
from tests.server.local import local_registry, verb_host

pytest.importorskip("playwright")
from playwright.sync_api import Browser, Page, expect

from tests.server.conftest import BEARER, create_app, download, expect_url, serious_findings

expect.set_options(timeout=30_000)

TEXT = "😀 the <b>film</b> is so dull, and they love it"
PLAIN = "😀 the film is dull and they love it"
MINUS = "\N{MINUS SIGN}"
CONTEXT = "the film was long. they said it was a good day, and the water was so hot"
TASKS: dict[str, Task[Any]] = {
    "toxic": TextClassification(["toxic", "fine"]),
    "tag": TokenClassification(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]),
    "answer": QuestionAnswering(),
}


@pytest.fixture(scope="module")
def folders(tiny_bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Fine-tuned models with random weights; their predictions are poor, but exact to compare."""
    folder = tmp_path_factory.mktemp("tuned")
    for number, (name, task) in enumerate(TASKS.items()):
        encoder, tokenizer = regard.load(tiny_bert_folder)
        torch.manual_seed(number)
        model = EncoderWithHead.from_encoder(encoder, task).eval()
        with torch.no_grad():
            model.head.output.weight.mul_(20)
        save_fine_tuned(FineTunedModel(task, model, tokenizer, 64), folder / name)
    return {"plain": str(tiny_bert_folder), **{name: str(folder / name) for name in TASKS}}


def send_request(client: TestClient, name: str, **arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = client.post(f"/api/{name}", json=arguments).json()
    return found


def request_prediction(client: TestClient, model: str, *texts: str) -> dict[str, Any]:
    request = {"model": model, "source": [texts[0] if len(texts) == 1 else texts], "evidence": True}
    found: dict[str, Any] = client.post("/v1/predict/view", json=request).json()
    return found


def status_of(studio: Studio) -> training.TrainingStatus:
    job = training.training_options(studio).job
    assert job is not None
    return job


def predict_one(folder: str, example: Example) -> dict[str, Any]:
    """The output of `regard predict`."""
    return predict(load_fine_tuned(folder), [example], device=torch.device("cpu"))[0]


def open_at(page: Page, studio: str, **parameters: str) -> None:
    page.goto(f"{studio}/#tasks?{urlencode(parameters)}")
    page.wait_for_selector(".task-train")


def test_the_view_data_contains_the_output_of_predict(client: TestClient, folders: dict[str, str]) -> None:
    payload = request_prediction(client, folders["toxic"], TEXT)
    assert payload["predictions"][0]["prediction"] == predict_one(folders["toxic"], TextExample(TEXT))
    assert "give the question first" in request_prediction(client, folders["answer"], "who")["error"]
    assert "not fine-tuned for a task" in request_prediction(client, folders["plain"], "who")["error"]
    assert "the studio has no model" in request_prediction(client, "nothing", "who")["error"]
    # One encoder serves all views.
    answer = client.post("/v1/look/view", json={"model": folders["toxic"], "text": PLAIN})
    assert answer.json()["view"] == "attention"


@pytest.mark.parametrize("verb", ["faithfulness", "ablate", "look"])
def test_a_folder_deleted_before_the_first_request(
    page_built: None, folders: dict[str, str], tmp_path: Path, verb: str
) -> None:
    name = str(tmp_path / "gone")
    answers = []
    for vanishes in (False, True):
        shutil.copytree(folders["toxic"], name, dirs_exist_ok=True)
        registry = local_registry([name])
        if vanishes:
            shutil.rmtree(name)
        client = TestClient(create_app(registry), base_url="http://127.0.0.1", headers=BEARER)
        answers.append(client.post(f"/v1/{verb}/view", json={"model": name, "text": PLAIN}).json())
    assert "view" in answers[0]
    assert answers[1] == answers[0]


def test_rejected_training_requests(page_built: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    client = TestClient(create_app(local_registry([])), base_url="http://127.0.0.1", headers=BEARER)
    for arguments, error in (
        ({"task": "clasify", "path": "x"}, "did you mean 'classify'"),
        ({"task": "classify"}, "expected labeled examples"),
        ({"task": "classify", "path": "x", "content": "y"}, "one of them"),
        ({"task": "classify", "path": "nothing.tsv"}, "nothing.tsv: no such file on this machine"),
        (
            {"task": "classify", "content": "a\tb", "epochs": "many"},
            "epochs is 'many'; expected a whole number",
        ),
        (
            {"task": "classify", "content": "a\tb", "epochs": "50"},
            "epochs is '50'; expected less than or equal to 20",
        ),
        ({"task": "classify", "content": "x" * 900_001}, "Give its path instead"),
    ):
        assert error in send_request(client, "train", **arguments)["error"], arguments
    assert list(tmp_path.iterdir()) == []
    assert send_request(client, "training")["job"] is send_request(client, "cancel-training")["job"] is None


def test_translators_and_fine_tuned_models_cannot_be_fine_tuned(
    client: TestClient, folders: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    order = {"task": "classify", "content": "good\ta\nbad\tb\n"}
    for model, message in (
        ("regard-de-en", "regard-de-en translates"),
        (folders["toxic"], "is tuned for a task already"),
    ):
        assert message in send_request(client, "train", **order, model=model)["error"]
    t5 = local_registry(
        ["t5"],
        load=lambda name: LoadedModel(
            name,
            T5(T5Config(vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)),
            None,
        ),
    )
    with pytest.raises(InputError, match="t5 has no tasks"):
        training.start_training(Studio(t5), {**order, "model": "t5"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_model_can_be_trained_on_built_in_examples(
    folders: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    monkeypatch.chdir(tmp_path)
    registry = local_registry([folders["plain"]])
    studio = Studio(registry)
    order = {"builtin_examples": True, "model": folders["plain"], "epochs": "2"}
    job = training.start_training(studio, order).job
    assert job is not None and job.command == (
        "regard train classify --output trained/messages-classify --set training.num_epochs=2 "
        f"--set training.select=last --train {training.EXAMPLES} --model {folders['plain']}"
    )
    studio.training_jobs.wait()
    assert status_of(studio).state == "done", status_of(studio).error
    assert sorted(path.name for path in (tmp_path / "trained").iterdir()) == ["messages-classify"]
    request = {"model": "trained/messages-classify", "source": ["thank you"]}
    host = verb_host("trained/messages-classify")
    (prediction,) = drain(run_verb(host, "predict", request)).to_dict()["predictions"]
    assert set(prediction["probabilities"]) == {"complaint", "question", "thanks"}
    report = json.loads((tmp_path / "trained" / "messages-classify" / "report.json").read_text("utf-8"))
    assert [report["data"][part]["examples"] for part in ("train", "dev")] == [54, 6]


@pytest.mark.slow
def test_the_built_in_model_learns_the_built_in_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    studio = Studio(local_registry([]))
    training.start_training(studio, {"builtin_examples": True})
    studio.training_jobs.wait()
    fine_tuned = load_fine_tuned("trained/messages-classify")
    texts = {
        "Thank you so much, this is the best help I ever got in New York.": "thanks",
        "The bus did not come and I am angry": "complaint",
        "where is the kitchen": "question",
    }
    predictions = predict(fine_tuned, [TextExample(text) for text in texts], device=torch.device("cpu"))
    assert [one["label"] for one in predictions] == list(texts.values())


def test_built_in_examples_are_read_unchanged() -> None:
    read = read_examples("classify", training.EXAMPLES, labeled=True)
    assert len({one.text for one in read.examples}) == 60
    assert Counter(one.label for one in read.examples) == {"thanks": 20, "complaint": 20, "question": 20}
    options = training.training_options(Studio(local_registry([])))
    assert (options.builtin_examples, options.builtin_labels) == (60, ["complaint", "question", "thanks"])


def test_class_probabilities_are_bars(page: Page, address: str, folders: dict[str, str]) -> None:
    open_at(page, address, model=folders["toxic"], text=TEXT)
    prediction = predict_one(folders["toxic"], TextExample(TEXT))
    label, share = prediction["label"], max(prediction["probabilities"].values())
    expect(page.locator(".task-verdict")).to_have_text(f"{100 * share:.1f}% {label}")
    expect(page.locator("blockquote")).to_have_text(TEXT)
    rows = page.locator(".task-prediction tbody tr").all()
    displayed = {row.locator("th").inner_text(): row.locator(".task-number").get_attribute("title") for row in rows}
    assert {name: float(text or "nan") for name, text in displayed.items()} == prediction["probabilities"]
    widths = [row.locator(".task-bar div").evaluate("e => e.offsetWidth / e.parentElement.clientWidth") for row in rows]
    assert widths == pytest.approx(sorted(prediction["probabilities"].values(), reverse=True), abs=0.02)
    page.get_by_label("Text, or a question").fill("good film")
    page.keyboard.press("Enter")
    other = predict_one(folders["toxic"], TextExample("good film"))
    expect(page.locator("blockquote")).to_have_text("good film")
    expect(page.locator(".task-verdict")).to_have_text(
        f"{100 * max(other['probabilities'].values()):.1f}% {other['label']}"
    )


def test_uploads_with_the_same_name_become_two_files(tmp_path: Path) -> None:
    contents = [str(number) * 100_000 for number in range(8)]
    found: dict[str, Path] = {}

    def send(content: str) -> None:
        found[content] = training._create_unused(tmp_path / "trained" / "films.tsv", file=True)
        found[content].write_text(content)

    threads = [threading.Thread(target=send, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(set(found.values())) == 8
    assert all(path.read_text("utf-8") == content for content, path in found.items())
    assert sorted(path.name for path in (tmp_path / "trained").iterdir()) == sorted(
        ["films.tsv", *(f"films-{number}.tsv" for number in range(2, 9))]
    )


def test_a_late_training_request_leaves_no_files(
    folders: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another training starts between the check and the start of this one."""
    monkeypatch.chdir(tmp_path)

    def refuse(trainings: object, order: object, done: object, *, upload: bool) -> None:
        raise InputError("another is being trained")

    monkeypatch.setattr(TrainingJobs, "start", refuse)
    order = {"task": "classify", "content": "a\tb\n", "name": "films.tsv", "model": folders["plain"]}
    with pytest.raises(InputError, match="another is being trained"):
        training.start_training(Studio(local_registry([folders["plain"]])), order)
    assert list((tmp_path / "trained").iterdir()) == []


def test_evidence_equals_the_librarys(page: Page, client: TestClient, address: str, folders: dict[str, str]) -> None:
    open_at(page, address, model=folders["toxic"], text=PLAIN, layer="2")
    evidence = request_prediction(client, folders["toxic"], PLAIN)["predictions"][0]["evidence"][0]
    page.get_by_text("Numbers", exact=True).click()
    rows = [row.locator("td").all_inner_texts() for row in page.locator(".strip-table tbody tr").all()]
    expected_columns = (evidence["integrated"]["scores"], evidence["gradient"]["scores"], evidence["attention"][1])
    for column, values in enumerate(expected_columns):
        displayed = [float(row[column].replace(MINUS, "-")) for row in rows]
        assert displayed == pytest.approx(values, abs=6e-4)
    page.get_by_label("Attention of").select_option("all layers (rollout)")
    displayed = [float(row.locator("td").nth(2).inner_text()) for row in page.locator(".strip-table tbody tr").all()]
    assert displayed == pytest.approx(evidence["rollout"], abs=6e-4)
    page.get_by_role("link", name="All heads of this text").click()
    expect(page.get_by_label("Text", exact=True)).to_have_value(PLAIN)
    page.wait_for_selector(".export-panel")


def test_entities_are_marked_in_the_text(page: Page, address: str, folders: dict[str, str]) -> None:
    open_at(page, address, model=folders["tag"], text=PLAIN)
    entities = predict_one(folders["tag"], TaggedExample(PLAIN, tuple(split_words(PLAIN))))["entities"]
    assert entities
    marks = page.locator("mark.task-entity").all_inner_texts()
    assert marks == [f"{one['text']} {one['label']}" for one in entities]
    assert page.locator(".task-marked").inner_text().startswith("😀" if entities[0]["start"] else marks[0])
    titles = [one.get_attribute("title") for one in page.locator(".task-prediction td.task-number").all()]
    assert [float(one or "nan") for one in titles] == [one["probability"] for one in entities]


def test_answers_are_marked(page: Page, address: str, folders: dict[str, str]) -> None:
    open_at(page, address, model=folders["answer"], text="what day 😀", text_b=f"😀 {CONTEXT}")
    prediction = predict_one(folders["answer"], QuestionExample("", "what day 😀", f"😀 {CONTEXT}"))
    expect(page.locator("mark.task-answer")).to_have_text(prediction["answer"])
    listed = page.locator(".task-nbest li")
    assert listed.count() == len(prediction["nbest"])
    titles = [one.get_attribute("title") for one in listed.locator(".task-number").all()]
    assert [float(one or "nan") for one in titles] == [one["probability"] for one in prediction["nbest"]]
    listed.nth(2).get_by_role("button").click()
    expect(page.locator("mark.task-answer")).to_have_text(prediction["nbest"][2]["answer"])
    expect_url(page, "answer=2")


def test_downloaded_files(page: Page, browser: Browser, address: str, folders: dict[str, str], tmp_path: Path) -> None:
    open_at(page, address, model=folders["toxic"], text=TEXT, layer="2")
    files = {name: download(page, name, tmp_path) for name in ("HTML", "SVG", "PNG", "CSV", "JSON")}
    prediction = predict_one(folders["toxic"], TextExample(TEXT))
    rows = list(csv.DictReader(io.StringIO(files["CSV"].read_text("utf-8"))))
    shares = {row["name"]: float(row["number"]) for row in rows if row["what"] == "prediction"}
    assert shares == prediction["probabilities"]
    assert json.loads(files["JSON"].read_text("utf-8"))[0]["what"] == "prediction"
    assert prediction["label"] in files["SVG"].read_text("utf-8")
    assert files["PNG"].read_bytes()[:4] == b"\x89PNG"
    before = page.locator(".task-split").inner_text().replace("All heads of this text", "").split()
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900})
    alone = context.new_page()
    alone.goto(files["HTML"].as_uri())
    alone.wait_for_selector(".export-panel")
    assert alone.locator(".task-split").inner_text().split() == before
    assert alone.locator(".task-train").count() == 0
    context.close()


def test_a_model_is_trained_on_the_page(
    page: Page, address: str, folders: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("regard.training.trainer.LOG_EVERY", 0.0)
    lines = [f"the film number {number} is {('bad', 'good')[number % 2]}\t{number % 2}\n" for number in range(80)]
    open_at(page, address, model=folders["plain"], text="a good film")
    expect(page.get_by_text("not tuned for a task")).to_be_visible()
    order = page.locator("form.task-form")
    order.locator("input[type=file]").set_input_files(
        {"name": "films.tsv", "mimeType": "text/plain", "buffer": "".join(lines).encode()}
    )
    order.get_by_label("Epochs").fill("2")
    order.get_by_role("button", name="Train").click()
    expect(page.get_by_role("button", name="Use it")).to_be_visible(timeout=60_000)
    expect(page.locator(".task-job")).to_contain_text("step 6 of 6, epoch 2 of 2")  # 72 examples, 32 per step
    expect(page.locator("ul.states")).to_contain_text("trained/films-classify")  # before it is used
    page.get_by_role("button", name="Use it").click()
    expect(page.locator("select[name=model]")).to_have_value("trained/films-classify")
    expect(page.get_by_role("button", name="Use it")).to_have_count(0)
    page.get_by_label("Text, or a question").fill("a good film")
    page.keyboard.press("Enter")
    expect(page.locator("blockquote")).to_have_text("a good film")
    prediction = predict_one("trained/films-classify", TextExample("a good film"))
    share = max(prediction["probabilities"].values())
    expect(page.locator(".task-verdict")).to_have_text(f"{100 * share:.1f}% {prediction['label']}")
    assert (tmp_path / "trained" / "films.tsv").read_text("utf-8") == "".join(lines)


def open_attention(page: Page) -> None:
    page.locator("header summary", has_text="Look inside").click()
    page.locator("header a[href^='#attention']").click()


@pytest.mark.long
def test_form_input_is_preserved_after_a_failed_training(
    page: Page, address: str, folders: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trained").mkdir()
    path = tmp_path / "trained" / "one.tsv"
    path.write_text("only one\tlabel\n" * 20, encoding="utf-8")
    open_at(page, address, model=folders["plain"], text="a good film")
    order = page.locator("form.task-form")
    order.get_by_label("Task").select_option("pair")
    order.locator("[name=path]").fill(str(path))
    order.get_by_label("Epochs").fill("7")
    order.get_by_role("button", name="Train").click()
    expect(page.locator(".task-job")).to_contain_text("Failed")
    open_attention(page)  # nor is it lost in another view
    expect(order).to_have_count(0)
    page.go_back()
    expect(order.locator("[name=path]")).to_have_value(str(path))
    expect(order.get_by_label("Task")).to_have_value("pair")
    expect(order.get_by_label("Epochs")).to_have_value("7")


@pytest.mark.slow
def test_training_starts_with_one_button(
    page: Page, address: str, folders: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    open_at(page, address, model=folders["plain"], text="thank you")
    page.get_by_role("button", name="Train on 60 built-in sentences").click()
    expect(page.get_by_role("progressbar", name="Steps done")).to_be_visible()
    open_attention(page)  # it continues while another view is open, which then offers the new model
    expect(page.locator("ul.states")).to_contain_text("trained/messages-classify", timeout=200_000)
    page.go_back()
    page.get_by_role("button", name="Use it").click()
    expect(page.locator(".task-verdict")).to_contain_text("thanks")


def test_a_rejected_training_request_shows_the_error(browser: Browser, address: str, folders: dict[str, str]) -> None:
    page = browser.new_page()  # a rejected request is also logged as a console error
    open_at(page, address, model=folders["plain"], text="a good film")
    page.locator("form.task-form").get_by_role("button", name="Train").click()
    expect(page.get_by_role("alert").filter(has_text="expected labeled examples")).to_be_visible()
    page.close()


@pytest.mark.parametrize(("width", "scheme"), [pytest.param(1280, "light", marks=pytest.mark.long), (390, "dark")])
@pytest.mark.parametrize("name", ["plain", *TASKS])
def test_the_view_is_accessible_and_fits_a_narrow_screen(
    browser: Browser, axe: str, address: str, folders: dict[str, str], name: str, width: int, scheme: Any
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    open_at(page, address, model=folders[name], text=PLAIN, text_b=CONTEXT if name == "answer" else "")
    for part in page.locator("main summary").all():
        if part.locator("xpath=..").get_attribute("open") is None:
            part.click()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert serious_findings(page, axe) == []
    page.close()
