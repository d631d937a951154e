"""The engines of the reranking benchmark agree, and the rank correlation is Spearman's."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.rerank import BASELINE, ENGINES, rank_correlation
from tests.parity.published import SENTENCES, publish


def test_the_engines_give_the_same_logits(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    publish("bert", "SequenceClassification", tmp_path, labels=1)
    expected = ENGINES[BASELINE](str(tmp_path))("a film", SENTENCES)
    assert ENGINES["Regard fp32"](str(tmp_path))("a film", SENTENCES) == pytest.approx(expected, abs=1e-5)
    assert ENGINES["Regard int8"](str(tmp_path))("a film", SENTENCES) == pytest.approx(expected, abs=0.1)


def test_the_rank_correlation() -> None:
    assert rank_correlation([0.1, 0.2, 0.3], [5.0, 6.0, 9.0]) == pytest.approx(1.0)
    assert rank_correlation([0.1, 0.2, 0.3], [9.0, 6.0, 5.0]) == pytest.approx(-1.0)
    assert rank_correlation([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(0.8)
