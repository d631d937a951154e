"""Malicious model folders: `regard.load` rejects them with a clear message and executes nothing in them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from regard.errors import InputError
from regard.models.bert import Bert, BertConfig


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A harmless model to start from."""
    model_folder = tmp_path / "models" / "tiny"
    regard.save(
        Bert(
            BertConfig(
                hidden_size=24,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=37,
                vocab_size=8,
                max_position_embeddings=22,
            )
        ),
        model_folder,
    )
    (model_folder / "checksums.json").unlink()
    return model_folder


def check_refused(folder: Path, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        regard.load(folder)
    assert len(str(caught.value)) < 1000


class Calls:
    """Pickles to a call that full unpickling executes."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


def change_config(folder: Path, **values: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize("inside", [False, True])
def test_a_hostile_pickle(folder: Path, tmp_path: Path, inside: bool) -> None:
    marker = tmp_path / "marker"
    call = Calls(os.system, f"touch {marker}")
    (folder / "model.safetensors").unlink()
    torch.save({"bert.pooler.dense.bias": call} if inside else call, folder / "pytorch_model.bin")
    check_refused(folder, r"pytorch_model\.bin: refused: .*nothing in it was executed.*safetensors\.torch\.save_file")
    assert not marker.exists()
    torch.load(folder / "pytorch_model.bin", weights_only=False)
    assert marker.exists(), "the file was harmless, so this test proves nothing"


@pytest.mark.parametrize(
    "values",
    [
        {"auto_map": {"AutoModel": "modeling_tiny.Tiny"}},
        {"auto_map": {"AutoModel": "someone/repository--modeling_tiny.Tiny"}, "trust_remote_code": True},
        {"custom_pipelines": {"tiny": {"impl": "modeling_tiny.Tiny", "pt": ["AutoModel"]}}},
        {"_attn_implementation": "someone/kernel"},
        {"_attn_implementation_internal": "someone/kernel"},
        {"model_type": "__import__('os').system('touch marker')"},
        {"hidden_act": "__import__('os').system('touch marker')"},
        {"architectures": ["os.system"], "model_type": "modeling_tiny"},
        {"dtype": "float32", "hidden_size": "__import__('os').system('touch marker')"},
    ],
    ids=lambda values: next(iter(values)),
)
def test_a_config_that_names_code(folder: Path, monkeypatch: pytest.MonkeyPatch, values: dict[str, object]) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    (folder / "modeling_tiny.py").write_text("open('marker', 'w')\nclass Tiny: pass\n")
    change_config(folder, **values)
    check_refused(folder, r"config\.json: ")
    assert not (folder / "marker").exists()
    assert "modeling_tiny" not in sys.modules


def test_names_in_a_config_are_not_looked_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    (folder / "modeling_tiny.py").write_text("open('marker', 'w')\nclass Tiny: pass\n")
    change_config(
        folder, architectures=["modeling_tiny.Tiny"], dtype="modeling_tiny.Tiny", tokenizer_class="modeling_tiny.Tiny"
    )
    assert isinstance(regard.load(folder)[0], Bert)
    assert not (folder / "marker").exists()


@pytest.mark.parametrize(
    "name", ["../../secret.safetensors", "/etc/passwd", "..\\secret.safetensors", "a/b.safetensors"]
)
def test_an_index_that_points_outside_the_folder(folder: Path, tmp_path: Path, name: str) -> None:
    (folder / "model.safetensors").rename(tmp_path / "secret.safetensors")
    index = {"weight_map": {"bert.pooler.dense.bias": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    check_refused(folder, r"index\.json: refused: tensor 'bert\.pooler\.dense\.bias' is listed in .*plain name")


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_truncated_weights(folder: Path, share: float) -> None:
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    check_refused(folder, r"model\.safetensors: cannot be read as safetensors .*download or copy it again")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 200_000, "nested too deeply"),
        ('{"a":' * 200_000, "nested too deeply"),
        ('{"model_type": "bert", "x": "' + "y" * 17_000_000 + '"}', "larger than 16,000,000 bytes"),
        ('{"vocab_size": ' + "9" * 10_000 + "}", "config.json"),
        ('{"vocab_size": 1e999}', "1e999 is not a finite number"),
        ('{"layer_norm_eps": NaN}', "NaN is not a finite number"),
        ('{"model_type": "bert", "model_type": "gpt2"}', "'model_type' appears twice"),
        ("{", r"config\.json:1:2: not valid JSON"),
        ("[]", r"expected a JSON object"),
        ("", r"not valid JSON"),
    ],
    ids=lambda value: value[:12],
)
def test_a_config_that_is_a_bomb_or_not_json(folder: Path, text: str, message: str) -> None:
    (folder / "config.json").write_text(text)
    check_refused(folder, message)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "values", [{"num_hidden_layers": 10**9}, {"vocab_size": 10**12}, {"hidden_size": 10**7, "num_attention_heads": 1}]
)
def test_a_config_that_requests_too_much_memory(folder: Path, values: dict[str, object]) -> None:
    change_config(folder, **values)
    check_refused(folder, r"it must be between|has shape \(8, 24\), expected \(8, 10000000\)")


def test_tensors_with_hostile_names_are_only_names(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = {"__import__('os')": torch.ones(1), "../../x": torch.ones(1), "a" * 100_000: torch.ones(1)}
    save_file(load_file(path) | tensors, path)
    with pytest.warns(UserWarning, match=r"not used: \.\./\.\./x; __import__\('os'\); a{200}$"):
        assert isinstance(regard.load(folder)[0], Bert)
