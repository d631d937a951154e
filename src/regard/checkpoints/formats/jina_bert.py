"""The files of a JinaBERT, which call it a BERT: keys of config.json and names of tensors."""

from __future__ import annotations

from dataclasses import replace

from regard.checkpoints.file_format import FileFormat, Table
from regard.checkpoints.formats import bert

LAYER: Table = {
    **{ours: theirs for ours, theirs in bert.LAYER.items() if not ours.startswith("ffn")},
    "ffn.inner.weight": "mlp.gated_layers.weight",
    "ffn.outer.{p}": "mlp.wo.{p}",
    "ffn_residual.norm.{p}": "mlp.layernorm.{p}",
}
base = {name: theirs for name, theirs in bert.NAMES.base.items() if name != "embedding.positions.weight"}
NAMES = replace(
    bert.NAMES,
    base=base,
    layers={("encoder.layers", "encoder.layer"): LAYER},
    output_heads={head: table for head, table in bert.NAMES.output_heads.items() if head != "nsp_head"},
    buffers=r"(embeddings\.position_ids|encoder\.alibi)",
)
ALIBI = {"position_embedding_type": "alibi", "feed_forward_type": "geglu"}
FORMAT = FileFormat(
    bert.KEYS,
    NAMES,
    {**bert.FIXED, **ALIBI, "tie_word_embeddings": True},
    written=ALIBI,
    code=r"(jinaai/jina-bert-implementation--)?(configuration|modeling)_bert\.JinaBert\w+",
    code_keys=("model_max_length", "emb_pooler"),
    class_prefix="JinaBert",
    model_type="bert",
    task_heads=bert.FORMAT.task_heads,
)
