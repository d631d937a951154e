"""CLIP: an encoder of images and an encoder of texts, trained to give an image and its caption similar vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.models.family import Checkpoint, Family
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
        layer = LayerConfig.from_model_config(config, norm_first=True)
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
)
