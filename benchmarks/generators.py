"""The models of the generation benchmark: transformers' with random weights, and ours with the same weights.

The weights are larger than freshly initialized ones, so that the generated tokens depend on the earlier ones.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.checkpoints.loading import read_model
from regard.models import Transformer, TransformerConfig

__all__ = ["BEGIN", "END", "PADDING", "gpt2", "marian"]

PADDING, BEGIN, END = 0, 1, 2
NAMES = {
    "self_attn.out_proj": "attention.output",
    "self_attn_layer_norm": "attended.norm",
    "encoder_attn.q_proj": "cross.project.query",
    "encoder_attn.k_proj": "cross.project.key",
    "encoder_attn.v_proj": "cross.project.value",
    "encoder_attn.out_proj": "cross.output",
    "encoder_attn_layer_norm": "crossed.norm",
    "fc1": "ffn.inner",
    "fc2": "ffn.outer",
    "final_layer_norm": "fed.norm",
}


def gpt2(*, tiny: bool) -> tuple[Any, nn.Module]:
    """GPT-2 small: transformers' and ours."""
    shape = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 1000} if tiny else {}
    config = _library().GPT2Config(**shape, bos_token_id=0, eos_token_id=0, attn_implementation="sdpa")
    theirs = _library().GPT2LMHeadModel(config).eval()
    _enlarge(theirs)
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return theirs, read_model(Path(folder)).eval()


def marian(*, tiny: bool) -> tuple[Any, nn.Module]:
    """MarianMT of the base sizes, the Transformer of 2017 with sines before cosines."""
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
    ours.load_state_dict(_renamed(theirs.state_dict()))
    return theirs, ours.eval()


def _library() -> Any:
    import transformers

    library: Any = transformers  # much of it has no types
    library.logging.set_verbosity_error()
    return library


def _enlarge(model: nn.Module) -> None:
    """Random weights of one seed: layers that add much to tokens that weigh more than their places.

    Else a model with one matrix for input and output says one token again and again. MarianMT has two reasons more: a
    look at the source adds the same vector at each step, so it adds little here; and what relu lets through has a mean,
    of which a layer makes the same vector for all tokens, unless the rows that read it sum to zero.
    """
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and "position" not in name:
                size = (0.2 if "out_proj" in name else 2.0) * min(parameter.shape) ** -0.5
                numbers = size * torch.randn(parameter.shape, generator=generator)
                parameter.copy_(numbers - numbers.mean(1, keepdim=True) if "fc2" in name else numbers)


def _renamed(state: dict[str, Tensor]) -> dict[str, Tensor]:
    found = {"embedding.tokens.weight": state["model.shared.weight"]}
    for name, tensor in state.items():
        ours = name.removeprefix("model.")
        if ".layers." not in name or ".self_attn.k" in name or ".self_attn.v" in name:
            continue
        if ".self_attn.q_proj." in name:
            parts = [state[name.replace(".q_proj.", f".{part}_proj.")] for part in "qkv"]
            found[ours.replace("self_attn.q_proj", "attention.project")] = torch.cat(parts)
            continue
        for theirs, new in NAMES.items():
            ours = ours.replace(f".{theirs}.", f".{new}.")
        found[ours] = tensor
    return found
