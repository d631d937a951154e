"""Published models with task heads: the scores of transformers' pipelines, for every family, long texts and pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers

import regard
from tests.parity.published import DECODERS, ENCODERS, LONG, SENTENCES, publish

TOLERANCE = 1e-5
FAMILIES = (*ENCODERS, *DECODERS)
LABELS = [1, 2, 7]


def pipeline(task: str, model: Any, folder: Path, **options: Any) -> Any:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return transformers.pipeline(task, model=model, tokenizer=tokenizer, device="cpu", **options)


def scores(model: Any, folder: Path, pairs: list[tuple[str, str | None]]) -> list[dict[str, float]]:
    """The score of each label by transformers' pipeline."""
    classify = pipeline("text-classification", model, folder, top_k=None)
    inputs = [{"text": a, **({} if b is None else {"text_pair": b})} for a, b in pairs]
    return [{one["label"]: one["score"] for one in classify(text, truncation=True)} for text in inputs]


def ours(prediction: dict[str, Any], labels: tuple[str, ...]) -> dict[str, float]:
    return prediction["probabilities"] if "probabilities" in prediction else {labels[0]: prediction["score"]}


@pytest.mark.parametrize("family", FAMILIES)
def test_sequences_have_the_scores_of_the_pipeline(family: str, tmp_path: Path) -> None:
    for number in LABELS if family in ("bert", "gpt2") else LABELS[1:2]:
        folder = tmp_path / str(number)
        theirs = publish(family, "SequenceClassification", folder, labels=number)
        model = regard.load(folder)
        pairs = [*((text, None) for text in [*SENTENCES, LONG]), (SENTENCES[0], SENTENCES[1]), (SENTENCES[0], LONG)]
        pairs += [(LONG, SENTENCES[0]), (LONG, LONG)]
        expected = scores(theirs, folder, pairs)
        singles = model.predict([text for text, second in pairs if second is None]).predictions
        both = model.predict([list(pair) for pair in pairs if pair[1] is not None]).predictions
        for found, wanted in zip([*singles, *both], expected, strict=True):
            assert ours(found, model.task.labels) == pytest.approx(wanted, abs=TOLERANCE)
