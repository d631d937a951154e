"""Models of the generation benchmark: a transformers model with random weights, and Regard's with the same weights.

The weights are larger than freshly initialized ones, so that the generated tokens depend on the earlier ones.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.checkpoints.loading import load, read_model, save
from regard.models import Transformer, TransformerConfig

__all__ = ["BEGIN", "CAUSAL", "END", "PADDING", "checkpoint", "marian"]

PADDING, BEGIN, END = 0, 1, 2
NAMES = {
    "self_attn.out_proj": "attention.output",
    "self_attn_layer_norm": "attention_residual.norm",
    "encoder_attn.q_proj": "cross.project.query",
    "encoder_attn.k_proj": "cross.project.key",
    "encoder_attn.v_proj": "cross.project.value",
    "encoder_attn.out_proj": "cross.output",
    "encoder_attn_layer_norm": "cross_residual.norm",
    "fc1": "ffn.inner",
    "fc2": "ffn.outer",
    "final_layer_norm": "ffn_residual.norm",
}


def gpt2(*, tiny: bool) -> tuple[Any, nn.Module]:
    """GPT-2 small: transformers' and ours."""
    shape = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 1000} if tiny else {}
    config = _library().GPT2Config(**shape, bos_token_id=0, eos_token_id=0, attn_implementation="sdpa")
    return _with_random_weights(_library().GPT2LMHeadModel(config))


def llama(*, tiny: bool) -> tuple[Any, nn.Module]:
    """A Llama with the shape of SmolLM2-135M: transformers' and ours."""
    width, depth, heads, ffn, vocabulary = (64, 2, 4, 128, 1000) if tiny else (576, 30, 9, 1536, 49152)
    config = _library().LlamaConfig(
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        num_key_value_heads=2 if tiny else 3,
        intermediate_size=ffn,
        vocab_size=vocabulary,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
    return _with_random_weights(_library().LlamaForCausalLM(config))


CAUSAL = {"gpt2": gpt2, "llama": llama}


def checkpoint(name: str) -> tuple[Any, nn.Module]:
    """A causal model by name or folder: transformers' with the weights of ours, and ours."""
    ours, _ = load(name)
    with tempfile.TemporaryDirectory() as folder:
        save(ours, folder)
        return _library().AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa").eval(), ours


def _with_random_weights(theirs: Any) -> tuple[Any, nn.Module]:
    _enlarge(theirs.eval())
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return theirs, read_model(Path(folder)).eval()


def marian(*, tiny: bool) -> tuple[Any, nn.Module]:
    """MarianMT, the base Transformer of 2017 with all sines before the cosines: transformers' and ours."""
    depth, width, heads, ffn, vocabulary = (2, 32, 4, 64, 1000) if tiny else (6, 512, 8, 2048, 58101)
    shape = {f"{part}_{name}": value for part in ("encoder", "decoder") for name, value in
             (("layers", depth), ("attention_heads", heads), ("ffn_dim", ffn))}  # fmt: skip
    config = _library().MarianConfig(
        **shape,
        vocab_size=vocabulary,
        d_model=width,
        max_position_embeddings=512,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=PADDING,
        eos_token_id=END,
        decoder_start_token_id=BEGIN,
        forced_eos_token_id=None,
        attn_implementation="sdpa",
    )
    theirs = _library().MarianMTModel(config).eval()
    _enlarge(theirs)
    settings = {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_hidden_layers": depth,
        "num_attention_heads": heads,
        "intermediate_size": ffn,
    }
    ours = Transformer(TransformerConfig(**settings, layer_norm_eps=1e-5, arrangement="halves", dropout=0.0))
    ours.load_state_dict(_regard_state(theirs.state_dict()))
    return theirs, ours


def _library() -> Any:
    import transformers

    library: Any = transformers  # mostly untyped
    library.logging.set_verbosity_error()
    return library


def _enlarge(model: nn.Module) -> None:
    """Set random weights of one seed, with large residual updates and token embeddings larger than the positions.

    Otherwise a model with tied embeddings repeats one token. MarianMT needs two more changes: cross-attention adds
    nearly the same vector at each step, so the outputs of attention are scaled down; and the output of ReLU has a
    nonzero mean, which the second feed-forward layer would map to the same vector for all tokens, so its rows sum to
    zero.
    """
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and "position" not in name:
                scale = (0.2 if "out_proj" in name else 2.0) * min(parameter.shape) ** -0.5
                values = scale * torch.randn(parameter.shape, generator=generator)
                parameter.copy_(values - values.mean(1, keepdim=True) if "fc2" in name else values)


def _regard_state(state: dict[str, Tensor]) -> dict[str, Tensor]:
    renamed = {"embedding.tokens.weight": state["model.shared.weight"]}
    for name, tensor in state.items():
        ours = name.removeprefix("model.")
        if ".layers." not in name or ".self_attn.k" in name or ".self_attn.v" in name:
            continue
        if ".self_attn.q_proj." in name:
            parts = [state[name.replace(".q_proj.", f".{part}_proj.")] for part in "qkv"]
            renamed[ours.replace("self_attn.q_proj", "attention.project")] = torch.cat(parts)
            continue
        for theirs, new in NAMES.items():
            ours = ours.replace(f".{theirs}.", f".{new}.")
        renamed[ours] = tensor
    return renamed
