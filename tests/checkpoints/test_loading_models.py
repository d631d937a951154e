"""Loading and saving models: every family and every published weight format."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import regard
from regard.checkpoints.files import read_tensors, write_folder
from regard.checkpoints.loading import read_model, write_model
from regard.errors import InputError
from regard.models.bert import BertConfig
from regard.models.family import build
from regard.models.gpt2 import GptConfig
from regard.models.seq2seq import Seq2SeqConfig
from regard.models.t5 import T5Config
from regard.models.transformer import TransformerConfig
from regard.models.vit import VitConfig
from regard.nn.masks import Padded

if TYPE_CHECKING:
    from tests.checkpoints.conftest import FakeHub

SMALL = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
TEXT = {**SMALL, "vocab_size": 53}
BERT = BertConfig(**TEXT, max_position_embeddings=22)
GPT2 = GptConfig(**TEXT, max_position_embeddings=22)
T5 = T5Config(**TEXT, head_dim=5, num_decoder_layers=3)
IDS = torch.randint(5, 53, (3, 7), generator=torch.Generator().manual_seed(0))
LAYOUT = Padded.from_lengths([7, 4, 6])


def save_random_model(config: Any, folder: Path, output_heads: list[str] | None = None) -> Any:
    """Save a model whose parameters are all random."""
    generator = torch.Generator().manual_seed(2)
    model = build(config, output_heads=output_heads).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    write_model(model, folder, files={})
    return model


def rewrite_tensors(folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    """Replace the tensors in the folder, to imitate files written by other software."""
    tensors = change({name: tensor.clone() for name, tensor in read_tensors(folder).items()})
    (folder / "checksums.json").unlink()
    save_file(tensors, folder / "model.safetensors")


def renaming(old: str, new: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: {name.replace(old, new): tensor for name, tensor in tensors.items()}


def assert_same(found: nn.Module, expected: nn.Module) -> None:
    states = found.state_dict(), expected.state_dict()
    assert set(states[0]) == set(states[1])
    for name, tensor in states[1].items():
        assert torch.equal(states[0][name], tensor), name


def load_without_warnings(folder: Path) -> Any:
    """Load; a warning is a failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return read_model(folder)


# Published weight formats


