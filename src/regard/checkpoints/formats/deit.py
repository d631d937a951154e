"""The files of a DeiT: keys of config.json and names of tensors."""

from __future__ import annotations

from regard.checkpoints.file_format import IMAGE_HEADS, FileFormat, TensorNames
from regard.checkpoints.formats import vit
from regard.models.deit import DISTILLED

NAMES = TensorNames(
    "deit.",
    {**vit.BASE, "embedding.distillation": "embeddings.distillation_token"},
    vit.LAYERS,
    {**vit.HEADS, **{head: {f"{head}.{{p}}": f"{head}.{{p}}"} for head in DISTILLED}},
)
FORMAT = FileFormat(
    vit.KEYS,
    NAMES,
    {"qkv_bias": True, "pooler_act": "tanh"},
    read=vit.read,
    write=vit.write,
    class_prefix="DeiT",
    task_heads={head: {} for head in IMAGE_HEADS},
)
