"""Tiny folders of sentence-transformers with random weights: sparse encoders and multi-vector encoders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

TOKENS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "a",
    "cat",
    "dog",
    "sat",
    "on",
    "mat",
    "ran",
    "##s",
    "##ing",
    "bird",
    "red",
    "blue",
    "green",
    ",",
    ".",
    "!",
    "search",
    ":",
    "query",
]
TEXTS = [
    "the cat sat on the mat",
    "a dog",
    "",
    "red birds, running on green mats! " * 9,
    "Ünï ςode x",
    "the blue bird ran.",
]


def masked_lm(folder: Path, *, kind: str = "bert", seed: int = 0, positions: int = 22) -> Path:
    """A masked language model of odd sizes with its tokenizer."""
    transformers = pytest.importorskip("transformers")
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(TOKENS), encoding="utf-8")
    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=positions)
    settings: dict[str, Any] = {"vocab_size": len(TOKENS), "max_position_embeddings": positions}
    if kind == "bert":
        sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
        config = transformers.BertConfig(**settings, **sizes)
    else:
        sizes = {"dim": 20, "n_layers": 2, "n_heads": 5, "hidden_dim": 31}
        config = transformers.DistilBertConfig(**settings, **sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModelForMaskedLM.from_config(config)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def sparse_encoder(
    folder: Path,
    *,
    pooling: str = "max",
    activation: str = "relu",
    static: bool = False,
    kind: str = "bert",
    **options: Any,
) -> Path:
    """A folder that SparseEncoder wrote; `static`: queries have fixed weights."""
    pytest.importorskip("sentence_transformers")
    from sentence_transformers.sparse_encoder import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import (
        MLMTransformer,
        Router,
        SparseStaticEmbedding,
        SpladePooling,
        Transformer,
    )

    base = masked_lm(folder.with_name(folder.name + "-base"), kind=kind)
    make = MLMTransformer if static else Transformer
    modules = [make(str(base), transformer_task="fill-mask"), SpladePooling(pooling, activation)]
    if static:
        weights = torch.linspace(-0.2, 3, len(TOKENS)).relu()
        query = SparseStaticEmbedding(modules[0].tokenizer, weight=weights)
        modules = [Router.for_query_document(query_modules=[query], document_modules=modules)]
    SparseEncoder(modules=modules, **options).save_pretrained(str(folder))
    return folder


def change(path: Path, /, **values: Any) -> None:
    """Change values of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def multi_vector_encoder(
    folder: Path,
    *,
    dense: int = 12,
    activation: str = "Identity",
    normalize: bool = True,
    mask: Any = None,
    **options: Any,
) -> Path:
    """A folder that MultiVectorEncoder wrote; `options` with a Transformer's name are its own."""
    pytest.importorskip("sentence_transformers")
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder import MultiVectorEncoder
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    names = ("query_length", "document_length", "query_expansion")
    of_transformer = {name: options.pop(name) for name in names if name in options}
    base = masked_lm(folder.with_name(folder.name + "-base"))
    token_vectors = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        layer = Dense(24, dense, activation_function=getattr(torch.nn, activation)(), **token_vectors)
    modules = [Transformer(str(base), **of_transformer), layer, MultiVectorMask(**(mask or {}))]
    modules += [Normalize(**token_vectors)] if normalize else []
    MultiVectorEncoder(modules=modules, **options).save_pretrained(str(folder))
    return folder
