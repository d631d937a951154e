"""Adapters of PEFT: the model is that of transformers with W + s B A, computed here by hand; the rest is refused."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

import regard
from regard.checkpoints.loading import find_folder
from regard.errors import InputError
from regard.nn.masks import Padded

BERT: dict[str, Any] = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "vocab_size": 50,
    "max_position_embeddings": 22,
}
IDS = torch.arange(1, 12)[None]


def bert(folder: Path) -> Any:
    model = transformers.BertModel(transformers.BertConfig(**BERT))
    model.save_pretrained(folder)
    return model.eval()


def gpt2(folder: Path) -> Any:
    config = transformers.GPT2Config(n_embd=24, n_layer=2, n_head=4, n_positions=22, vocab_size=50)
    model = transformers.GPT2LMHeadModel(config)
    model.save_pretrained(folder)
    return model.eval()


def llama(folder: Path) -> Any:
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**BERT, num_key_value_heads=2, tie_word_embeddings=False)
    )
    model.save_pretrained(folder, max_shard_size="20KB")
    return model.eval()


def write_adapter(folder: Path, base: Path | str, tensors: dict[str, Tensor], **settings: object) -> Path:
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "base_model_name_or_path": str(base), "r": 3, "lora_alpha": 5, "task_type": None}
    (folder / "adapter_config.json").write_text(json.dumps(config | settings))
    return folder


def matrices(module: str, weight: Tensor, rank: int = 3, *, flipped: bool = False) -> dict[str, Tensor]:
    """Random matrices of LoRA for a layer, named as PEFT names them."""
    outputs, inputs = reversed(weight.shape) if flipped else weight.shape
    return {
        f"base_model.model.{module}.lora_A.weight": torch.randn(rank, inputs),
        f"base_model.model.{module}.lora_B.weight": torch.randn(outputs, rank),
    }


def change(tensors: dict[str, Tensor], module: str) -> Tensor:
    return tensors[f"base_model.model.{module}.lora_B.weight"] @ tensors[f"base_model.model.{module}.lora_A.weight"]


@pytest.mark.parametrize("prefix", ["", "bert."])
@pytest.mark.parametrize("rslora", [False, True])
def test_encoder(tmp_path: Path, prefix: str, rslora: bool) -> None:
    """Three matrices that Regard stores as one, ranks and alphas of their own, biases; a file without a prefix."""
    model = bert(tmp_path / "base")
    modules = dict(model.named_modules())
    ranks = {"encoder.layer.0.attention.self.query": 4, "encoder.layer.1.output.dense": 2}
    alphas = {"encoder.layer.1.attention.self.value": 9}
    others = ["encoder.layer.1.attention.self.key", "encoder.layer.0.intermediate.dense", "pooler.dense"]
    tensors: dict[str, Tensor] = {}
    for name in (*ranks, *alphas, *others):
        rank = ranks.get(name, 3)
        tensors |= matrices(prefix + name, modules[name].weight, rank)
        scale = alphas.get(name, 5) / (math.sqrt(rank) if rslora else rank)
        modules[name].weight.data += scale * change(tensors, prefix + name)
    bias = torch.randn(24)
    tensors[f"base_model.model.{prefix}encoder.layer.0.attention.self.query.base_layer.bias"] = bias
    modules["encoder.layer.0.attention.self.query"].bias.data = bias
    patterns = {
        "rank_pattern": {"layer.0.attention.self.query": 4, "1.output.dense": 2},
        "alpha_pattern": {r"layer\.[1-3]\.attention\.self\.(value|none)": 9},
    }
    folder = write_adapter(
        tmp_path / "adapter", tmp_path / "base", tensors, use_rslora=rslora, bias="lora_only", **patterns
    )
    loaded, _ = regard.load(folder)
    with torch.no_grad():
        torch.testing.assert_close(loaded(IDS, Padded()), model(IDS).last_hidden_state, atol=1e-5, rtol=1e-5)
    assert not (tmp_path / "adapter" / "config.json").exists(), "the adapter's folder is not changed"


def test_matrices_that_the_file_stores_transposed(tmp_path: Path) -> None:
    model = gpt2(tmp_path / "base")
    modules, tensors = dict(model.named_modules()), dict[str, Tensor]()
    for name in ("transformer.h.0.attn.c_attn", "transformer.h.1.attn.c_proj", "transformer.h.1.mlp.c_fc"):
        tensors |= matrices(name, modules[name].weight, flipped=True)
        modules[name].weight.data += 5 / 3 * change(tensors, name).T
    folder = write_adapter(tmp_path / "adapter", tmp_path / "base", tensors, fan_in_fan_out=True, task_type="CAUSAL_LM")
    loaded, _ = regard.load(folder)
    with torch.no_grad():
        expected = model.transformer(IDS).last_hidden_state
        torch.testing.assert_close(loaded(IDS, Padded()), expected, atol=1e-5, rtol=1e-5)


def test_decoder_with_an_embedding_and_modules_to_save(tmp_path: Path) -> None:
    model = llama(tmp_path / "base")
    assert (tmp_path / "base" / "model.safetensors.index.json").is_file()
    modules, tensors = dict(model.named_modules()), dict[str, Tensor]()
    for name in ("model.layers.0.self_attn.k_proj", "model.layers.1.mlp.gate_proj"):
        tensors |= matrices(name, modules[name].weight)
        modules[name].weight.data += 5 / 3 * change(tensors, name)
    low, high = torch.randn(3, 50), torch.randn(24, 3)
    start = "base_model.model.model.embed_tokens.lora_embedding_"
    tensors |= {f"{start}A": low, f"{start}B": high}
    modules["model.embed_tokens"].weight.data += 5 / 3 * (high @ low).T
    tensors["base_model.model.lm_head.weight"] = model.lm_head.weight.data = torch.randn(50, 24)
    folder = write_adapter(tmp_path / "adapter", tmp_path / "base", tensors, modules_to_save=["lm_head"])
    loaded, _ = regard.load(folder)
    with torch.no_grad():
        expected = model.model(IDS).last_hidden_state
        torch.testing.assert_close(loaded(IDS, Padded()), expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(loaded.output.weight, tensors["base_model.model.lm_head.weight"])


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    model = bert(tmp_path / "base")
    name = "encoder.layer.0.attention.self.query"
    return write_adapter(
        tmp_path / "adapter", tmp_path / "base", matrices(name, dict(model.named_modules())[name].weight)
    )


def change_config(folder: Path, **values: object) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"peft_type": None}, "peft_type is None"),
        ({"use_dora": True}, "use_dora is True"),
        ({"lora_bias": True}, "lora_bias is True"),
        ({"target_parameters": ["experts"]}, "target_parameters"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices"),
        ({"layer_replication": [[0, 2]]}, "layer_replication"),
        ({"made_up": 1}, "made_up is 1"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa'"),
        ({"base_model_name_or_path": None}, "base_model_name_or_path is None"),
        ({"base_model_name_or_path": "/nowhere/base"}, "the base model: /nowhere/base: no such folder"),
        ({"r": 4}, "has rank 3, and .* says 4"),
        ({"lora_alpha": "much"}, "lora_alpha is 'much'"),
        ({"alpha_pattern": {"(a+)+": 1}}, "alpha_pattern: .*repetitions"),
        ({"alpha_pattern": {"(query": 1}}, "alpha_pattern: '\\(query'"),
        ({"alpha_pattern": [1]}, "expected an object"),
        ({"modules_to_save": "all"}, "expected a list of names"),
    ],
    ids=lambda value: next(iter(value.items())).__repr__()[:40] if isinstance(value, dict) else "",
)
def test_settings_that_are_refused(adapter: Path, values: dict[str, object], message: str) -> None:
    change_config(adapter, **values)
    with pytest.raises(InputError, match=message):
        regard.load(adapter)


def renamed(old: str, new: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: {name.replace(old, new): tensor for name, tensor in tensors.items()}


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (renamed("query", "nothing"), "has no encoder.layer.0.attention.self.nothing.weight"),
        (renamed("base_model.model.", ""), "begins with base_model.model."),
        (renamed("lora_A", "lora_magnitude_vector"), "expected the matrices A and B"),
        (lambda tensors: dict(list(tensors.items())[:1]), "expected the matrices A"),
        (lambda tensors: {name: tensor[:, :2] for name, tensor in tensors.items()}, "the matrices"),
        (
            lambda tensors: {name: tensor[..., None] for name, tensor in tensors.items()},
            "expected the matrices A and B",
        ),
        (lambda tensors: {"base_model.model.pooler.dense.bias": torch.ones(24)}, "no matrices of LoRA"),
        (lambda tensors: tensors | {"base_model.model.pooler.dense.bias": torch.ones(3)}, "has shape"),
        (lambda tensors: tensors | {"base_model.model.other.bias": torch.ones(3)}, "has no such tensor"),
        (
            lambda tensors: {
                name.replace(
                    "encoder.layer.0.attention.self.query.lora_", "embeddings.word_embeddings.lora_embedding_"
                ).removesuffix(".weight"): tensor
                for name, tensor in tensors.items()
            },
            "at its input and again at its output",
        ),
    ],
)
def test_tensors_that_are_refused(
    adapter: Path, edit: Callable[[dict[str, Tensor]], dict[str, Tensor]], message: str
) -> None:
    path = adapter / "adapter_model.safetensors"
    save_file({name: one.contiguous() for name, one in edit(load_file(path)).items()}, path)
    with pytest.raises(InputError, match=message):
        regard.load(adapter)


def test_a_saved_embedding_that_is_tied_is_refused(tmp_path: Path) -> None:
    """PEFT gives the input another matrix than the output. One that was saved because it was resized stays tied."""
    model = gpt2(tmp_path / "base")
    name = "transformer.h.0.attn.c_attn"
    tensors = matrices(name, dict(model.named_modules())[name].weight, flipped=True)
    tensors["base_model.model.transformer.wte.weight"] = torch.randn(50, 24)
    folder = write_adapter(tmp_path / "adapter", tmp_path / "base", tensors, modules_to_save=["wte"])
    with pytest.raises(InputError, match="at its input and again at its output"):
        regard.load(folder)
    change_config(folder, modules_to_save=None)
    loaded, _ = regard.load(folder)
    assert torch.equal(loaded.embedding.tokens.weight, tensors["base_model.model.transformer.wte.weight"])


def test_an_adapter_of_an_adapter_and_of_itself(adapter: Path, tmp_path: Path) -> None:
    change_config(adapter, base_model_name_or_path=str(adapter))
    with pytest.raises(InputError, match="is an adapter of PEFT itself"):
        regard.load(adapter)
    (adapter / "adapter_model.safetensors").unlink()
    change_config(adapter, base_model_name_or_path=str(tmp_path / "base"))
    with pytest.raises(InputError, match=r"without adapter_model\.safetensors"):
        regard.load(adapter)


def test_the_joined_folder(adapter: Path, tmp_path: Path) -> None:
    """Files of the adapter come first; a change of a file or of the weights gives another folder."""
    (tmp_path / "base" / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nold\n")
    first = find_folder(adapter)
    assert find_folder(adapter) == first
    assert (first / "vocab.txt").read_text().endswith("old\n")
    assert not list(first.glob("*.safetensors"))
    (adapter / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nnew\n")
    second = find_folder(adapter)
    assert second != first and (second / "vocab.txt").read_text().endswith("new\n")
    _, tokenizer = regard.load(adapter)
    assert tokenizer is not None and tokenizer.id("new") == 5
    path = adapter / "adapter_model.safetensors"
    save_file({name: 2 * tensor for name, tensor in load_file(path).items()}, path)
    assert find_folder(adapter) not in (first, second)
    bert(tmp_path / "base")  # other weights
    assert find_folder(adapter) not in (first, second)


def test_a_record_outside_the_cache_means_nothing(tmp_path: Path) -> None:
    bert(tmp_path / "base")
    (tmp_path / "base" / "adapter.json").write_text(json.dumps({"adapter": "/etc", "base": "/etc"}))
    regard.load(tmp_path / "base")


def test_a_classifier_of_an_adapter(tmp_path: Path) -> None:
    """The class and the labels follow from the adapter, whose base model has no task head."""
    base = tmp_path / "base"
    model = bert(base)
    (base / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij"]) + "\n")
    config = transformers.BertConfig(**BERT, num_labels=7)
    reference = transformers.BertForSequenceClassification(config).eval()
    reference.bert.load_state_dict(model.state_dict())
    name = "bert.encoder.layer.1.attention.self.value"
    weight = dict(reference.named_modules())[name].weight
    tensors = matrices(name, weight)
    weight.data += 5 / 3 * change(tensors, name)
    for part, tensor in reference.classifier.named_parameters():
        tensors[f"base_model.model.classifier.{part}"] = tensor.data.clone()
    adapter = write_adapter(
        tmp_path / "adapter", base, tensors, task_type="SEQ_CLS", modules_to_save=["classifier", "score"]
    )
    loaded = regard.load(adapter)
    assert loaded.labels == tuple(f"LABEL_{number}" for number in range(7))
    with torch.no_grad():
        expected = reference(torch.tensor([[2, 5, 6, 14, 3]])).logits.softmax(-1)[0]
    (row,) = loaded.predict(["a b j"]).predictions
    torch.testing.assert_close(torch.tensor(list(row["probabilities"].values())), expected, atol=1e-5, rtol=1e-5)


def test_a_hostile_pickle_of_an_adapter(adapter: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"

    class Call:
        def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
            return os.system, (f"touch {marker}",)

    (adapter / "adapter_model.safetensors").unlink()
    torch.save({"base_model.model.x.lora_A.weight": Call()}, adapter / "adapter_model.bin")
    with pytest.raises(InputError, match=r"adapter_model\.bin: refused: .*nothing in it was executed"):
        regard.load(adapter)
    assert not marker.exists()


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "", '{"peft_type": "LORA", "r": 1e999}'], ids=range(4))
def test_a_configuration_that_is_a_bomb_or_not_json(adapter: Path, text: str) -> None:
    (adapter / "adapter_config.json").write_text(text)
    with pytest.raises(InputError, match=r"adapter_config\.json"):
        regard.load(adapter)
