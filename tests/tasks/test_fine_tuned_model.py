"""Fine-tuned folders: transformers computes the same logits, loading is bit-identical, and damage is reported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tokenizers as library
import torch
from torch import Tensor

from regard.checkpoints import loading
from regard.checkpoints.files import read_tensors, write_folder
from regard.data.examples import ChoiceExample, QuestionExample, TaggedExample, TextExample
from regard.data.readers import split_words
from regard.errors import InputError
from regard.models.family import get_family
from regard.tasks.encoder_with_head import EncoderWithHead, compute_logits
from regard.tasks.fine_tuned_model import (
    FineTunedModel,
    is_fine_tuned,
    load_fine_tuned,
    predict,
    predict_stream,
    save_fine_tuned,
)
from regard.tasks.inputs import InputBuilder, InputSequence
from regard.tasks.multiple_choice import MultipleChoice
from regard.tasks.question_answering import QuestionAnswering
from regard.tasks.regression import Regression
from regard.tasks.task import Task
from regard.tasks.text_classification import PairClassification, TextClassification
from regard.tasks.token_classification import TokenClassification
from regard.text import Tokenizer
from tests.inference.folders import randomized
from tests.tasks.conftest import Encoders

CPU = torch.device("cpu")
SENTENCE = "the long film is good"
EXAMPLES: dict[str, list[Any]] = {
    "classify": [TextExample(SENTENCE), TextExample("bad day")],
    "pair": [TextExample(SENTENCE, "bad day"), TextExample("x", "y z")],
    "regress": [TextExample(SENTENCE, "bad day"), TextExample("x", "y z")],
    "choose": [ChoiceExample(SENTENCE, ("so it was", "no", "water"))],
    "tag": [TaggedExample(SENTENCE, split_words(SENTENCE))],
    "answer": [QuestionExample("q", "what is good", SENTENCE)],
}
TASKS: dict[str, Task[Any]] = {
    "classify": TextClassification(["bad", "good", "so so"]),
    "several": TextClassification(["funny", "long"], multi_label=True),
    "pair": PairClassification(["no", "yes"]),
    "regress": Regression(2.5, 1.25),
    "choose": MultipleChoice(),
    "tag": TokenClassification(["O", "B-PER", "I-PER"]),
    "answer": QuestionAnswering(-0.5),
}
FAMILIES = ("bert", "distilbert", "roberta", "gpt2")
NEWER = ("xlm-roberta", "camembert", "mpnet", "electra", "albert", "modernbert", "deberta-v2")
CASES = [(family, name) for family in FAMILIES for name in ("classify", "choose", "tag", "answer")]
CASES += [("mpnet", "choose"), ("electra", "choose"), ("modernbert", "choose"), ("modernbert", "tag")]
CASES += [(family, "classify") for family in NEWER] + [("modernbert", "answer"), ("camembert", "answer")]
CASES += [("deberta-v2", name) for name in ("choose", "tag", "answer", "pair")]
CASES += [("mistral", name) for name in ("classify", "choose", "tag", "several", "regress")]
CASES += [("gemma2", "classify"), ("gemma2", "tag"), ("gemma3-text", "classify")]
CASES += [("bert", "several"), ("bert", "pair"), ("bert", "regress"), ("gpt2", "several"), ("gpt2", "regress")]
AGAIN = [*(("bert", name) for name in TASKS), *((family, "classify") for family in (*FAMILIES[1:], "mistral"))]
AGAIN += [("roberta", "choose"), ("electra", "classify"), ("albert", "tag"), ("modernbert", "tag")]
AGAIN += [("deberta-v2", "classify"), ("deberta-v2", "tag")]
AGAIN += [("elmo", "classify"), ("elmo", "tag")]


@pytest.fixture(scope="module")
def build_fine_tuned(encoder_of: Encoders, tokenizers: dict[str, Tokenizer]) -> Any:
    def make(family: str, name: str) -> FineTunedModel:
        model = EncoderWithHead.from_encoder(encoder_of(family), TASKS[name])
        randomized(model.head)
        if model.mix is not None:
            randomized(model.mix)
        return FineTunedModel(TASKS[name], model.eval(), tokenizers[family], 48)

    return make


@pytest.fixture(scope="module")
def saved_folder(build_fine_tuned: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    save_fine_tuned(build_fine_tuned("bert", "classify"), folder)
    return folder


@pytest.fixture
def classifier_folder(saved_folder: Path, tmp_path: Path) -> Path:
    """A fine-tuned BERT of three classes, for tests that damage it."""
    return Path(shutil.copytree(saved_folder, tmp_path / "classified"))


def load_with_transformers(folder: Path, kind: str) -> Any:
    """Load with transformers' auto classes; any warning is a failure."""
    import transformers

    model, about = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(folder, output_loading_info=True)
    assert not any(about.values()), about
    assert type(model).__name__ == model.config.architectures[0]
    return model.eval()