def test_a_loaded_model_is_ready_to_use_and_to_train(tmp_path: Path) -> None:
    save_random_model(BERT, tmp_path)
    before = torch.get_rng_state()
    model = read_model(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(module.training for module in model.modules())
    assert all(p.requires_grad and p.is_leaf and p.device.type == "cpu" for p in model.parameters())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert read_model(tmp_path).embedding.tokens.weight.any(), "the file was modified"  # type: ignore[union-attr]


def test_old_bert_without_a_head(tmp_path: Path) -> None:
    model = save_random_model(BERT, tmp_path, output_heads=["pooler"])

    def change(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        old = {name.removeprefix("bert."): tensor for name, tensor in tensors.items()}
        old = {name.replace("LayerNorm.weight", "LayerNorm.gamma"): tensor for name, tensor in old.items()}
        old = {name.replace("LayerNorm.bias", "LayerNorm.beta"): tensor for name, tensor in old.items()}
        return {**old, "embeddings.position_ids": torch.arange(22)[None]}

    rewrite_tensors(tmp_path, change)
    assert_same(load_without_warnings(tmp_path), model)


def test_old_bert_with_its_heads(tmp_path: Path) -> None:
    model = save_random_model(BERT, tmp_path)

    def change(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
        tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()
        return renaming("LayerNorm.weight", "LayerNorm.gamma")(tensors)

    rewrite_tensors(tmp_path, change)
    assert_same(load_without_warnings(tmp_path), model)


def test_old_gpt2(tmp_path: Path) -> None:
    model = save_random_model(GPT2, tmp_path)

    def change(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
        triangle = torch.ones(22, 22).tril()[None, None]
        return (
            bare
            | {f"h.{i}.attn.bias": triangle.clone() for i in range(2)}
            | {"lm_head.weight": bare["wte.weight"].clone()}
        )

    rewrite_tensors(tmp_path, change)
    assert_same(load_without_warnings(tmp_path), model)


def test_old_t5(tmp_path: Path) -> None:
    model = save_random_model(T5, tmp_path)

    def change(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        for copy in ("encoder.embed_tokens", "decoder.embed_tokens", "lm_head"):
            tensors[f"{copy}.weight"] = tensors["shared.weight"].clone()
        buckets = torch.zeros(32, 4)
        return tensors | {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": buckets}

    rewrite_tensors(tmp_path, change)
    again = load_without_warnings(tmp_path)
    assert again.output is None, "a true copy is the embedding itself, and is trained as one"
    assert_same(again, model)


@pytest.mark.parametrize("config", [BERT, GPT2, T5, VitConfig(**SMALL, image_size=(8, 8), patch_size=(4, 4))])
def test_shards_and_pickles(tmp_path: Path, config: Any) -> None:
    model = save_random_model(config, tmp_path / "one")
    document = (tmp_path / "one" / "config.json").read_bytes()
    tensors = read_tensors(tmp_path / "one")
    write_folder(tmp_path / "shards", tensors=tensors, files={"config.json": document}, shard_bytes=6000)
    assert len(list((tmp_path / "shards").glob("model-*.safetensors"))) > 2
    (tmp_path / "pickle").mkdir()
    (tmp_path / "pickle" / "config.json").write_bytes(document)
    torch.save(tensors, tmp_path / "pickle" / "pytorch_model.bin")
    for folder in ("one", "shards", "pickle"):
        assert_same(load_without_warnings(tmp_path / folder), model)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes_become_float32(tmp_path: Path, kind: torch.dtype) -> None:
    model = save_random_model(BERT, tmp_path)
    rewrite_tensors(tmp_path, lambda tensors: {name: tensor.to(kind) for name, tensor in tensors.items()})
    again = load_without_warnings(tmp_path)
    for name, tensor in model.state_dict().items():
        found = again.state_dict()[name]
        assert found.dtype == torch.float32
        assert torch.equal(found, tensor.to(kind).float())
    assert {p.dtype for p in read_model(tmp_path, dtype=torch.bfloat16).parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("config", [Seq2SeqConfig(score="general"), TransformerConfig(**TEXT), BERT, GPT2, T5])
def test_save_load_save_gives_the_same_bytes(tmp_path: Path, config: Any) -> None:
    save_random_model(config, tmp_path / "a")
    write_model(read_model(tmp_path / "a"), tmp_path / "b", files={})
    assert {p.name: p.read_bytes() for p in (tmp_path / "a").iterdir()} == {
        p.name: p.read_bytes() for p in (tmp_path / "b").iterdir()
    }


def test_a_model_loads_by_its_hub_name(tmp_path: Path, fake_hub: FakeHub) -> None:
    model = save_random_model(BERT, tmp_path)
    fake_hub.models["user/tiny"] = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    for offline in (None, True):
        again, tokenizer = regard.load("user/tiny", offline=offline)
        assert_same(again, model)
        assert tokenizer is None
    assert fake_hub.transferred().count("model.safetensors") == 1
    with pytest.raises(InputError, match="user/tinny: no such model on the hub"):
        regard.load("user/tinny")


# Saving


def test_a_failed_save_leaves_no_files(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    with pytest.raises(InputError, match=r"Linear cannot be saved; .*regard\.models"):
        write_model(nn.Linear(2, 2), folder, files={})
    model = build(BERT)
    model.extra = nn.Linear(2, 2)
    with pytest.raises(InputError, match=r"a BERT cannot store extra\.bias; extra\.weight"):
        write_model(model, folder, files={})
    assert not folder.exists()


def test_a_compiled_model_is_saved_as_the_original_module(tmp_path: Path) -> None:
    model = save_random_model(BERT, tmp_path / "plain")
    write_model(torch.compile(model), tmp_path / "compiled", files={})
    assert_same(load_without_warnings(tmp_path / "compiled"), model)


def test_additional_files_are_saved(tmp_path: Path) -> None:
    write_model(build(BERT), tmp_path, files={"vocab.txt": b"[PAD]\n"})
    assert (tmp_path / "vocab.txt").read_bytes() == b"[PAD]\n"
    assert "vocab.txt" in json.loads((tmp_path / "checksums.json").read_text())
