"""The files of an EmbeddingGemma, which are those of a Gemma 3 that say that it reads in both directions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from regard.checkpoints.formats import gemma2, gemma3_text, llama

FORMAT = replace(
    gemma3_text.FORMAT,
    tensor_names=partial(llama.tensor_names, gemma2.LAYER, stack="encoder"),
    fixed={"attn_logit_softcapping": None},
    written={"use_bidirectional_attention": True},
    variants={},
    task_heads={},
)
