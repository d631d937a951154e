"""Disentangled attention against its equation and the buckets of transformers."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from regard.errors import InputError
from regard.nn.attention import Attention, FusedProjection
from regard.nn.disentangled import DisentangledScore, RelativePositions
from regard.nn.masks import Packed, Padded

B, T, H, D = 2, 7, 3, 4
W = H * D


@pytest.mark.parametrize(("span", "max_distance"), [(256, 512), (256, 1000), (6, 8), (4, 9), (8, None), (600, None)])
@pytest.mark.parametrize("length", [1, 5, 6, 130, 700])
def test_rows_are_those_of_transformers(span: int, max_distance: int | None, length: int) -> None:
    from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position

    relative, x = RelativePositions(W, span, max_distance=max_distance), torch.empty(length, 1)
    expected = build_relative_position(x, x, -1 if max_distance is None else span, max_distance or -1)[0] + span
    vectors, index = relative(length)
    assert torch.equal(vectors[index], relative.table(expected.clamp(0, 2 * span - 1)))
    assert len(vectors) <= 2 * length


@pytest.mark.parametrize(("span", "max_distance"), [(1, 9), (6, 4), (6, 3)])
def test_impossible_buckets(span: int, max_distance: int) -> None:
    with pytest.raises(InputError, match=f"{span} buckets for distances up to {max_distance}"):
        RelativePositions(W, span, max_distance=max_distance)


@pytest.mark.parametrize("terms", [("c2p",), ("p2c",), ("c2p", "p2c")])
@pytest.mark.parametrize("shared", [False, True])
def test_equation(terms: tuple[str, ...], shared: bool) -> None:
    torch.manual_seed(0)
    relative, project = RelativePositions(W, 3, norm=nn.LayerNorm(W)), FusedProjection(W, W)
    own = {} if shared else {"query": nn.Linear(W, W), "key": nn.Linear(W, W)}
    score = DisentangledScore(relative, terms=terms, shared=project if shared else None, **own)
    query, key = torch.randn(B, H, T, D), torch.randn(B, H, T, D)
    scores = score(query, key)
    vectors = relative.norm(relative.table.weight)
    position_query, position_key = (
        project(vectors, vectors)[:2] if shared else (own["query"](vectors), own["key"](vectors))
    )
    for i in range(T):
        for j in range(T):
            row = min(max(i - j + 3, 0), 5)
            q, k = query[:, :, i], key[:, :, j]
            expected = (q * k).sum(-1)
            if "c2p" in terms:
                expected = expected + (q * position_key[row].view(H, D)).sum(-1)
            if "p2c" in terms:
                expected = expected + (k * position_query[row].view(H, D)).sum(-1)
            torch.testing.assert_close(scores[:, :, i, j], expected)


def new_attention(relative: RelativePositions, dropout: float = 0.0) -> Attention:
    project = FusedProjection(W, W)
    score = DisentangledScore(relative, terms=("c2p", "p2c"), shared=project, dropout=dropout)
    return Attention(project, nn.Linear(W, W), heads=H, scale=0.3, score=score)


def test_layouts_give_the_same_outputs_and_gradients() -> None:
    torch.manual_seed(0)
    relative = RelativePositions(W, 4, max_distance=6).double()
    attention, lengths = new_attention(relative).double(), (7, 3, 3, 5)
    parameters = [*attention.parameters(), *relative.parameters()]
    padded, packed = Padded.from_lengths(lengths), Packed.from_lengths(lengths)
    assert padded.mask is not None
    x = torch.randn(4, 7, W, dtype=torch.double)
    a, b = attention(x, padded)[padded.mask], attention(x[padded.mask], packed)
    torch.testing.assert_close(a, b)
    for one, other in zip(
        torch.autograd.grad(a.pow(2).sum(), parameters), torch.autograd.grad(b.pow(2).sum(), parameters), strict=True
    ):
        torch.testing.assert_close(one, other)
        assert one.abs().max() > 1e-3


def test_shared_modules_are_registered_once() -> None:
    relative = RelativePositions(W, 4)
    attention = new_attention(relative)
    assert {name.split(".")[0] for name in attention.state_dict()} == {"project", "output"}
    both = copy.deepcopy(nn.ModuleList([relative, attention]))
    assert both[1].score._relative[0] is both[0]
    assert both[1].score._shared[0] is both[1].project


def test_dropout_of_distances_only_in_training() -> None:
    torch.manual_seed(0)
    attention, x = new_attention(RelativePositions(W, 4), dropout=0.5), torch.randn(B, T, W)
    assert not torch.allclose(attention(x, Padded()), attention(x, Padded()))
    attention.eval()
    assert torch.equal(attention(x, Padded()), attention(x, Padded()))


def test_scores_of_half_precision_are_float32() -> None:
    attention = new_attention(RelativePositions(W, 4).bfloat16()).bfloat16()
    x = torch.randn(B, H, T, D).bfloat16()
    assert attention.score is not None
    assert attention.score(x, x).dtype == torch.float32
    assert attention(torch.randn(B, T, W).bfloat16(), Padded()).dtype == torch.bfloat16
