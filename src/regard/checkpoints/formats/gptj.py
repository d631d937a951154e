"""The files of a GPT-J: keys of config.json and names of tensors."""

from __future__ import annotations

from regard.checkpoints.file_format import FileFormat, TensorNames, keys_of, qkv
from regard.checkpoints.formats import gpt2
from regard.models.gptj import GptJConfig

NAMES = TensorNames(
    "transformer.",
    {"embedding.tokens.weight": "wte.weight", "decoder.norm.{p}": "ln_f.{p}"},
    {
        ("decoder.layers", "h"): {
            "norm.{p}": "ln_1.{p}",
            "attention.project.{p}": qkv("attn.", ("q_proj", "k_proj", "v_proj")),
            "attention.output.weight": "attn.out_proj.weight",
            "ffn.inner.{p}": "mlp.fc_in.{p}",
            "ffn.outer.{p}": "mlp.fc_out.{p}",
        }
    },
    {"output": {"output.{p}": "lm_head.{p}"}},
    buffers=r"h\.\d+\.attn\.((masked_)?bias|embed_positions)",
)
FORMAT = FileFormat(
    keys_of(GptJConfig, **gpt2.RENAMED, embedding_dropout="embd_pdrop"),
    NAMES,
    {"tie_word_embeddings": False},
    optional=("intermediate_size",),
    read=gpt2.read,
    class_prefix="GPTJ",
    classes={(): "ForCausalLM"},
    task_heads={"SequenceClassification": {"output": "score"}},
)
