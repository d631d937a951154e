"""The files of a Marian: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.checkpoints.file_format import FileFormat, TensorNames, keys_of
from regard.checkpoints.formats import bart
from regard.models.marian import MarianConfig


def tensor_names(config: Any) -> TensorNames:
    if config.share_embeddings:
        base, copies = {"embedding.tokens.weight": "shared.weight"}, dict.fromkeys(bart.COPIES, "{base}shared.weight")
    else:
        tokens = {"embedding": "encoder", "target_embedding": "decoder"}
        base = {f"{ours}.tokens.weight": f"{theirs}.embed_tokens.weight" for ours, theirs in tokens.items()}
        copies = {"lm_head.weight": "{base}decoder.embed_tokens.weight"}
    positions = r"(encoder|decoder)\.embed_positions\.weight"
    return TensorNames("model.", base, bart.LAYERS, bart.HEADS, copies=copies, buffers=positions)


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    bart.read(fields, document)
    if fields["share_embeddings"] or fields.get("target_vocab_size") == fields["vocab_size"]:
        fields.pop("target_vocab_size", None)


def write(document: dict[str, Any], fields: Mapping[str, Any]) -> None:
    document["decoder_vocab_size"] = fields["target_vocab_size"] or fields["vocab_size"]
    # As in the published files: these settings of `generate` are in config.json.
    document["bad_words_ids"] = [[fields["pad_token_id"]]]


FORMAT = FileFormat(
    keys_of(
        MarianConfig,
        without=("norm_first", "layer_norm_eps", "bos_token_id", "forced_bos_token_id"),
        **bart.RENAMED,
        target_vocab_size="decoder_vocab_size",
        share_embeddings="share_encoder_decoder_embeddings",
    ),
    tensor_names,
    bart.FIXED,
    {**bart.DEFAULTS, "share_embeddings": True},
    {"is_encoder_decoder": True},
    read=read,
    write=write,
    class_prefix="Marian",
    classes={(): "MTModel"},
)
