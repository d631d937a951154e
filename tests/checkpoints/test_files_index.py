"""Which weight files are chosen, and index files that point outside the folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regard.checkpoints.files import WEIGHTS, preferred_weights, read_index
from regard.errors import InputError


def test_safetensors_and_single_files_are_preferred() -> None:
    names = ["pytorch_model.bin.index.json", "pytorch_model.bin", "model.safetensors.index.json", "model.safetensors"]
    assert tuple(reversed(names)) == WEIGHTS
    while names:
        assert preferred_weights([*names, "tf_model.h5"]) == names.pop()
    assert preferred_weights(["tf_model.h5"]) is None


def write_index(folder: Path, content: object, name: str = "model.safetensors.index.json") -> Path:
    (folder / name).write_text(json.dumps(content))
    return folder / name


def test_the_index_maps_tensors_to_files(tmp_path: Path) -> None:
    where = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    assert read_index(write_index(tmp_path, {"metadata": {"total_size": 8}, "weight_map": where})) == where
    pickles = write_index(tmp_path, {"weight_map": {"a": "pytorch_model-1.bin"}}, "pytorch_model.bin.index.json")
    assert read_index(pickles) == {"a": "pytorch_model-1.bin"}


@pytest.mark.parametrize(
    "shard",
    [
        "../model.safetensors",
        "../../etc/passwd",
        "/etc/passwd",
        "/tmp/model.safetensors",
        "sub/model.safetensors",
        "..\\model.safetensors",
        "C:model.safetensors",
        "C:\\model.safetensors",
        "..",
        ".safetensors",
        "",
        "*.safetensors",
        "model.safetensors\n",
        "model.safetensors\0.bin",
        "model.bin",
        3,
        None,
        ["model.safetensors"],
    ],
)
def test_only_plain_file_names_are_accepted(tmp_path: Path, shard: object) -> None:
    path = write_index(tmp_path, {"weight_map": {"fine": "a.safetensors", "layer.0": shard}})
    with pytest.raises(InputError, match=r"index\.json: refused: tensor 'layer\.0'"):
        read_index(path)


@pytest.mark.parametrize("content", [{}, {"weight_map": {}}, {"weight_map": []}, {"weight_map": "a"}])
def test_an_empty_index(tmp_path: Path, content: object) -> None:
    with pytest.raises(InputError, match="expected an object 'weight_map'"):
        read_index(write_index(tmp_path, content))
