"""ONNX files give onnxruntime the outputs of Regard, with inputs that transformers' tokenizer prepares."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import regard
from regard.cli.app import run
from regard.errors import InputError, RegardError
from regard.inference import export as module
from regard.inference.export import ExportResult
from regard.tasks.encoder_with_head import compute_logits
from regard.tasks.fine_tuned_model import FineTunedModel
from tests.conftest import missing

TEXTS = ["the film", "we love the long day at the water, and they write about it", "good", "a bad sound!"]
SECONDS = ["it is\nnot so long", "they\nwe love it", "of the day\nthe day", "no\none has more time than this"]
Arrays = dict[str, NDArray[Any]]


@pytest.fixture(autouse=True, scope="module")
def packages() -> None:
    if not all(map(find_spec, ("onnx", "onnxruntime", "onnxscript"))):
        missing("needs the extra `onnx`")


def run_onnx(folder: Path, inputs: Arrays) -> Arrays:
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    wanted = [one.name for one in session.get_inputs()]
    return dict(zip(names, session.run(None, {name: inputs[name] for name in wanted}), strict=True))


def tokenize(folder: Path, *texts: list[str]) -> Arrays:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return dict(tokenizer(*texts, padding=True, truncation=True, return_token_type_ids=True, return_tensors="np"))


@dataclass(frozen=True)
class Exported:
    """An exported model, its folder, and the state of the model before the export."""

    model: nn.Module
    folder: Path
    result: ExportResult
    tensors: dict[str, torch.Tensor]
    training: list[bool]


@pytest.fixture(scope="module")
def exported(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """The tiny BERT with normalized mean vectors; it is in training mode except for the pooler."""
    model, tokenizer = regard.load(folders["bert"])
    model.train()
    model.pooler.eval()
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    training = [part.training for part in model.modules()]
    folder = tmp_path_factory.mktemp("onnx") / "bert"
    result = regard.export((model, tokenizer), output=folder, normalize=True)
    return Exported(model, folder, result, tensors, training)


def check_encoder(source: Path, folder: Path, result: ExportResult, **options: Any) -> None:
    outputs = run_onnx(folder, inputs := tokenize(folder, TEXTS))
    tokens = regard.Embedder(source, pooling="none").transform(TEXTS)
    for row, (one, mask) in enumerate(zip(tokens, inputs["attention_mask"], strict=True)):
        assert np.abs(outputs["last_hidden_state"][row][mask.astype(bool)] - one.vectors).max() < 1e-5
    vectors = regard.Embedder(source, **options).transform(TEXTS)
    assert np.abs(outputs["sentence_embedding"] - vectors).max() < 1e-5
    assert result.outputs == list(outputs) == ["last_hidden_state", "sentence_embedding"]
    assert 0 <= result.largest_difference < 1e-5


def test_an_encoder(exported: Exported, folders: dict[str, Path]) -> None:
    folder, result = exported.folder, exported.result
    check_encoder(folders["bert"], folder, result, normalize=True)
    assert result.inputs == ["input_ids", "attention_mask", "token_type_ids"]
    files = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert result.files == sorted(name for name in files if name != "regard.json")
    assert result.size_in_bytes == sum((folder / name).stat().st_size for name in result.files)
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["BertModel"]


def test_the_model_in_memory_stays_as_it_is(exported: Exported) -> None:
    model, after = exported.model, exported.model.state_dict()
    assert [part.training for part in model.modules()] == exported.training
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
    assert exported.tensors.keys() == after.keys()
    assert all(torch.equal(tensor, after[name]) for name, tensor in exported.tensors.items())


def test_any_batch_size_and_length(exported: Exported, folders: dict[str, Path]) -> None:
    model, _ = regard.load(folders["bert"])
    for shape in ((1, 1), (1, 128), (5, 2)):
        ids = torch.randint(5, 60, shape)
        segments = torch.randint(0, 2, shape)
        with torch.no_grad():
            expected = model(ids, None, segments).numpy()
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": segments}
        outputs = run_onnx(exported.folder, {name: tensor.numpy() for name, tensor in inputs.items()})
        assert np.abs(outputs["last_hidden_state"] - expected).max() < 1e-5


def test_the_file_names_its_axes_and_no_source_files(exported: Exported) -> None:
    import onnx

    model = onnx.load(exported.folder / "model.onnx")
    onnx.checker.check_model(model)
    for one in model.graph.input:
        assert [axis.dim_param for axis in one.type.tensor_type.shape.dim] == ["batch_size", "sequence_length"]
    assert b".py" not in (exported.folder / "model.onnx").read_bytes()


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "pooling", "normalize"),
    [("distilbert", "cls", False), ("roberta", "max", True), ("roberta", "mean", False)],
)
def test_encoders(family: str, pooling: str, normalize: bool, folders: dict[str, Path], tmp_path: Path) -> None:
    options: dict[str, Any] = {"pooling": pooling, "normalize": normalize}
    result = regard.export(folders[family], output=tmp_path / "onnx", **options)
    check_encoder(folders[family], tmp_path / "onnx", result, **options)
    assert result.inputs == ["input_ids", "attention_mask"]


def check_task(model: FineTunedModel, folder: Path) -> ExportResult:
    """Export a model, and compare the logits of other texts with those of Regard."""
    result: ExportResult = regard.export(model, output=folder)
    task = model.task
    seconds = None if task.num_texts == 1 else SECONDS
    examples = [task.example(text, seconds and second) for text, second in zip(TEXTS, SECONDS, strict=True)]
    items = task.preprocess(examples, model.input_builder)
    expected = dict(compute_logits(model.model, items, torch.device("cpu")))
    if task.name == "choose":
        endings = [(text, line) for text, second in zip(TEXTS, SECONDS, strict=True) for line in second.splitlines()]
        inputs = tokenize(folder, *map(list, zip(*endings, strict=True)))
        inputs = {name: array.reshape(len(TEXTS), 2, -1) for name, array in inputs.items()}
    else:
        inputs = tokenize(folder, TEXTS, *([SECONDS] if seconds else []))
    outputs = run_onnx(folder, inputs)
    assert list(outputs) == result.outputs
    logits = outputs["logits"] if "logits" in outputs else np.stack(list(outputs.values()), -1)
    for row, item in enumerate(items):
        (sequence, *_), found = item.sequences, logits[row]
        if not task.pooled:
            found = found[range(len(sequence)) if sequence.positions is None else sequence.positions]
        assert np.abs(found.ravel() - expected[row].numpy().ravel()).max() < 1e-5
    return result


def test_a_fine_tuned_model(fine_tuned: Callable[..., FineTunedModel], tmp_path: Path) -> None:
    result = check_task(fine_tuned("pair"), tmp_path / "onnx")
    assert result.outputs == ["logits"] and result.largest_difference < 1e-5
    assert {"model.onnx", "config.json", "task.json", "tokenizer.json"} <= set(result.files)
    config = json.loads((tmp_path / "onnx" / "config.json").read_text())
    assert config["id2label"] == {"0": "no", "1": "yes"}
    assert config["architectures"] == ["BertForSequenceClassification"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("task", "family"),
    [
        ("classify", "roberta"),
        ("classify", "distilbert"),
        ("pair", "roberta"),
        ("regress", "bert"),
        ("choose", "bert"),
        ("choose", "distilbert"),
        ("tag", "bert"),
        ("tag", "distilbert"),
        ("answer", "bert"),
        ("answer", "distilbert"),
    ],
)
def test_tasks(task: str, family: str, fine_tuned: Callable[..., FineTunedModel], tmp_path: Path) -> None:
    result = check_task(fine_tuned(task, family), tmp_path / "onnx")
    assert result.outputs == (["start_logits", "end_logits"] if task == "answer" else ["logits"])


def test_the_terminal_shows_one_note_and_the_result(
    folders: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    assert run(["export", str(folders["roberta"]), "--format", "onnx", "--output", str(tmp_path / "onnx")]) == 0
    printed = capfd.readouterr()
    assert printed.err.count("\n") == 1 and "RoBERTa" in printed.err and "onnx" in printed.err
    first, names, _ = printed.out.splitlines()
    assert first.startswith(f"{tmp_path / 'onnx'}: 4 files")
    assert names == "input_ids, attention_mask -> last_hidden_state"  # the folder states no pooling
    assert not recwarn.list


def test_a_difference_is_an_error_and_leaves_nothing(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "write_onnx", lambda model, path, *, max_length: path.write_bytes(b"a file"))
    monkeypatch.setattr(
        module, "run_onnx", lambda path, inputs: {"last_hidden_state": torch.zeros(*inputs["input_ids"].shape, 32)}
    )
    with pytest.raises(RegardError, match=r"not written: .* differ .*at most 0.0001"):
        regard.export(folders["bert"], output=tmp_path / "onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_package_is_named_with_the_command(
    package: str, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=r"pip install 'regard\[onnx\]'"):
        regard.export(folders["bert"], output=tmp_path / "onnx")
    assert list(tmp_path.iterdir()) == []