def transformers_logits(model: Any, row: InputSequence, task: Task[Any]) -> Tensor:
    given = {"input_ids": torch.tensor([row.ids]), "attention_mask": torch.ones(1, len(row), dtype=torch.long)}
    if get_family(model.config.model_type.replace("_", "-")).can("segments"):
        given["token_type_ids"] = torch.tensor([row.segments])
    if type(model).__name__.endswith("MultipleChoice"):
        given = {name: value[None] for name, value in given.items()}
    with torch.no_grad():
        found = model(**given)
    if task.name == "answer":
        return torch.stack([found.start_logits[0], found.end_logits[0]], -1)
    logits: Tensor = found.logits
    return logits[0][row.positions] if task.name == "tag" else logits


@pytest.mark.parametrize(("family", "name"), CASES)
def test_transformers_gives_the_same_logits(build_fine_tuned: Any, tmp_path: Path, family: str, name: str) -> None:
    fine_tuned = build_fine_tuned(family, name)
    task = fine_tuned.task
    save_fine_tuned(fine_tuned, tmp_path)
    kind = "SequenceClassification" if name == "choose" and family in ("gpt2", "mistral") else task.transformers_head
    theirs = load_with_transformers(tmp_path, kind)
    items = task.preprocess(EXAMPLES[task.name], fine_tuned.input_builder)
    for index, ours in compute_logits(fine_tuned.model, items, CPU):
        expected = torch.cat([transformers_logits(theirs, row, task) for row in items[index].sequences])
        torch.testing.assert_close(ours, expected.float(), atol=1e-5, rtol=2e-5)
        assert ours.abs().max() > 0.01
    if task.labels:
        assert tuple(theirs.config.id2label[number] for number in range(len(task.labels))) == task.labels
        assert theirs.config.label2id == {label: number for number, label in enumerate(task.labels)}
        assert theirs.config.num_labels == task.num_outputs
    problems = {"regress": "regression", "several": "multi_label_classification"}
    if task.transformers_head == "SequenceClassification":
        assert theirs.config.problem_type == problems.get(name, "single_label_classification")


def test_transformers_pads_a_gpt_that_has_a_token_for_it(
    encoder_of: Encoders, tokenizers: dict[str, Tokenizer], tmp_path: Path
) -> None:
    pipeline = library.Tokenizer.from_str(tokenizers["gpt2"].files()["tokenizer.json"].decode())
    tokens = Tokenizer(
        pipeline, special_tokens={"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "pad_token": "!"}
    )
    model = EncoderWithHead.from_encoder(encoder_of("gpt2"), TASKS["classify"])
    randomized(model.head)
    fine_tuned = FineTunedModel(TASKS["classify"], model.eval(), tokens, 48)
    save_fine_tuned(fine_tuned, tmp_path)
    items = fine_tuned.task.preprocess(EXAMPLES["classify"], fine_tuned.input_builder)
    width = max(map(len, items))
    assert tokens.pad_token_id is not None
    ids = torch.tensor([[*item.sequences[0].ids, *[tokens.pad_token_id] * (width - len(item))] for item in items])
    with torch.no_grad():
        expected = load_with_transformers(tmp_path, "SequenceClassification")(ids).logits
    for index, ours in compute_logits(fine_tuned.model, items, CPU):
        torch.testing.assert_close(ours[0], expected[index], atol=1e-5, rtol=0)


@pytest.mark.parametrize(("family", "name"), AGAIN)
def test_written_and_read_again(build_fine_tuned: Any, tmp_path: Path, family: str, name: str) -> None:
    fine_tuned = build_fine_tuned(family, name)
    assert not is_fine_tuned(tmp_path)
    save_fine_tuned(fine_tuned, tmp_path, files={"report.json": b"{}"})
    assert is_fine_tuned(tmp_path)
    assert (tmp_path / "report.json").read_bytes() == b"{}"
    again = load_fine_tuned(tmp_path)
    assert type(again.task) is type(fine_tuned.task)
    assert again.task.to_dict() == fine_tuned.task.to_dict()
    rows = again.input_builder
    assert isinstance(rows, InputBuilder)
    assert (again.length, rows.max_length, rows.family) == (48, 48, family)
    assert not again.model.training
    before, after = fine_tuned.model.state_dict(), again.model.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert again.model.encoder.config == fine_tuned.model.encoder.config
    examples = EXAMPLES[fine_tuned.task.name]
    assert predict(again, examples, device=CPU) == predict(fine_tuned, examples, device=CPU)
    assert list(predict_stream(again, iter(examples), device=CPU)) == predict(fine_tuned, examples, device=CPU)
    save_fine_tuned(again, tmp_path / "twice", files={"report.json": b"{}"})
    for path in (tmp_path / "twice").iterdir():
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name


def test_a_folder_without_a_fine_tuned_model(tiny_bert_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError,
        match=r"names no class for a task.*; expected a folder that `regard train` wrote, or",
    ):
        load_fine_tuned(tiny_bert_folder)
    with pytest.raises(InputError, match="no such folder"):
        load_fine_tuned(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "clasify"}, "unknown task 'clasify'; did you mean 'classify'"),
        ({"task": None}, "unknown task 'None'"),
        ({"labels": "abc"}, "the labels are not a list of names"),
        ({"labels": [1, 2, 3]}, "the labels are not a list of names"),
        ({"labels": ["a", "b", "a"]}, "a label is listed twice"),
        ({"labels": []}, "or there is none"),
        ({"labels": ["a", "b"]}, r"classifier\.weight has shape \(3, 24\), expected \(2, 24\)"),
        ({"length": "long"}, "unexpected content"),
        ({"length": None}, "unexpected content"),
        ({"length": 4}, "length is 4, and this model reads from 8 to 64 tokens"),
        ({"length": 65}, "length is 65, and this model reads from 8 to 64 tokens"),
        ({"task": "answer", "threshold": "high"}, "unexpected content"),
        ({"task": "answer", "threshold": None}, r"lack qa_outputs\.weight, which answer needs"),
        ({"task": "regress", "mean": [], "deviation": 1}, "unexpected content"),
    ],
)
def test_an_edited_task_file(classifier_folder: Path, change: dict[str, object], message: str) -> None:
    path = classifier_folder / "task.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    (classifier_folder / "checksums.json").unlink()
    with pytest.raises(InputError, match=message) as caught:
        load_fine_tuned(classifier_folder)
    assert str(classifier_folder) in str(caught.value)


