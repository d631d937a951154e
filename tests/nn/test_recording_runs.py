"""A tape holds one run: decoding steps, rejected second forward passes, and maps that later changes do not affect."""

from __future__ import annotations

import pytest
import torch

from regard.models import Bert, BertConfig, Seq2Seq, Seq2SeqConfig, Vit, VitConfig
from regard.nn.attention import LuongDotAttention
from regard.nn.masks import Padded
from regard.nn.recording import ablate_heads, record

BERT = BertConfig(
    vocab_size=20,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=16,
)


def ids(rows: int, length: int) -> torch.Tensor:
    return torch.randint(0, 20, (rows, length))


def test_kind_is_optional_if_unique() -> None:
    model = Seq2Seq(Seq2SeqConfig(score="general"))
    with record(model) as tape:
        model(torch.randn(2, 7, 10), steps=5)
    assert [m.shape for m in tape.attention()] == [(2, 1, 5, 7)]


@pytest.mark.parametrize("second", [(2, 4), (3, 7)])
def test_second_forward_pass_is_rejected(second: tuple[int, int]) -> None:
    model = Bert(BERT, output_heads=()).eval()
    with record(model) as tape:
        model(ids(2, 7))
        model(ids(*second))
    with pytest.raises(ValueError, match="2 forward passes that are not the steps of one generation"):
        tape.attention()
    with pytest.raises(ValueError, match="2 forward passes that are not the steps of one generation"):
        tape.hidden()
    assert [len(readings) for readings in tape.calls.values()] == [2, 2]


def test_map_of_a_learned_score_is_that_of_the_forward_pass() -> None:
    """Bahdanau's score has weights, which change with the next training step."""
    model = Seq2Seq(Seq2SeqConfig(score="additive"))
    with record(model) as tape:
        model(torch.randn(2, 7, 10), steps=5)
    before = tape.attention()[0].clone()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert torch.equal(tape.attention()[0], before)


def test_layer_of_the_lecture_is_recorded() -> None:
    layer = LuongDotAttention()
    query, values = torch.randn(3, 8), torch.randn(3, 5, 8)
    with record(layer) as tape:
        context, weights = layer(query, values)
    assert (context.shape, weights.shape) == ((3, 8), (3, 5, 1))
    torch.testing.assert_close(weights[..., 0], torch.einsum("bw,bsw->bs", query, values).softmax(1))
    torch.testing.assert_close(context, (weights * values).sum(1))
    torch.testing.assert_close(tape.attention()[0][:, 0, 0], weights[..., 0])


def test_an_unused_edit_raises() -> None:
    model = Bert(BERT, output_heads=()).eval()
    compiled = torch.compile(model, backend="eager")
    with (
        pytest.raises(RuntimeError, match=r"never used: .* compiled function"),
        record(model, edit=ablate_heads([(1, 0)])),
    ):
        compiled(ids(1, 3))


def test_heads_must_be_a_list_of_pairs() -> None:
    with pytest.raises(ValueError, match=r"list of pairs \(layer, head\)"):
        ablate_heads((0, 1))  # type: ignore[arg-type]


def test_the_poolers_of_bert_and_vit_read_the_first_token() -> None:
    model = Vit(
        VitConfig(
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=12,
            image_size=(4, 4),
            patch_size=(2, 2),
        ),
        output_heads=("pooler",),
    ).eval()
    assert model.pooler is not None and model.classifier is None
    hidden = model(torch.randn(2, 3, 4, 4))
    torch.testing.assert_close(model.pooler(hidden, Padded()), torch.tanh(model.pooler.linear(hidden[:, 0])))
