"""FLOPs as torch counts them, and measured speed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.models import T5, Bert, BertConfig, Gpt, GptConfig, T5Config
from regard.training import speed
from regard.training.distributed.world import World
from regard.training.recipes.pretraining.config import PretrainingConfig
from regard.training.recipes.pretraining.objectives import objective_class
from regard.training.recipes.pretraining.span_corruption import SpanSizes
from regard.training.speed import peak_flops, seconds_per_step
from tests.training.recipes.pretraining.runs import config

CPU = torch.device("cpu")


def flops_per_token(config: PretrainingConfig, vocabulary: int) -> float:
    return objective_class(config).flops_per_token(config, vocabulary)


VOCABULARY, ROWS, LENGTH = 500, 4, 32


def count_flops(work: Callable[[], torch.Tensor]) -> int:
    with FlopCounterMode(display=False) as counter:
        work().sum().backward()
    return counter.get_total_flops()


def test_flops_of_a_gpt_match_torch() -> None:
    model = Gpt(
        GptConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=32,
        )
    )
    ids = torch.randint(VOCABULARY, (ROWS, LENGTH))
    work = count_flops(lambda: model.logits(model(ids)))
    # In the backward pass torch recomputes the attention scores, which Regard does not count.
    assert flops_per_token(config("gpt"), VOCABULARY) * ids.numel() == pytest.approx(work, rel=0.03)


def test_flops_of_a_t5_match_torch() -> None:
    shape = {
        "hidden_size": 32,
        "head_dim": 16,
        "num_hidden_layers": 2,
        "num_decoder_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    model = T5(T5Config(vocab_size=VOCABULARY, **shape))  # type: ignore[arg-type]
    ids = torch.randint(VOCABULARY, (ROWS, LENGTH))
    decoder_ids = torch.randint(VOCABULARY, (ROWS, SpanSizes.filling(LENGTH, rate=0.15, span=3.0).targets))
    work = count_flops(lambda: model.logits(model(ids, decoder_ids)))
    assert flops_per_token(config("t5"), VOCABULARY) * ids.numel() == pytest.approx(work, rel=0.03)


def test_flops_of_an_elmo() -> None:
    """Two directions of two layers: four gates with 32 + 32 inputs, projections from 64 to 32, and the output layer."""
    weights = 2 * (2 * (4 * 64 * (32 + 32) + 64 * 32) + 32 * VOCABULARY)
    assert flops_per_token(config("elmo"), VOCABULARY) == 3 * 2 * weights
    narrow = 2 * (2 * 4 * 32 * (32 + 32) + 32 * VOCABULARY)
    assert flops_per_token(config("elmo", model_intermediate_size=32), VOCABULARY) == 3 * 2 * narrow


@pytest.mark.parametrize("rate", [0.15, 0.5])
def test_flops_of_a_bert_include_masked_tokens_only(rate: float) -> None:
    shape = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=8,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
    )
    model = Bert(shape, output_heads=("mlm_head",))
    ids = torch.randint(VOCABULARY, (ROWS, LENGTH))
    rows = torch.arange(round(rate * ids.numel()))
    head = model.mlm_head
    assert head is not None
    work = count_flops(lambda: head(model(ids).flatten(0, 1)[rows]))
    settings = config(model_num_hidden_layers=8, objective_mlm_probability=rate)
    assert flops_per_token(settings, VOCABULARY) * ids.numel() == pytest.approx(work, rel=0.03)


def test_a_peak_is_a_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(speed.SIDE, "cpu", 64)
    now = iter(range(100))
    monkeypatch.setattr(
        speed.time, "perf_counter", lambda: next(now) / 4
    )  # every four matrix products take a quarter of a second
    for dtype in (torch.float32, torch.bfloat16):
        assert peak_flops(CPU, dtype) == 4 * 2 * 64**3 / 0.25


@pytest.mark.parametrize(
    ("seconds", "each", "expected"), [(3.0, 0.25, 3), (0.0, 0.25, 1), (3.0, 2.0, 1), (3.0, 9.0, 0)]
)
def test_a_step_is_measured_for_some_seconds(
    seconds: float, each: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, steps = [100.0], []
    monkeypatch.setattr(speed, "SECONDS", seconds)
    monkeypatch.setattr(speed.time, "perf_counter", lambda: now[0])

    def step() -> None:
        slow = (
            50.0 if len(steps) < 1 else 1.0 if len(steps) == 3 else 0.0
        )  # slow during warm-up, and one random outlier
        steps.append(1)
        now[0] += each + slow

    assert seconds_per_step(step, CPU, world=World()) == pytest.approx(each)
    assert len(steps) == 1 + 1 + 3 * expected  # no second warm-up step where the first is that slow
