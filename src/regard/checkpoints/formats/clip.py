"""The files of a CLIP: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.checkpoints.file_format import SIZES, FileFormat, Table, TensorNames, keys_of, qkv
from regard.models.clip import ClipConfig

LAYER: Table = {
    "attention.project.{p}": qkv("self_attn.", ("q_proj", "k_proj", "v_proj")),
    "attention.output.{p}": "self_attn.out_proj.{p}",
    "attention_residual.norm.{p}": "layer_norm1.{p}",
    "ffn.inner.{p}": "mlp.fc1.{p}",
    "ffn.outer.{p}": "mlp.fc2.{p}",
    "ffn_residual.norm.{p}": "layer_norm2.{p}",
}

NAMES = TensorNames(
    base={
        "embedding.cls": "vision_model.embeddings.class_embedding",
        "embedding.positions": "vision_model.embeddings.position_embedding.weight",
        "embedding.project.weight": "vision_model.embeddings.patch_embedding.weight",
        "embedding.norm.{p}": "vision_model.pre_layrnorm.{p}",
        "encoder.norm.{p}": "vision_model.post_layernorm.{p}",
        "image_projection.weight": "visual_projection.weight",
        "text_embedding.tokens.weight": "text_model.embeddings.token_embedding.weight",
        "text_embedding.positions.weight": "text_model.embeddings.position_embedding.weight",
        "text_encoder.norm.{p}": "text_model.final_layer_norm.{p}",
        "text_projection.weight": "text_projection.weight",
        "logit_scale": "logit_scale",
    },
    layers={
        ("encoder.layers", "vision_model.encoder.layers"): LAYER,
        ("text_encoder.layers", "text_model.encoder.layers"): LAYER,
    },
    buffers=r"(vision|text)_model\.embeddings\.position_ids",
    squeezed=r"embedding\.(cls|positions)",
)
VISION = {
    name: name
    for name in (
        *("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "image_size", "patch_size"),
        *("num_channels", "hidden_act", "layer_norm_eps", "attention_dropout"),
    )
}
TEXT = keys_of(
    ClipConfig,
    without=(*VISION, "projection_dim"),
    text_hidden_size="hidden_size",
    num_text_layers="num_hidden_layers",
    num_text_attention_heads="num_attention_heads",
    text_intermediate_size="intermediate_size",
    text_hidden_act="hidden_act",
    text_layer_norm_eps="layer_norm_eps",
    text_attention_dropout="attention_dropout",
)
KEYS = {
    **{ours: f"vision_config.{key}" for ours, key in VISION.items()},
    **{ours: f"text_config.{key}" for ours, key in TEXT.items()},
    "projection_dim": "projection_dim",
}


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    for name, keys in (("vision_config_dict", VISION), ("text_config_dict", TEXT)):  # of files from 2022
        section = document.get(name)
        if isinstance(section, dict):
            fields |= {ours: section[key] for ours, key in keys.items() if section.get(key) is not None}


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    vision, text = document["vision_config"], document["text_config"]
    vision |= {"model_type": "clip_vision_model", "projection_dim": fields["projection_dim"]}
    text |= {"model_type": "clip_text_model", "projection_dim": fields["projection_dim"]}


FORMAT = FileFormat(
    KEYS,
    NAMES,
    optional=SIZES,  # transformers leaves out its defaults, which are those of the config
    read=read,
    write=write,
    class_prefix="CLIP",
)
