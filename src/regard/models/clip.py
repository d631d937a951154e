"""CLIP: an encoder of images and an encoder of texts, trained to give an image and its caption similar vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.models.family import Checkpoint, Family, FileFormat, Table, TensorNames, qkv
from regard.nn.block import Block, LayerConfig
from regard.nn.embedding import LearnedPositions, PatchEmbedding, TextEmbedding
from regard.nn.masks import Layout, Packed, Padded, select_rows, to_padded
from regard.nn.stack import Stack
from regard.nn.training import normal_init

TEMPERATURE = 0.07  # of a new model: similarities are divided by it
# Configurations from before transformers 4.31 have this id in place of the end token's; that token has the highest id.
LEGACY_END = 2


@dataclass(frozen=True)
class ClipConfig:
    """CLIP base with 32x32 patches by default. Sizes without a prefix are those of the image encoder."""

    family: str = "clip"
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    image_size: tuple[int, int] = (224, 224)
    patch_size: tuple[int, int] = (32, 32)
    num_channels: int = 3
    hidden_act: str = "quick-gelu"
    layer_norm_eps: float = 1e-5
    attention_dropout: float = 0.0
    vocab_size: int = 49408
    text_hidden_size: int = 512
    num_text_layers: int = 12
    num_text_attention_heads: int = 8
    text_intermediate_size: int = 2048
    max_position_embeddings: int = 77
    text_hidden_act: str = "quick-gelu"
    text_layer_norm_eps: float = 1e-5
    text_attention_dropout: float = 0.0
    bos_token_id: int | None = 49406
    eos_token_id: int = 49407
    pad_token_id: int | None = 1
    projection_dim: int = 512


class Clip(nn.Module):
    """`model(pixels)` returns the last hidden state of an image (B, 1 + patches, W), as a ViT does.

    `model.encode_image(pixels)` and `model.encode_text(ids, layout)` return vectors (B, projection_dim) of one space,
    `model.logits_per_image(images, texts)` their scaled cosine similarities.
    """

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.config = config
        layer = LayerConfig(
            width=config.hidden_size,
            heads=config.num_attention_heads,
            ffn=config.intermediate_size,
            norm_first=True,
            eps=config.layer_norm_eps,
            activation=config.hidden_act,
            attention_dropout=config.attention_dropout,
        )
        self.embedding = PatchEmbedding(
            image=config.image_size,
            patch=config.patch_size,
            channels=config.num_channels,
            width=config.hidden_size,
            bias=False,
            norm=layer.new_norm(),
        )
        self.encoder = Stack((Block(layer) for _ in range(config.num_hidden_layers)), norm=layer.new_norm())
        self.image_projection = nn.Linear(config.hidden_size, config.projection_dim, bias=False)
        text = LayerConfig(
            width=config.text_hidden_size,
            heads=config.num_text_attention_heads,
            ffn=config.text_intermediate_size,
            norm_first=True,
            eps=config.text_layer_norm_eps,
            activation=config.text_hidden_act,
            causal=True,
            attention_dropout=config.text_attention_dropout,
        )
        self.text_embedding = TextEmbedding(
            config.vocab_size,
            config.text_hidden_size,
            positions=LearnedPositions(config.max_position_embeddings, config.text_hidden_size),
        )
        self.text_encoder = Stack((Block(text) for _ in range(config.num_text_layers)), norm=text.new_norm())
        self.text_projection = nn.Linear(config.text_hidden_size, config.projection_dim, bias=False)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / TEMPERATURE)))
        normal_init(self)

    def forward(self, pixels: Tensor, positions: Tensor | None = None) -> Tensor:
        hidden: Tensor = self.encoder(self.embedding(pixels, positions), Padded())
        return hidden

    def text_hidden(self, ids: Tensor, layout: Layout | None = None) -> Tensor:
        """Return the last hidden state of texts, (B, T, W) or (N, W) if packed."""
        layout = layout or Padded()
        hidden: Tensor = self.text_encoder(self.text_embedding(ids, layout), layout)
        return hidden

    def encode_image(self, pixels: Tensor) -> Tensor:
        """Return the projected vector of [CLS]."""
        vectors: Tensor = self.image_projection(self(pixels)[:, 0])
        return vectors

    def encode_text(self, ids: Tensor, layout: Layout | None = None) -> Tensor:
        """Return the projected vector of each text's end token, which has attended to the whole text."""
        layout = layout or Padded()
        ends = select_rows(self.text_hidden(ids, layout), self._end_indices(ids, layout))
        vectors: Tensor = self.text_projection(ends)
        return vectors

    def logits_per_image(self, images: Tensor, texts: Tensor) -> Tensor:
        """Return the cosine similarity of each image's vector with each text's, times the learned scale."""
        return self.logit_scale.exp() * (F.normalize(images, dim=-1) @ F.normalize(texts, dim=-1).T)

    def _end_indices(self, ids: Tensor, layout: Layout) -> Tensor:
        """Return the index of each text's first end token in the flat batch, (B,)."""
        rows, padded = to_padded(ids, layout)
        if padded.mask is not None:
            rows = rows.masked_fill(~padded.mask, -1)
        end = self.config.eos_token_id
        columns = (rows if end == LEGACY_END else (rows == end).int()).argmax(-1)  # the first of several
        if isinstance(layout, Packed):
            return layout.starts[:-1].long() + columns
        return torch.arange(len(ids), device=ids.device) * ids.shape[1] + columns


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
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "image_size": "image_size",
    "patch_size": "patch_size",
    "num_channels": "num_channels",
    "hidden_act": "hidden_act",
    "layer_norm_eps": "layer_norm_eps",
    "attention_dropout": "attention_dropout",
}
TEXT = {
    "vocab_size": "vocab_size",
    "text_hidden_size": "hidden_size",
    "num_text_layers": "num_hidden_layers",
    "num_text_attention_heads": "num_attention_heads",
    "text_intermediate_size": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
    "text_hidden_act": "hidden_act",
    "text_layer_norm_eps": "layer_norm_eps",
    "text_attention_dropout": "attention_dropout",
    "bos_token_id": "bos_token_id",
    "eos_token_id": "eos_token_id",
    "pad_token_id": "pad_token_id",
}
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
    for name in ("image_size", "patch_size"):
        if isinstance(fields.get(name), int):
            fields[name] = [fields[name]] * 2


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    vision, text = document["vision_config"], document["text_config"]
    for key in ("image_size", "patch_size"):
        height, width = vision[key]
        vision[key] = height if height == width else [height, width]
    vision |= {"model_type": "clip_vision_model", "projection_dim": fields["projection_dim"]}
    text |= {"model_type": "clip_text_model", "projection_dim": fields["projection_dim"]}


LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "patch_size": (14, 14),
    "text_hidden_size": 768,
    "num_text_attention_heads": 12,
    "text_intermediate_size": 3072,
    "projection_dim": 768,
}
FAMILY = Family(
    name="clip",
    title="a CLIP",
    year=2021,
    description="encoders of images and of texts with vectors in one space",
    model_class=Clip,
    config_class=ClipConfig,
    capabilities=frozenset({"image", "image-text"}),
    stacks=("encoder", "text_encoder"),
    image_processor={
        "default_to_square": False,  # `size` is the shortest edge
        "resample": 3,
        "do_center_crop": True,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    },
    checkpoints=(
        Checkpoint("openai/clip-vit-base-patch32", 151_277_313),
        Checkpoint("openai/clip-vit-base-patch16", 149_620_737, {"patch_size": (16, 16)}),
        Checkpoint("openai/clip-vit-large-patch14", 427_616_513, LARGE),
    ),
    file_format=FileFormat(
        KEYS,
        lambda output_heads: "CLIPModel",
        lambda config: NAMES,
        optional=(
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "vocab_size",
            "max_position_embeddings",
        ),  # transformers leaves out its defaults, which are those of the config
        read=read,
        write=write,
        class_prefix="CLIP",
    ),
)
