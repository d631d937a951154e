"""The list of modules of a folder, which every reader of modules.json shares."""

import json
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from regard.checkpoints.module_folders import activation, first_module, model_type, read_modules
from regard.errors import InputError

OWN = "sentence_transformers.models."


def write(folder: Path, name: str, document: Any) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(document), encoding="utf-8")


def test_kinds_and_folders(tmp_path: Path) -> None:
    assert read_modules(tmp_path) == [] and first_module(tmp_path) is None and model_type(tmp_path) is None
    entries = [{"type": f"{OWN}Transformer", "path": "."}, {"type": f"{OWN}Pooling"}, {"type": "theirs.Dense"}, {}]
    write(tmp_path, "modules.json", entries)
    modules = read_modules(tmp_path)
    assert [module.kind for module in modules] == ["Transformer", "Pooling", "theirs.Dense", "an unnamed module"]
    assert [module.place for module in modules[:3]] == ["", "1_Pooling", "2_Dense"]
    assert modules[0].folder == tmp_path and modules[1].folder == tmp_path / "1_Pooling"


@pytest.mark.parametrize("listed", [{}, [], ["Transformer"], "x"])
def test_what_is_no_list_of_modules_is_refused(listed: object, tmp_path: Path) -> None:
    write(tmp_path, "modules.json", listed)
    with pytest.raises(InputError, match=r"modules\.json: expected"):
        read_modules(tmp_path)


def test_the_first_module_for_documents(tmp_path: Path) -> None:
    write(tmp_path, "modules.json", [{"type": f"{OWN}Router", "path": ""}])
    types = {"query_0_Static": f"{OWN}Static", "document_0_Transformer": f"{OWN}Transformer"}
    structure = {"query": ["query_0_Static"], "document": ["document_0_Transformer"]}
    write(tmp_path, "router_config.json", {"types": types, "structure": structure})
    first = first_module(tmp_path)
    assert first is not None and first.kind == "Transformer" and first.folder == tmp_path / "document_0_Transformer"


def test_unknown_keys_are_refused_by_name_where_they_are_read(tmp_path: Path) -> None:
    write(tmp_path, "modules.json", [{"type": f"{OWN}Transformer", "path": "0", "dtype": "fp8"}, {"path": "../x"}])
    transformer, outside = read_modules(tmp_path)
    with pytest.raises(InputError, match=r"modules\.json: dtype is 'fp8'"):
        transformer.keys()
    with pytest.raises(InputError, match=r"'\.\./x'; expected a folder inside"):
        outside.keys()
    write(tmp_path, "modules.json", [{"type": f"{OWN}Transformer", "path": "0"}])
    write(tmp_path, "0/sentence_roberta_config.json", {"max_seq_length": 7, "odd": 1, "idle": None})
    keys = read_modules(tmp_path)[0].keys()
    assert keys.take_count("max_seq_length") == 7
    with pytest.raises(InputError, match=r"sentence_roberta_config\.json: odd is 1, which"):
        keys.finish()


def test_activations_are_classes_of_torch_without_sizes() -> None:
    assert activation("torch.nn.Tanh") is activation("torch.nn.modules.activation.Tanh") is nn.Tanh
    for name in ("os.system", "torch.nn.Linear", "torch.nn.functional.relu", "Tanh"):
        with pytest.raises(InputError, match="expected a class of torch"):
            activation(name)
