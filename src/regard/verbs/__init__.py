"""The verbs: everything Regard does for a user, each defined once in the file of its name (see `base`)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.verbs.base import Verb

__all__ = ["FUNCTIONS", "VERBS", "find"]

# In the order of the help page. A verb's file has the verb's name.
VERBS = (
    "tokenize",
    "embed",
    "index",
    "search",
    "rerank",
    "duplicates",
    "cluster",
    "similarity",
    "classify",
    "fill",
    "compare",
    "next",
    "next_token",
    "perplexity",
    "generate",
    "decode",
    "score",
    "benchmark",
    "cost",
    "cost_embed",
    "translate",
    "evaluate",
    "doctor",
    "attribute",
    "faithfulness",
    "features",
    "layers",
    "look",
    "long_attention",
    "lens",
    "logit_attribution",
    "patch",
    "figure",
    "lesson",
    "senses",
    "heads",
    "activations",
    "ablate",
    "map",
    "models",
    "download",
    "cache",
    "corpus_build",
    "pretrain",
    "train",
    "distill",
    "train_translator",
    "train_embedder",
    "predict",
    "export",
)

# `regard.NAME` for each verb; a name that Python or a package of Regard has already gets another.
RENAMED = {"layers": "compare_layers", "map": "sentence_map", "models": "list_models", "next": "next_sentence"}
# `regard.index` is a function of its own: it returns an index that can be searched.
FUNCTIONS = {RENAMED.get(name, name): name for name in VERBS if name != "index"}


def find(name: str) -> Verb:
    """The verb of a name that is in `VERBS`."""
    module = import_module(f"regard.verbs.{name}")
    found: Verb = getattr(module, name)
    return found
