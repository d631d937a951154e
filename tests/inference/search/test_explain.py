"""Explanations of hits: contributions add up to scores, to the last bit where no model computes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.errors import InputError
from regard.inference.search.explain import Explanation
from regard.inference.search.results import Hit
from tests.inference.embedding.sparse_folders import sparse_encoder

TEXTS = ["the cat sat on the mat", "a dog ran", "red bird", "the blue dog sat", "a green mat", "dog, cat, dog!"]


def total(explanation: Explanation) -> float:
    found = 0.0
    for one in explanation.parts:
        found += one.contribution
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_bert_folder: Path) -> Path:
    root = tmp_path_factory.mktemp("index")
    splade = sparse_encoder(root / "splade")
    index = regard.index(TEXTS[:4], root / "index", model=tiny_bert_folder, sparse=splade)
    index.add(TEXTS[4:])  # a second segment
    index.delete([1])
    return root / "index"


def hits(folder: Path, query: str, **options: Any) -> list[Hit]:
    found: list[Hit] = regard.search(folder, query, explain=True, **options).results[0].hits
    assert found
    return found


@pytest.mark.parametrize("method", ["bm25", "splade", "hybrid"])
def test_parts_are_the_score_to_the_last_bit(folder: Path, method: str) -> None:
    for hit in hits(folder, "The cat, the dog and a mat", method=method):
        assert hit.explanation is not None
        first = hit.explanation[0]
        assert first.method == method
        assert total(first) == first.value == hit.score
        assert (first.baseline_value, first.completeness_error) == (0, 0)


def test_parts_of_bm25_are_the_words_in_common(folder: Path) -> None:
    for hit in hits(folder, "the cat dog dog", method="bm25"):
        assert hit.explanation is not None
        names = [one.name for one in hit.explanation[0].parts]
        assert set(names) == {hit.text[start:end].lower() for start, end in hit.matches}


def test_hybrid_explains_its_methods(folder: Path) -> None:
    first = hits(folder, "the dog sat", method="hybrid")[0]
    assert first.explanation is not None
    assert [one.method for one in first.explanation] == ["hybrid", "bm25", "splade", "dense"]
    assert {one.name.split()[0] for one in first.explanation[0].parts} <= {"dense", "bm25", "splade"}
    dense = {hit.row: hit.score for hit in regard.search(folder, "the dog sat").results[0].hits}
    assert first.explanation[3].value == pytest.approx(dense[first.row], abs=1e-5)


@pytest.mark.parametrize("options", [{}, {"pooling": "cls"}, {"pooling": "mean+max"}])
def test_dense_is_complete(tiny_bert_folder: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    from regard.inference.search.build import index_events

    if options:
        from regard.events import drain
        from regard.inference.load_model import load_model

        loaded = load_model(tiny_bert_folder)
        drain(index_events(TEXTS, tmp_path / "index", lambda _: loaded, settings=options))
        source: Any = tmp_path / "index"
        given: dict[str, Any] = {}
    else:
        source, given = TEXTS, {"model": tiny_bert_folder}
    for hit in regard.search(source, "the dog sat", explain=True, top=3, **given).results[0].hits:
        assert hit.explanation is not None
        (one,) = hit.explanation
        assert one.value == pytest.approx(hit.score, abs=1e-5)
        gain = one.value - one.baseline_value
        assert total(one) == pytest.approx(gain + one.completeness_error, abs=1e-5)
        assert abs(one.completeness_error) < 0.02 * max(1, abs(gain))
        assert any(abs(part.contribution) > 1e-4 for part in one.parts)


def test_a_reranker_is_explained(tmp_path: Path, tiny_bert_folder: Path) -> None:
    from regard.tasks.encoder_with_head import EncoderWithHead
    from regard.tasks.fine_tuned_model import FineTunedModel, save_fine_tuned
    from regard.tasks.text_classification import PairClassification

    task = PairClassification(["no", "yes"])
    encoder, tokenizer = regard.load(tiny_bert_folder)
    model = EncoderWithHead.from_encoder(encoder, task).eval()
    save_fine_tuned(FineTunedModel(task, model, tokenizer, 64), tmp_path / "reranker")
    found = regard.search(
        [*TEXTS, "the cat " * 60], "the dog sat", model=tiny_bert_folder, explain=True, rerank=tmp_path / "reranker"
    )
    for hit in found.results[0].hits:
        assert hit.explanation is not None
        one = hit.explanation[-1]
        assert one.method == "reranker"
        if len(hit.text) > 100:
            assert "longer" in one.note and "not explained" in one.to_text()
            continue
        assert 1 / (1 + np.exp(-one.value)) == pytest.approx(hit.score, abs=1e-5)  # the log-odds of the two classes
        gain = one.value - one.baseline_value
        assert total(one) == pytest.approx(gain + one.completeness_error, abs=1e-5)


def test_without_explain_there_is_none(folder: Path) -> None:
    assert all(hit.explanation is None for hit in regard.search(folder, "the dog").results[0].hits)


def test_what_cannot_be_explained_is_refused(folder: Path, tiny_bert_folder: Path) -> None:
    with pytest.raises(InputError, match="at most 100"):
        regard.search(folder, "the dog", explain=True, top=101)
    with pytest.raises(InputError, match=r"regard\.search"):
        regard.open_index(folder).search("the dog", explain=True)
