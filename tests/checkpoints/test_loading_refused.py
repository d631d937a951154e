"""Weights that do not match config.json: errors name each tensor as in the file, with the expected shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from regard.checkpoints.files import read_tensors
from regard.checkpoints.loading import read_model
from regard.errors import InputError
from tests.checkpoints.test_loading_models import BERT, GPT2, T5, assert_same, rewrite_tensors, save_random_model


def test_unused_tensors_give_a_warning(tmp_path: Path) -> None:
    model = save_random_model(BERT, tmp_path, output_heads=["pooler"])
    rewrite_tensors(
        tmp_path, lambda tensors: tensors | {"classifier.weight": torch.ones(2, 24), "classifier.bias": torch.ones(2)}
    )
    with pytest.warns(UserWarning, match=r"^.*: not used: classifier\.bias; classifier\.weight$") as caught:
        again = read_model(tmp_path)
    assert len(caught) == 1
    assert_same(again, model)


def test_many_unused_tensors_are_counted(tmp_path: Path) -> None:
    save_random_model(BERT, tmp_path)
    rewrite_tensors(tmp_path, lambda tensors: tensors | {f"extra.{i}": torch.ones(1) for i in range(11)})
    with pytest.warns(UserWarning, match=r"extra\.0; extra\.1; extra\.10; .* and 3 more$"):
        read_model(tmp_path)


QUERY = "bert.encoder.layer.1.attention.self.query.weight"


def assert_refused(folder: Path, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_model(folder)
    assert str(caught.value).startswith(f"{folder}: ") and str(caught.value).endswith(f"config.json: {message}")


def test_missing_tensors_are_named_as_in_the_file(tmp_path: Path) -> None:
    save_random_model(BERT, tmp_path)
    rewrite_tensors(
        tmp_path,
        lambda tensors: {name: t for name, t in tensors.items() if name not in (QUERY, "cls.predictions.bias")},
    )
    assert_refused(tmp_path, f"{QUERY} is missing; cls.predictions.bias is missing")
    rewritten_bare = {name.removeprefix("bert."): t for name, t in read_tensors(tmp_path).items() if "cls" not in name}
    save_file(rewritten_bare, tmp_path / "model.safetensors")
    assert_refused(tmp_path, f"{QUERY.removeprefix('bert.')} is missing")


def test_tensors_of_another_shape_are_named_as_in_the_file(tmp_path: Path) -> None:
    save_random_model(BERT, tmp_path)

    def change(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return tensors | {QUERY: torch.ones(24, 23), "bert.embeddings.word_embeddings.weight": torch.ones(54, 24)}

    rewrite_tensors(tmp_path, change)
    assert_refused(
        tmp_path,
        "bert.embeddings.word_embeddings.weight has shape (54, 24), expected (53, 24); "
        f"{QUERY} has shape (24, 23), expected (24, 24)",
    )


def test_shapes_that_match_only_in_total_are_refused(tmp_path: Path) -> None:
    """Query, key and value share one matrix in Regard; each must fill its own third of it."""
    save_random_model(BERT, tmp_path)
    key = QUERY.replace("query", "key")
    rewrite_tensors(tmp_path, lambda tensors: tensors | {QUERY: torch.ones(20, 24), key: torch.ones(28, 24)})
    assert_refused(
        tmp_path, f"{QUERY} has shape (20, 24), expected (24, 24); {key} has shape (28, 24), expected (24, 24)"
    )


def test_shapes_in_errors_are_those_of_the_file(tmp_path: Path) -> None:
    save_random_model(GPT2, tmp_path)
    name = "transformer.h.0.mlp.c_fc.weight"
    rewrite_tensors(tmp_path, lambda tensors: tensors | {name: tensors[name].T.contiguous()})
    assert_refused(tmp_path, f"{name} has shape (37, 24), expected (24, 37)")


def test_integer_weights_are_refused(tmp_path: Path) -> None:
    save_random_model(BERT, tmp_path)
    rewrite_tensors(tmp_path, lambda tensors: tensors | {QUERY: torch.ones(24, 24, dtype=torch.int32)})
    assert_refused(tmp_path, f"{QUERY} has dtype torch.int32, expected a floating point type")


@pytest.mark.parametrize(
    ("config", "copy", "original"),
    [
        (BERT, "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
        (GPT2, "lm_head.weight", "transformer.wte.weight"),
        (T5, "decoder.embed_tokens.weight", "shared.weight"),
    ],
)
def test_a_differing_copy_is_refused(tmp_path: Path, config: Any, copy: str, original: str) -> None:
    save_random_model(config, tmp_path)
    rewrite_tensors(tmp_path, lambda tensors: tensors | {copy: torch.ones(53, 24)})
    assert_refused(tmp_path, f"{copy} differs from {original}, but Regard uses one tensor for both")


def test_more_layers_than_the_file_has(tmp_path: Path) -> None:
    save_random_model(GPT2, tmp_path)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace('"n_layer": 2', '"n_layer": 3'))
    (tmp_path / "checksums.json").unlink()
    with pytest.raises(InputError, match=r"h\.2\.attn\.c_attn\.weight is missing; .* and 4 more$"):
        read_model(tmp_path)


@pytest.mark.timeout(60)
def test_huge_sizes_are_refused_before_allocation(tmp_path: Path) -> None:
    save_random_model(T5, tmp_path)
    path = tmp_path / "config.json"
    (tmp_path / "checksums.json").unlink()
    document = json.loads(path.read_text())
    huge = document | {
        "d_model": 10**7,
        "vocab_size": 10**7,
        "d_ff": 10**7,
        "num_layers": 200,
        "num_decoder_layers": 200,
    }
    path.write_text(json.dumps(huge))
    with pytest.raises(InputError, match=r"shared\.weight .*\(53, 24\).*\(10000000, 10000000\)"):
        read_model(tmp_path)
    path.write_text(json.dumps(huge | {"d_kv": 10**7, "num_heads": 10**7}))
    with pytest.raises(InputError, match=r"config\.json: "):
        read_model(tmp_path)
