"""Losses compared with those of sentence-transformers on random vectors, and properties of the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.training.recipes.embedding.objective import (
    cosent_loss,
    distillation_losses,
    matryoshka_loss,
    ranking_loss,
    same_texts,
    similarity_loss,
)

BATCH, SIZE = 7, 12


class Vectors(nn.Module):
    """Stands for a model of sentence-transformers: its features are the vectors."""

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": features["vectors"]}

    def get_embedding_dimension(self) -> int:
        return SIZE


def peer(name: str, **options: Any) -> tuple[Any, Any]:
    losses = pytest.importorskip("sentence_transformers.losses")
    model = Vectors()
    return model, getattr(losses, name)(model, **options)


def columns(count: int) -> list[Tensor]:
    return [torch.randn(BATCH, SIZE, requires_grad=True) for _ in range(count)]


def features(vectors: list[Tensor]) -> list[dict[str, Tensor]]:
    return [{"vectors": one} for one in vectors]


def assert_equal(ours: Tensor, theirs: Tensor, vectors: list[Tensor]) -> None:
    torch.testing.assert_close(ours, theirs)
    for found, expected in zip(torch.autograd.grad(ours, vectors), torch.autograd.grad(theirs, vectors), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("temperature", [0.05, 0.3])
def test_the_ranking_loss_equals_multiple_negatives_ranking(count: int, temperature: float) -> None:
    _, theirs = peer("MultipleNegativesRankingLoss", scale=1 / temperature)
    vectors = columns(count)
    ours = ranking_loss(vectors[0], torch.cat(vectors[1:]), temperature=temperature)
    assert_equal(ours, theirs(features(vectors), torch.zeros(0)), vectors)


@pytest.mark.parametrize("scores", [[0.0, 5, 2.5, 1, 1, 4, 3], [1.0, 1, 0, 1, 0, 0, 1]])
def test_cosent_equals_that_of_sentence_transformers(scores: list[float]) -> None:
    _, theirs = peer("CoSENTLoss", scale=20.0)
    vectors, labels = columns(2), torch.tensor(scores)
    ours = cosent_loss(vectors[0], vectors[1], labels, temperature=0.05)
    assert_equal(ours, theirs(features(vectors), labels), vectors)


def test_cosent_without_an_order_is_zero() -> None:
    first, second = columns(2)
    assert cosent_loss(first, second, torch.ones(BATCH), temperature=0.05).item() == 0


def test_the_matryoshka_loss_equals_that_of_sentence_transformers() -> None:
    losses = pytest.importorskip("sentence_transformers.losses")
    model, inner = peer("MultipleNegativesRankingLoss", scale=20.0)
    theirs = losses.MatryoshkaLoss(model, inner, matryoshka_dims=[SIZE, 6, 3])
    vectors = columns(2)

    def loss(parts: Any) -> Tensor:
        return ranking_loss(parts[0], parts[1], temperature=0.05)

    assert_equal(matryoshka_loss(loss, vectors, [SIZE, 6, 3]), theirs(features(vectors), torch.zeros(0)), vectors)


def test_equal_texts_are_no_negatives() -> None:
    # Rows 0 and 1 share the positive, rows 2 and 3 the anchor; the negative of row 4 is the positive of row 0.
    keys = torch.tensor([[0, 1, 2, 2, 4], [10, 10, 12, 13, 14], [20, 21, 22, 23, 10]])
    same = same_texts(keys)
    expected = {(0, 1), (1, 0), (2, 3), (3, 2), (0, 9), (1, 9)}
    assert {tuple(place) for place in same.nonzero().tolist()} == expected
    anchors, positives, negatives = (torch.randn(5, SIZE) for _ in range(3))
    found = ranking_loss(anchors, torch.cat([positives, negatives]), temperature=0.05, not_negative=same)
    cosine = torch.cosine_similarity(anchors[:, None], torch.cat([positives, negatives])[None], dim=-1) / 0.05
    rows = []
    for row in range(5):
        kept = [column for column in range(10) if (row, column) not in expected]
        rows.append(torch.logsumexp(cosine[row, kept], 0) - cosine[row, row])
    torch.testing.assert_close(found, torch.stack(rows).mean())


def test_a_student_that_equals_its_teacher_has_no_loss() -> None:
    targets = torch.randn(BATCH, SIZE)
    losses = distillation_losses(3 * targets, targets, temperature=0.05, teacher_temperature=0.05)
    assert losses["cosine"].abs() < 1e-6 and losses["similarity"].abs() < 1e-5
    other = distillation_losses(torch.randn(BATCH, SIZE), targets, temperature=0.05, teacher_temperature=0.05)
    assert all(other[name] > losses[name] + 0.01 for name in losses)


def test_the_similarity_loss_compares_vectors_of_different_sizes() -> None:
    targets, vectors = torch.randn(4, SIZE), torch.randn(4, 5)
    total = 0.0
    for row in range(4):
        others = [index for index in range(4) if index != row]
        logs = [
            (torch.cosine_similarity(side[row : row + 1], side[others]) / 0.1).log_softmax(0)
            for side in (vectors, targets)
        ]
        total += float((logs[1].exp() * (logs[1] - logs[0])).sum()) / 4
    assert similarity_loss(vectors, targets, temperature=0.1).item() == pytest.approx(total, rel=1e-4)
