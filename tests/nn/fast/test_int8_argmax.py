"""The filtered product has the argmax of the full product for any weights; other logits may be -inf."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.inference.generation.decoder import reuse_packed_weights
from regard.inference.generation.sampling import sample
from regard.models import Gpt, GptConfig
from regard.nn.fast import int8_argmax
from regard.nn.fast.int8_argmax import Int8ArgmaxFilter
from regard.nn.fast.int8_weights import int8_range

WIDTH, OUTPUTS = 128, 8192

pytestmark = pytest.mark.skipif(
    int8_range() != int8_argmax.STEPS, reason="this CPU has no int8 dot product instructions"
)


def gaussian(width: int = WIDTH) -> Tensor:
    return torch.randn(OUTPUTS, width)


def tiny() -> Tensor:
    return 1e-20 * gaussian()


def nearly_equal() -> Tensor:
    """Rows that are all equal after rounding to 8 bits."""
    return torch.randn(1, WIDTH) + 1e-5 * gaussian()


def with_leading_rows() -> Tensor:
    weight = gaussian()
    weight[::100] = 3 * torch.randn(1, WIDTH) + 1e-3 * weight[::100]
    return weight


def with_outliers() -> Tensor:
    weight = gaussian()
    weight[:, 7] *= 50
    weight[13] *= 1000
    return weight


def with_empty_rows() -> Tensor:
    weight = gaussian()
    weight[::3] = 0
    return weight


MATRICES = [gaussian, tiny, nearly_equal, with_leading_rows, with_outliers, with_empty_rows]


@pytest.fixture(autouse=True)
def small_matrices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(int8_argmax, "MIN_ELEMENTS", 1 << 20)
    torch.manual_seed(0)
    with torch.no_grad():
        yield


@pytest.mark.parametrize("make", MATRICES)
@pytest.mark.parametrize("rows", [1, 2, 8, 13])
def test_the_argmax_is_that_of_the_full_product(make: Callable[[], Tensor], rows: int) -> None:
    weight, argmax_filter = make(), Int8ArgmaxFilter()
    for scale in (1.0, 1e-6, 1e6):
        x = scale * torch.randn(rows, WIDTH)
        x[:, 3] *= 20
        whole, found = F.linear(x, weight), argmax_filter.linear(x, weight)
        there = found > -torch.inf
        torch.testing.assert_close(found[there], whole[there], rtol=1e-4, atol=1e-5 * float(whole.abs().max()))
        exact = F.linear(x.double(), weight.double())
        gap = exact.amax(1) - exact.gather(1, found.argmax(1, keepdim=True))[:, 0]
        assert float((gap / exact.abs().amax(1)).max()) < 1e-6


def test_few_candidates_are_computed() -> None:
    found = Int8ArgmaxFilter().linear(torch.randn(8, WIDTH), gaussian())
    assert 8 <= int((found > -torch.inf).sum()) < 8 * 40


def test_fewer_rows_reuse_the_quantized_matrix() -> None:
    weight, x, argmax_filter = gaussian(), torch.randn(8, WIDTH), Int8ArgmaxFilter()
    whole = argmax_filter.linear(x, weight)
    torch.testing.assert_close(argmax_filter.linear(x[:5], weight), whole[:5])
    assert len(argmax_filter.layers) == 1


@pytest.mark.parametrize("value", [0.0, torch.nan, torch.inf])
def test_vectors_without_a_scale_get_the_full_product(value: float) -> None:
    weight, x, argmax_filter = gaussian(), torch.randn(2, WIDTH), Int8ArgmaxFilter()
    x[1] = value
    assert torch.equal(argmax_filter.linear(x, weight).nan_to_num(7.0), F.linear(x, weight).nan_to_num(7.0))


def test_the_filter_pauses_after_too_many_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8_argmax, "COOLDOWN", 3)
    weight, x, calls = torch.ones(OUTPUTS, WIDTH), torch.randn(1, WIDTH), []
    argmax_filter = Int8ArgmaxFilter(lambda *args: calls.append(1) or F.linear(*args))  # type: ignore[func-returns-value]
    real = int8_argmax._QuantizedMatrix._product
    monkeypatch.setattr(int8_argmax._QuantizedMatrix, "_product", lambda self, x: calls.append(0) or real(self, x))  # type: ignore[func-returns-value]
    for _ in range(4):
        assert torch.equal(argmax_filter.linear(x, weight), F.linear(x, weight))
    assert calls == [0, 1, 1, 1, 0, 1]


def test_other_layers_are_unchanged() -> None:
    argmax_filter, x = Int8ArgmaxFilter(), torch.randn(2, WIDTH)
    weight, bias = gaussian(), torch.randn(OUTPUTS)
    assert torch.equal(argmax_filter.linear(x, weight, bias), F.linear(x, weight, bias))
    for other in (weight.double(), weight[:512], weight[:, :64]):
        vectors = x[:, : other.shape[1]].to(other.dtype)
        assert torch.equal(argmax_filter.linear(vectors, other), F.linear(vectors, other))
    with torch.enable_grad():
        assert torch.equal(argmax_filter.linear(x, weight), F.linear(x, weight))
    assert not argmax_filter.layers


@pytest.mark.parametrize("rows", [1, 3])
def test_generated_tokens_are_the_same(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Gpt(
        GptConfig(
            vocab_size=OUTPUTS,
            hidden_size=WIDTH,
            num_hidden_layers=1,
            num_attention_heads=4,
            intermediate_size=256,
            max_position_embeddings=64,
        )
    ).eval()
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    ids, end = torch.randint(OUTPUTS, (rows, 4)), 5

    def generate_tokens() -> list[list[int | None]]:
        return list(sample(model, ids, sampling=None, end=end, max_new_tokens=40))

    expected = generate_tokens()
    seen: list[int] = []
    real = int8_argmax._QuantizedMatrix.__call__

    def counted(self: int8_argmax._QuantizedMatrix, x: Tensor) -> Tensor | None:
        found = real(self, x)
        seen.append(found is not None)
        return found

    monkeypatch.setattr(int8_argmax._QuantizedMatrix, "__call__", counted)
    with reuse_packed_weights():
        assert generate_tokens() == expected
    assert sum(seen) > 30
    assert len({row[0] for row in expected}) > 10
