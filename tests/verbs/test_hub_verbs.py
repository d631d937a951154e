"""`regard models NAME`, `regard download` and `regard cache`, with a hub on 127.0.0.1."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

import regard
from regard.cli.app import run
from regard.errors import InputError, RegardError
from regard.inference.model_description import ModelDescription
from regard.models import Bert, BertConfig
from regard.verbs import find
from tests.checkpoints.conftest import FakeHub, fake_hub  # noqa: F401
from tests.inference.folders import tiny_gpt

CARD = b"---\nlanguage: en\ntags:\n- x\nlicense: apache-2.0\n---\n# tiny\nlicense: none of the head\n"


def files_of(folder: Path) -> dict[str, bytes]:
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: data for name, data in files.items() if name != "checksums.json"}


@pytest.fixture
def hub(fake_hub: FakeHub, tiny_bert_folder: Path) -> FakeHub:  # noqa: F811
    fake_hub.models["user/tiny"] = {**files_of(tiny_bert_folder), "README.md": CARD, "onnx/model.onnx": b"x" * 999}
    return fake_hub


def describe(name: str) -> ModelDescription:
    result: Any = regard.list_models(name)
    assert result.families == [] and isinstance(result.model, ModelDescription)
    assert result.to_text() == result.model.to_text()
    return result.model


def test_a_model_of_the_hub_before_it_is_downloaded(hub: FakeHub) -> None:
    model = describe("user/tiny")
    weights = hub.models["user/tiny"]["model.safetensors"]
    tensors = load(weights)
    assert hub.transferred().count("model.safetensors") == 1, "its header"
    assert [one for path, one in hub.ranges if path.endswith("model.safetensors")] == ["bytes=0-100000"]
    assert model.family == "bert" and model.license == "apache-2.0" and model.commit == hub.commit("user/tiny")
    assert model.size == model.download == len(weights)
    assert model.dtypes == {"float32": sum(tensor.numel() for tensor in tensors.values())}
    assert {"fill", "embed", "look"} <= set(model.suits) and not {"predict", "generate"} & set(model.suits)
    assert model.refused == [] and model.checked_weights
    loaded, _ = regard.load("user/tiny")
    assert model.num_parameters == sum(one.numel() for one in loaded.parameters())
    again = describe("user/tiny")
    assert again.download == 0
    assert again.model_copy(update={"download": len(weights)}) == model


@pytest.mark.parametrize("damage", ["name", "shape", "header", "config", "tokenizer", "module"])
def test_what_will_be_refused(hub: FakeHub, damage: str) -> None:
    """The message is that of loading."""
    files = hub.models["user/tiny"]
    tensors = load(files["model.safetensors"])
    if damage == "name":
        tensors["bert.other"] = tensors.pop("bert.encoder.layer.0.output.dense.bias")
    elif damage == "shape":
        tensors["bert.encoder.layer.0.output.dense.bias"] = torch.ones(3)
    files["model.safetensors"] = save(tensors) if damage != "header" else b"\xff" * 200
    if damage == "config":
        files["config.json"] = files["config.json"].replace(b'"gelu"', b'"swish9"')
    if damage == "tokenizer":
        files["tokenizer.json"] = b"{}"
    if damage == "module":
        files["modules.json"] = json.dumps(
            [{"path": "", "type": "x.Transformer"}, {"path": "1_C", "type": "CNN"}]
        ).encode()
    if damage == "header":
        with pytest.raises(InputError, match=r"model\.safetensors is damaged"):
            describe("user/tiny")
        return
    (reason,) = describe("user/tiny").refused
    with pytest.raises(InputError) as caught:
        if damage == "module":
            regard.embed(["a film"], model="user/tiny")
        regard.load("user/tiny")
    assert reason.removeprefix("embed: ") == str(caught.value)


def test_a_pickle_on_the_hub_is_not_checked(hub: FakeHub) -> None:
    files = hub.models["user/tiny"]
    data = io.BytesIO()
    torch.save(load(files.pop("model.safetensors")), data)
    files["pytorch_model.bin"] = data.getvalue()
    model = describe("user/tiny")
    assert not model.checked_weights and model.size == len(data.getvalue()) and model.family == "bert"
    assert "pytorch_model.bin" not in hub.transferred()
    regard.load("user/tiny")
    model = describe("user/tiny")
    assert model.checked_weights and model.download == 0 and "float32" in model.dtypes


@pytest.mark.parametrize(
    ("name", "task", "suits"),
    [
        ("regard-spam", "classify", "predict"),
        ("regard-embed", None, "search"),
        ("regard-digits", "classify", "predict"),
        ("regard-bert", None, "fill"),
    ],
)
def test_built_in_models(name: str, task: str | None, suits: str) -> None:
    model = describe(name)
    assert model.task == task and suits in model.suits and model.refused == [] and model.download == 0
    assert bool(model.labels) == (task is not None)
    assert (model.pooling, model.normalize) == (("mean", True) if name == "regard-embed" else (None, None))


def test_a_folder_without_a_tokenizer_and_no_folder(tmp_path: Path) -> None:
    regard.save(
        Bert(
            BertConfig(hidden_size=24, num_hidden_layers=1, num_attention_heads=4, intermediate_size=37, vocab_size=8)
        ),
        tmp_path / "tiny",
    )
    model = describe(str(tmp_path / "tiny"))
    assert len(model.refused) == 1 and "has no tokenizer" in model.refused[0]
    with pytest.raises(InputError, match="no such folder"):
        describe(str(tmp_path / "other"))
    (tmp_path / "empty").mkdir()
    assert "no config.json" in describe(str(tmp_path / "empty")).refused[0]


def test_a_decoder_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models", str(tiny_gpt(tmp_path)), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)["model"]
    assert document["family"] == "gpt2" and "generate" in document["suits"] and document["refused"] == []
    assert document["context_length"] == 16


def test_a_client_of_the_server_cannot_name_a_model() -> None:
    with pytest.raises(InputError, match="no model that a client names"):
        find("models").parse({"name": "/etc"}, files=False)


def test_download_to_the_cache_and_its_removal(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.tags["user/tiny"] = {"v1": {**hub.models["user/tiny"], "vocab.txt": b"[PAD]\n"}}
    assert run(["download", "user/tiny"]) == 0
    text = capsys.readouterr().out
    assert hub.commit("user/tiny") in text and "HF_HUB_OFFLINE=1" in text
    result: Any = regard.download("user/tiny", revision="v1")
    assert result.commit == hub.commit("user/tiny", "v1") and Path(result.folder).is_dir()
    held: Any = regard.cache()
    assert {(one.name, tuple(one.refs)) for one in held.entries} == {("user/tiny", ("main",)), ("user/tiny", ("v1",))}
    assert 0 < held.size < sum(one.size for one in held.entries), "they share files"
    assert run(["cache", "--clear", "user/tiny"]) == 2
    assert "--yes" in capsys.readouterr().err and len(regard.cache().entries) == 2
    with pytest.raises(InputError, match="did you mean 'user/tiny'"):
        regard.cache(clear="user/tinny", yes=True)
    removed: Any = regard.cache(clear="user/tiny@v1", yes=True)
    assert [one.commit for one in removed.removed] == [result.commit] and len(removed.entries) == 1
    regard.load("user/tiny", offline=True)
    outside = Path(result.cache).parent / "datasets--user--data" / "blobs"
    outside.mkdir(parents=True)
    emptied: Any = regard.cache(clear="all", yes=True)
    assert emptied.entries == [] and emptied.size == 0 and emptied.freed > 0 and outside.is_dir()
    with pytest.raises(RegardError, match="no complete copy"):
        regard.load("user/tiny", offline=True)


def test_download_to_a_folder(hub: FakeHub, tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    result: Any = regard.download("user/tiny", output=folder)
    assert result.cache is None and result.folder == str(folder) and not (folder / "onnx").exists()
    assert not any(path.is_symlink() for path in folder.rglob("*"))
    _, tokenizer = regard.load(folder)
    assert tokenizer is not None
    hub.models["user/tiny"]["README.md"] = b"new"
    regard.download("user/tiny", output=folder)
    assert (folder / "README.md").read_bytes() == b"new"
    (folder / "model.safetensors").write_bytes(b"damaged in transit")
    with pytest.raises(InputError, match=r"does not match checksums\.json"):
        regard.load(folder)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "config.json").write_text("{}")
    with pytest.raises(InputError, match="in the way"):
        regard.download("user/tiny", output=foreign)
    assert [path.name for path in foreign.iterdir()] == ["config.json"]


def test_download_of_what_is_not_on_the_hub(hub: FakeHub, tmp_path: Path) -> None:
    for name in (str(tmp_path), "regard-bert", "user/none"):
        with pytest.raises(InputError):
            regard.download(name)


def test_an_adapter_of_the_hub(hub: FakeHub) -> None:
    weight = load(hub.models["user/tiny"]["model.safetensors"])["bert.encoder.layer.0.attention.self.query.weight"]
    start = "base_model.model.bert.encoder.layer.0.attention.self.query.lora_"
    tensors = {f"{start}A.weight": torch.ones(2, weight.shape[1]), f"{start}B.weight": torch.ones(weight.shape[0], 2)}
    config = {"peft_type": "LORA", "base_model_name_or_path": "user/tiny", "r": 2, "lora_alpha": 4}
    hub.models["user/lora"] = {
        "adapter_config.json": json.dumps(config).encode(),
        "adapter_model.safetensors": save(tensors),
    }
    model = describe("user/lora")
    assert model.base_model == "user/tiny" and model.refused == [] and model.download == model.size
    loaded, tokenizer = regard.load("user/lora")
    assert tokenizer is not None
    query = loaded.state_dict()["encoder.layers.0.attention.project.weight"][: len(weight)]
    torch.testing.assert_close(query, weight + 4.0)
    assert regard.download("user/lora").base_model == "user/tiny"
