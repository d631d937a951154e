"""The files of a CamemBERT: keys of config.json and names of tensors."""

from __future__ import annotations

from dataclasses import replace

from regard.checkpoints.formats import bert, roberta

FORMAT = replace(roberta.FORMAT, architecture=bert.architectures("Camembert"), class_prefix="Camembert")
