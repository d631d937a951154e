"""Fine-tuning with CUDA graphs computes the gradients of the model itself. Needs a GPU."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from regard.models import Bert, BertConfig
from regard.tasks.encoder_with_head import EncoderWithHead, TaskHead
from regard.tasks.inputs import InputSequence
from regard.tasks.task import TaskInput
from regard.training.recipes.finetuning.graphs import MAX_TOKENS, GraphedModel

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CUDA = torch.device("cuda")


def new_model(dropout: float, device: torch.device = CUDA) -> EncoderWithHead:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=100,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=256,
        dropout=dropout,
        attention_dropout=dropout,
    )
    return (
        EncoderWithHead(Bert(config, output_heads=()), TaskHead(128, 3, pool=None, dropout=dropout)).to(device).train()
    )


def inputs_of(model: EncoderWithHead, lengths: list[int], *, pooled: bool = True) -> Any:
    items = [
        TaskInput((InputSequence([7 + i % 50 for i in range(n)], [0] * n, [0] if pooled else None),), 0)
        for n in lengths
    ]
    return model.collate(items).to(CUDA)


def gradients(model: EncoderWithHead, function: Any, inputs: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
    model.zero_grad(set_to_none=True)
    with torch.autocast("cuda", torch.bfloat16):
        logits = function(inputs).float()
    torch.logsumexp(logits, -1).sum().backward()
    return logits.detach().clone(), [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_graphs_are_for_gpus() -> None:
    model = new_model(0.1, torch.device("cpu"))
    assert GraphedModel.of(model, torch.device("cpu"), torch.bfloat16) is None


@needs_gpu
@pytest.mark.parametrize("pooled", [True, False])
def test_gradients_are_those_of_the_model(pooled: bool) -> None:
    """Also of a second batch of the same shape, and with sequences that fill up the batch."""
    model = new_model(0.0)
    graphed = GraphedModel.of(model, CUDA, torch.bfloat16)
    assert graphed is not None
    for lengths in ([5, 9, 40], [3, 12, 33], [2] * 60, [90, 100]):
        inputs = inputs_of(model, lengths, pooled=pooled)
        expected, expected_gradients = gradients(model, model, inputs)
        logits, found = gradients(model, graphed, inputs)
        torch.testing.assert_close(logits, expected, atol=2e-2, rtol=2e-2)
        assert len(found) == len(expected_gradients)
        for one, other in zip(found, expected_gradients, strict=True):
            assert torch.isfinite(one).all()
            assert (one - other).norm() <= 0.02 * other.norm() + 1e-3


@needs_gpu
def test_dropout_follows_the_seed() -> None:
    model = new_model(0.1)
    inputs = inputs_of(model, [5, 9, 40])
    results = []
    for _ in range(2):  # the second one records anew
        graphed = GraphedModel.of(copy.deepcopy(model), CUDA, torch.bfloat16)
        assert graphed is not None
        rows = []
        for seed in (1, 2, 1):
            torch.manual_seed(seed)
            rows.append(gradients(graphed.model, graphed, inputs)[0])
        assert torch.equal(rows[0], rows[2]) and not torch.equal(rows[0], rows[1])
        results.append(rows)
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@needs_gpu
def test_large_batches_run_without_graphs() -> None:
    model = new_model(0.0)
    graphed = GraphedModel.of(model, CUDA, torch.bfloat16)
    assert graphed is not None
    inputs = inputs_of(model, [512] * (MAX_TOKENS // 512 + 1))
    gradients(model, graphed, inputs)
    assert not graphed.recorder.graphs
