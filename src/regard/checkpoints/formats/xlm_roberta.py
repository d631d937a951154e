"""The files of an XLM-RoBERTa: keys of config.json and names of tensors."""

from __future__ import annotations

from dataclasses import replace

from regard.checkpoints.formats import roberta

FORMAT = replace(roberta.FORMAT, class_prefix="XLMRoberta")