def test_an_accidentally_edited_task_file(classifier_folder: Path) -> None:
    path = classifier_folder / "task.json"
    path.write_text(path.read_text().replace("48", "49"))
    with pytest.raises(InputError, match=r"task\.json: does not match checksums\.json"):
        load_fine_tuned(classifier_folder)


@pytest.mark.parametrize("key", ["task", "length", "labels", "several"])
def test_a_task_file_with_a_missing_key(classifier_folder: Path, key: str) -> None:
    path = classifier_folder / "task.json"
    document = json.loads(path.read_text())
    del document[key]
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=rf"task\.json: '{key}' is missing"):
        load_fine_tuned(classifier_folder)


@pytest.mark.parametrize("text", ["", "[]", '{"task": "classify", "length"', '{"task": 1, "task": 2}', "\ufffd"])
def test_a_task_file_that_is_not_a_json_object(classifier_folder: Path, text: str) -> None:
    (classifier_folder / "task.json").write_text(text)
    with pytest.raises(InputError, match=r"task\.json"):
        load_fine_tuned(classifier_folder)


@pytest.mark.parametrize(
    ("family", "name", "lost"),
    [
        ("bert", "classify", "classifier.weight"),
        ("bert", "tag", "classifier.bias"),
        ("bert", "choose", "bert.pooler.dense.bias"),
        ("distilbert", "classify", "pre_classifier.weight"),
        ("roberta", "classify", "classifier.dense.weight"),
        ("gpt2", "classify", "score.weight"),
        ("bert", "answer", "qa_outputs.weight"),
        ("bert", "classify", "bert.encoder.layer.0.output.dense.weight"),
    ],
)
def test_missing_weights(build_fine_tuned: Any, tmp_path: Path, family: str, name: str, lost: str) -> None:
    save_fine_tuned(build_fine_tuned(family, name), tmp_path)
    remove_tensors(tmp_path, lost)
    with pytest.raises(InputError, match=lost.replace(".", r"\.")):
        load_fine_tuned(tmp_path)


def test_a_missing_pooler(classifier_folder: Path) -> None:
    remove_tensors(classifier_folder, "bert.pooler.dense.weight", "bert.pooler.dense.bias")
    with pytest.raises(InputError, match=r"lack bert\.pooler\.dense\.weight, which classify needs"):
        load_fine_tuned(classifier_folder)


def test_the_encoder_can_be_loaded_alone(build_fine_tuned: Any, tmp_path: Path) -> None:
    fine_tuned = build_fine_tuned("bert", "tag")
    save_fine_tuned(fine_tuned, tmp_path)
    with pytest.warns(UserWarning, match="not used: classifier"):
        model, _ = loading.load(tmp_path)
    state = model.state_dict()
    assert all(torch.equal(state[name], one) for name, one in fine_tuned.model.encoder.state_dict().items())


def remove_tensors(folder: Path, *names: str) -> None:
    """Rewrite the weights without some tensors, with matching checksums."""
    tensors = {name: one.clone() for name, one in read_tensors(folder).items()}
    for name in names:
        del tensors[name]
    other_files = ("config.json", "task.json", "tokenizer.json", "tokenizer_config.json")
    write_folder(folder, tensors=tensors, files={name: (folder / name).read_bytes() for name in other_files})
