"""Layer-wise learning rates and gradual unfreezing."""

from __future__ import annotations

import contextlib
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.data.examples import TextExample
from regard.events import drain
from regard.models import Bert, BertConfig, Elmo, ElmoConfig, Gpt, GptConfig
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import load_fine_tuned, predict
from regard.tasks.inputs import InputBuilder
from regard.tasks.text_classification import TextClassification
from regard.text import Tokenizer
from regard.training.layer_schedule import LayerSchedule, parameter_levels
from regard.training.loop import AdversarialPerturbation
from regard.training.recipes.finetuning.config import FineTuningConfig
from regard.training.recipes.finetuning.recipe import FineTuningRecipe
from regard.training.stopping import Stop
from regard.training.trainer import Trainer

CPU = torch.device("cpu")
TASK = TextClassification(["bad", "good"])
EXAMPLES = [TextExample(f"the {label} film, number {n}", label=label) for n in range(8) for label in ("bad", "good")]
SHAPE: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
}


def build_model(family: str, size: int) -> EncoderWithHead:
    torch.manual_seed(0)
    encoder: Bert | Gpt | Elmo
    if family == "bert":
        encoder = Bert(BertConfig(vocab_size=size, **SHAPE))
    elif family == "gpt":
        encoder = Gpt(GptConfig(vocab_size=size, **SHAPE))
    else:
        encoder = Elmo(ElmoConfig(vocab_size=size, num_characters=0, hidden_size=8, cell_size=8, num_hidden_layers=3))
    return EncoderWithHead.from_encoder(encoder, TASK)


@pytest.fixture
def tokenizer(tiny_bert_folder: Path) -> Tokenizer:
    return Tokenizer.open(tiny_bert_folder)


def fine_tuner(
    family: str, tokenizer: Tokenizer, *settings: str, folder: Path | None = None, **options: Any
) -> Trainer:
    model = build_model(family, tokenizer.size)
    items = TASK.preprocess(EXAMPLES, InputBuilder(tokenizer, family=model.encoder.config.family, max_length=32))
    config = FineTuningConfig.load(
        overrides=["training.num_epochs=4", "training.batch_size=4", "training.learning_rate=1e-2", *settings]
    )
    recipe = FineTuningRecipe(TASK, items, config, new_model=lambda seed: model, **options)
    return Trainer(recipe, seed=0, device=CPU, folder=folder)


@pytest.mark.parametrize("family", ["bert", "gpt", "elmo"])
def test_levels_are_counted_from_the_top(family: str) -> None:
    model = build_model(family, 20)
    found = parameter_levels(model, 3)
    named = {name: found[parameter] for name, parameter in model.named_parameters()}
    stack = {"bert": "encoder.layers", "gpt": "decoder.layers", "elmo": "encoder.forwards"}[family]
    for number in range(3):
        inside = {level for name, level in named.items() if name.startswith(f"encoder.{stack}.{number}.")}
        assert inside == {3 - number}
    assert {level for name, level in named.items() if name.startswith("encoder.embedding")} == {4}
    assert {level for name, level in named.items() if name.startswith(("head", "mix", "encoder.decoder.norm"))} == {0}
    assert set(found.values()) == {0, 1, 2, 3, 4} and len(found) == len([*model.parameters()])


