"""The files of an mBART: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.checkpoints.file_format import FileFormat
from regard.checkpoints.formats import bart


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    bart.read(fields, document)
    fields["norm_first"] = True
    fields.setdefault("decoder_start_token_id", fields.get("eos_token_id", 2))


FORMAT = FileFormat(
    bart.KEYS,
    lambda output_heads: "MBartForConditionalGeneration",
    bart.tensor_names,
    bart.FIXED,
    read=read,
    write=bart.write,
    class_prefix="MBart",
)
