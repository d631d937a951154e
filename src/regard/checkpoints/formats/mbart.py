"""The files of an mBART: keys of config.json and names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regard.checkpoints.formats import bart


def read(fields: dict[str, Any], document: Mapping[str, object]) -> None:
    bart.read(fields, document)
    fields.setdefault("decoder_start_token_id", fields.get("eos_token_id", 2))


FORMAT = replace(
    bart.FORMAT, defaults={**bart.DEFAULTS, "norm_first": True}, read=read, class_prefix="MBart", task_heads={}
)
