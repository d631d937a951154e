"""Embedders of today's families against sentence-transformers: the vectors of saved folders, long texts included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Pooling, Transformer

import regard
from tests.parity.published import LONG, SENTENCES, tokenizer_of
from tests.parity.references import REFERENCES, randomized

POOLING = {
    "nomic-bert": "mean",
    "gte": "cls",
    "eurobert": "mean",
    "embeddinggemma": "mean",
    "modernbert": "cls",
    "qwen3": "lasttoken",
}


@pytest.mark.parametrize("family", POOLING)
def test_vectors_equal_sentence_transformers(family: str, tmp_path: Path) -> None:
    tokenizer: Any = tokenizer_of("bert", tmp_path)
    config = REFERENCES[family]().config
    config.vocab_size, config.pad_token_id = len(tokenizer), tokenizer.pad_token_id
    for name in ("bos_token_id", "eos_token_id", "mask_token_id"):
        setattr(config, name, tokenizer.mask_token_id)
    randomized(transformers.AutoModel.from_config(config)).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    encoder = Transformer(str(tmp_path / "model"), max_seq_length=20)
    theirs = SentenceTransformer(modules=[encoder, Pooling(24, POOLING[family])], device="cpu")
    theirs.save(str(tmp_path / "embedder"))
    texts = [*SENTENCES, LONG]
    found = np.asarray(regard.embed(texts, model=str(tmp_path / "embedder")).vectors)
    np.testing.assert_allclose(found, theirs.encode(texts), atol=1e-5, rtol=1e-5)