@pytest.mark.parametrize("family", ["bert", "elmo"])
@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_layer_has_a_lower_learning_rate_than_the_one_above(family: str, name: str, tokenizer: Tokenizer) -> None:
    run = fine_tuner(family, tokenizer, "training.layerwise_lr_decay=0.5", f"training.optimizer={name}")
    level = run.layer_schedule.levels
    rates: dict[torch.nn.Parameter, list[float]] = {}

    def record_rates(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                rates.setdefault(parameter, []).append(group["lr"])

    for optimizer in run.optimizers:
        optimizer.register_step_pre_hook(record_rates)
    drain(run.train())
    assert rates.keys() == level.keys()
    top = next(rates[parameter] for parameter, number in level.items() if number == 0)
    assert 9e-3 < max(top) <= 1e-2 and len(top) == 16
    for parameter, number in level.items():
        assert rates[parameter] == pytest.approx([rate * 0.5**number for rate in top])


@pytest.mark.parametrize("family", ["bert", "elmo"])
def test_layers_are_unfrozen_one_after_the_other(family: str, tokenizer: Tokenizer) -> None:
    run = fine_tuner(family, tokenizer, "training.unfreeze=0.5", "training.weight_decay=0.1")
    level = run.layer_schedule.levels
    before = {parameter: parameter.detach().clone() for parameter in level}
    moved: list[set[int]] = []
    for _ in run._steps():
        now = {number for parameter, number in level.items() if not torch.equal(parameter, before[parameter])}
        moved.append(now)
    # Levels 0 to 4 are unfrozen during half of the 16 steps: one every two steps.
    assert moved == [set(range(min(step // 2, 4) + 1)) for step in range(16)]
    assert all(parameter.requires_grad for parameter in level)


@pytest.mark.parametrize("family", ["bert", "elmo"])
def test_the_reported_schedule_is_the_real_one(family: str, tokenizer: Tokenizer) -> None:
    run = fine_tuner(
        family, tokenizer, "training.unfreeze=0.6", "training.layerwise_lr_decay=0.5", "training.warmup_ratio=0"
    )
    begun: dict[int, int] = {}
    rates: dict[int, float] = {}

    (optimizer,) = run.optimizers
    steps = count(1)

    def record_step(*_: Any) -> None:
        step = next(steps)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                number = run.layer_schedule.levels[parameter]
                rates.setdefault(number, group["lr"])  # at the first step, where the schedule has its maximum
                if parameter.grad is not None:
                    begun.setdefault(number, step)

    optimizer.register_step_pre_hook(record_step)
    events: list[Any] = []
    drain(run.train(), events.append)
    (event,) = [one for one in events if one.type == "layers"]
    assert event.steps == 16 and [one["layer"] for one in event.layers] == [None, 3, 2, 1, 0]
    assert [one["step"] for one in event.layers] == [begun[number] for number in range(5)]
    assert [one["learning_rate"] for one in event.layers] == pytest.approx([rates[number] for number in range(5)])


def test_no_schedule_is_reported_if_all_layers_are_trained_equally(tokenizer: Tokenizer) -> None:
    for settings in ((), ("training.frozen=true", "training.unfreeze=0.5", "training.layerwise_lr_decay=0.5")):
        types = {event.type for event in fine_tuner("bert", tokenizer, *settings).train()}
        assert types and "layers" not in types


def test_a_run_may_be_too_short_for_all_levels() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(4)]
    level = {parameter: number for number, parameter in enumerate(parameters)}
    optimizer = torch.optim.SGD([{"params": [p], "share": 0.5**n} for n, p in enumerate(parameters)], lr=1.0)

    def found(unfreeze: float, steps: int) -> list[tuple[int | None, int | None, float]]:
        event = LayerSchedule(level, 2, unfreeze=unfreeze).event([optimizer], learning_rate=0.8, steps=steps)
        return [(start["layer"], start["step"], start["learning_rate"]) for start in event.layers]

    assert found(1.0, 2) == [(None, 1, 0.8), (2, 2, 0.4), (1, None, 0.2), (0, None, 0.1)]
    assert [step for _, step, _ in found(0.5, 12)] == [1, 3, 5, 7]
    assert [step for _, step, _ in found(0.0, 12)] == [1, 1, 1, 1]


def test_levels_are_unfrozen_over_time() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(3)]
    level = {parameter: number for number, parameter in enumerate(parameters)}
    for progress, expected in ((0.0, 1), (0.19, 1), (0.2, 2), (0.39, 2), (0.4, 3), (1.0, 3)):
        LayerSchedule(level, 1, unfreeze=0.4).start_step(progress)
        assert [parameter.requires_grad for parameter in parameters] == [True] * expected + [False] * (3 - expected)


def test_embeddings_are_perturbed_from_the_step_at_which_they_are_unfrozen(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied: list[int] = []

    def record(perturbation: AdversarialPerturbation) -> contextlib.nullcontext[None]:
        applied.append(run.step)
        return contextlib.nullcontext()

    monkeypatch.setattr(AdversarialPerturbation, "applied", record)
    run = fine_tuner("bert", tokenizer, "training.adversarial_epsilon=0.5", "training.unfreeze=0.5")
    drain(run.train())
    assert applied == list(range(8, 16))


class StopAfterEightSteps(Stop):
    """Requests a stop in the middle of the run."""

    steps = 0

    @property
    def signal(self) -> int | None:  # type: ignore[override]
        self.steps += 1
        return 2 if self.steps > 8 else None

    @signal.setter
    def signal(self, number: int | None) -> None:
        pass


def test_a_run_resumes_bit_for_bit(tokenizer: Tokenizer, tmp_path: Path, one_thread: None) -> None:
    settings = ("training.unfreeze=0.5", "training.layerwise_lr_decay=0.4", "run.checkpoint_every=1 steps")
    whole = fine_tuner("bert", tokenizer, *settings)
    drain(whole.train())
    cut = fine_tuner("bert", tokenizer, *settings, folder=tmp_path)
    with pytest.raises(SystemExit):
        drain(cut.train(StopAfterEightSteps()))
    again = fine_tuner("bert", tokenizer, *settings, folder=tmp_path)
    assert drain(again._resume()) and again.step in range(1, 15)
    outcome = fine_tuner("bert", tokenizer, *settings, folder=tmp_path)
    assert drain(outcome.train()).steps == 16
    expected = whole.model.state_dict()
    for name, tensor in outcome.model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


def test_the_best_epoch_restores_all_layers(tokenizer: Tokenizer) -> None:
    """Layers that are still frozen in the best epoch are restored to their values in that epoch."""
    scores = iter([4.0, 3.0, 2.0, 1.0])
    run = fine_tuner(
        "bert", tokenizer, "training.unfreeze=1.0", evaluate=lambda model: {TASK.main_metric: next(scores)}
    )
    before = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    outcome = drain(run.train())
    assert outcome.epochs == [1]
    after = run.model.state_dict()
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert changed and all(name.startswith("head") for name in changed)


def test_an_elmo_has_a_larger_learning_rate(tokenizer: Tokenizer) -> None:
    rates = {
        family: fine_tuner(family, tokenizer, "training.learning_rate=0").recipe.training.learning_rate
        for family in ("bert", "elmo")
    }
    assert rates == {"bert": pytest.approx(6e-4), "elmo": pytest.approx(3e-3)}
    assert fine_tuner("elmo", tokenizer).recipe.training.learning_rate == 1e-2


def test_a_fine_tuned_elmo_is_saved_and_loaded(tune: Any, tmp_path: Path, tokenizer: Tokenizer) -> None:
    torch.manual_seed(0)
    elmo = Elmo(
        ElmoConfig(
            vocab_size=tokenizer.size, num_characters=0, hidden_size=16, cell_size=16, num_hidden_layers=2, dropout=0.0
        )
    )
    regard.save(elmo, tmp_path / "elmo", tokenizer)
    report = tune(
        tmp_path / "run", "training.learning_rate=2e-2", "training.num_epochs=6", model=str(tmp_path / "elmo")
    )
    assert report.mean["accuracy"] > 90
    solved = load_fine_tuned(tmp_path / "run")
    found = predict(solved, [TextExample("the film is so good"), TextExample("they see it now , dull")], device=CPU)
    assert [one["label"] for one in found] == ["pos", "neg"]
    assert isinstance(solved.model, EncoderWithHead) and solved.model.mix is not None
    assert solved.model.mix.s.abs().sum() > 0  # the layer weights were trained
