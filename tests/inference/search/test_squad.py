"""A question of SQuAD finds its paragraph, with the default model."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import regard


@pytest.fixture(scope="module")
def questions(shared_data: Callable[[str], Path]) -> list[tuple[str, str]]:
    """The first questions of paragraphs of different articles, and the beginning of each paragraph."""
    with gzip.open(shared_data("squad/squaddev_v1.1.json.gz"), "rt", encoding="utf-8") as file:
        articles = json.load(file)["data"]
    paragraphs = [one for article in articles for one in article["paragraphs"][:2]]
    return [(one["qas"][0]["question"], one["context"][:400]) for one in paragraphs[:60]]


def test_most_questions_find_their_paragraph(questions: list[tuple[str, str]]) -> None:
    index = regard.index([paragraph for _, paragraph in questions])
    for method, least in (("dense", 0.6), ("bm25", 0.9), ("hybrid", 0.8)):
        result = index.search([question for question, _ in questions], top=10, method=method)  # type: ignore[arg-type]
        found = [row in {hit.row for hit in one.hits} for row, one in enumerate(result.results)]
        assert sum(found) / len(found) >= least, method
