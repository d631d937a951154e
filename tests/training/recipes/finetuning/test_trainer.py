"""Training of one seed: learning rates, gradients, frozen layers, and dropout."""

from __future__ import annotations

from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import regard
from regard.data.examples import TextExample
from regard.events import drain
from regard.nn.attention import Attention
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.tasks.text_classification import TextClassification
from regard.training.optimizer import default_learning_rate, head_learning_rate
from regard.training.recipe import Share
from regard.training.recipes.finetuning.config import FineTuningConfig
from regard.training.recipes.finetuning.recipe import FineTuningRecipe
from regard.training.trainer import Trainer

CPU = torch.device("cpu")
TASK = TextClassification(["bad", "good"])
EXAMPLES = [TextExample(f"the {label} film, number {n}", label=label) for n in range(16) for label in ("bad", "good")]


def fine_tuner(folder: Path, *settings: str, **options: Any) -> Trainer:
    encoder, tokenizer = regard.load(folder)
    tuned = EncoderWithHead.from_encoder(encoder, TASK)
    items = TASK.preprocess([*EXAMPLES, EXAMPLES[0]], FineTunedModel(TASK, tuned, tokenizer, 32).input_builder)
    config = FineTuningConfig.load(overrides=list(settings))
    return Trainer(FineTuningRecipe(TASK, items, config, new_model=lambda seed: tuned, **options), seed=0, device=CPU)


def test_learning_rate_and_gradient_clipping_of_every_step(
    tiny_bert_folder: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    rates, norms = [], []

    def record_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        decaying, other = optimizer.param_groups
        assert (decaying["weight_decay"], other["weight_decay"]) == (0.01, 0.0) and decaying["lr"] == other["lr"]
        gradients = [p.grad for group in (decaying, other) for p in group["params"] if p.grad is not None]
        rates.append(decaying["lr"])
        norms.append(float(torch.nn.utils.get_total_norm(gradients)))

    run = fine_tuner(
        tiny_bert_folder, "training.num_epochs=10", "training.batch_size=16", "training.learning_rate=1e-3"
    )
    run.optimizers[0].register_step_pre_hook(record_step)
    drain(run.train())
    assert len(rates) == 30  # 33 sentences form 3 batches
    assert rates[0] < 1e-4 and rates.index(max(rates)) == 3 and max(rates) == 1e-3
    assert rates[3:] == sorted(rates[3:], reverse=True) and rates[-1] == pytest.approx(1e-3 / 27)
    assert max(norms) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(("select", "evaluated"), [("best", [1, 2, 3]), ("last", [3])])
def test_an_evaluation_is_reported_before_and_after(select: str, evaluated: list[int], tiny_bert_folder: Path) -> None:
    events: list[tuple[str, object]] = []
    run = fine_tuner(
        tiny_bert_folder,
        "training.num_epochs=3",
        f"training.select={select}",
        evaluate=lambda model: {TASK.main_metric: 1.0},
    )
    outcome = drain(run.train(), lambda event: events.append((event.type, getattr(event, "epoch", None))))
    assert outcome.epochs == ([1] if select == "best" else [3])  # the first of equal epochs
    found = [one for one in events if one[0] not in ("step", "checkpoint")]
    assert found == [(name, epoch) for epoch in evaluated for name in ("evaluating", "evaluation")]


def test_all_items_are_seen_once_an_epoch_in_another_order(tiny_bert_folder: Path) -> None:
    recipe = fine_tuner(tiny_bert_folder, "training.num_epochs=2", "training.batch_size=8").recipe

    def seen(first: int) -> list[list[int]]:
        batches = islice(recipe.batches(first, None, Share()), 10 - first)
        return [[item.example for item in batch.parts[0]["items"]] for batch in batches]

    found = seen(0)
    first, second = (sorted(chain.from_iterable(found[start : start + 5])) for start in (0, 5))
    assert first == second == list(range(33)) and found[:5] != found[5:]
    assert seen(3) == found[3:]


@pytest.mark.parametrize(("setting", "expected"), [(-1.0, 0.1), (0.0, 0.0), (0.3, 0.3)])
def test_dropout_is_that_of_the_model_or_the_settings(setting: float, expected: float, tiny_bert_folder: Path) -> None:
    run = fine_tuner(tiny_bert_folder, f"training.dropout={setting}")
    parts = dict(run.model.named_modules())
    inner = {name: part.p for name, part in parts.items() if isinstance(part, nn.Dropout)}
    unused = {name: p for name, p in inner.items() if name.endswith(("ffn.dropout", "encoder.encoder.dropout"))}
    assert len(unused) == 3 and set(unused.values()) == {0.0}
    assert {p for name, p in inner.items() if name not in unused} == {expected}
    assert {part.dropout for part in parts.values() if isinstance(part, Attention)} == {expected}
    assert run.model.encoder.config.dropout == expected


def test_a_frozen_encoder_has_no_dropout(tiny_bert_folder: Path) -> None:
    run = fine_tuner(tiny_bert_folder, "training.frozen=true", "training.dropout=0.5")
    run.objective.train()
    assert not any(part.training for part in run.model.encoder.modules())
    assert all(part.training for part in run.model.head.modules())  # type: ignore[union-attr]


def test_the_default_learning_rate_depends_on_the_hidden_size() -> None:
    rates = [default_learning_rate(width, 2e-4) for width in (384, 768, 1024, 32)]
    assert rates == pytest.approx([2e-4, 5e-5, 2.8125e-5, 6e-4])
    assert [head_learning_rate(width) for width in (384, 768, 32)] == pytest.approx([1e-3, 5e-4, 3e-3])
