"""Every capability of the trainer works for every recipe, or is refused by name with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from regard.data.readers import ExampleSet
from regard.errors import InputError
from regard.events import drain
from regard.training import speed
from regard.training.recipe import Recipe
from regard.training.recipes.embedding.config import EmbeddingConfig
from regard.training.recipes.embedding.data import TextRows
from regard.training.recipes.embedding.recipe import EmbeddingRecipe, train_embedder
from regard.training.recipes.finetuning.config import FineTuningConfig
from regard.training.recipes.finetuning.recipe import FineTuningRecipe
from regard.training.recipes.finetuning.run import distill, fine_tune
from regard.training.recipes.pretraining.recipe import LanguageModelRecipe
from regard.training.recipes.pretraining.run import pretrain
from regard.training.recipes.translation.config import TranslationConfig
from regard.training.recipes.translation.recipe import TranslatorRecipe, train_translator
from regard.training.settings import RunSection, TrainingSection
from tests.inference.translation.conftest import SMALL as SMALL_TRANSLATOR
from tests.inference.translation.conftest import sentences
from tests.training.recipes.finetuning.conftest import SMALL as SMALL_TUNING
from tests.training.recipes.finetuning.conftest import reviews
from tests.training.recipes.pretraining import runs

# By capability, the settings of all recipes but pretraining, whose names are in `PRETRAINING`.
CAPABILITIES: dict[str, list[str]] = {
    "muon": ["training.optimizer=muon"],
    **{name: [f"training.lr_scheduler_type={name}"] for name in ("linear", "cosine", "constant", "noam")},
    "epochs": ["training.num_epochs=1"],
    "max_steps": ["training.max_steps=3"],
    "budget": ["training.budget=0.2s", "training.warmup_steps=0", "training.warmup_ratio=0.1"],
    "gradient accumulation": ["training.gradient_accumulation_steps=2"],
    "early stopping": ["training.early_stopping_patience=1"],
    **{name: [f"training.select={name}", "training.average_epochs=2"] for name in ("best", "last", "average")},
    "gradient checkpointing": ["run.gradient_checkpointing=true"],
    "compile": ["run.compile=on"],
    "evaluations": ["run.evaluate_every=2 steps"],
    "checkpoints": ["run.checkpoint_every=1 steps", "run.save_total_limit=1"],
}
PRETRAINING = {
    "training.optimizer": "optimizer.name",
    "training.gradient_accumulation_steps=2": "data.tokens_per_micro_batch=128",
    "training": "schedule",
}
FAMILIES = ("gpt", "t5", "electra", "elmo")  # causal, span corruption, replaced tokens, both directions
Train = Callable[[Path, list[str]], Any]


def pretraining_settings(settings: list[str]) -> list[str]:
    found = []
    for setting in settings:
        if setting == "training.warmup_steps=0":
            continue
        for ours, theirs in PRETRAINING.items():
            if setting.startswith(ours):
                setting = setting.replace(ours, theirs, 1)
                break
        found.append(setting)
    return found + (["schedule.max_steps=0"] if any("budget" in setting for setting in found) else [])


@pytest.fixture(scope="module")
def recipes(tiny_bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Train]:
    folder = tmp_path_factory.mktemp("data")
    for name, count in (("train", 24), ("dev", 8)):
        (folder / f"{name}.tsv").write_text(reviews(count), encoding="utf-8")
    (folder / "story.txt").write_text(runs.story(40), encoding="utf-8")
    pairs = sentences(40)
    train, dev = (ExampleSet(part, "pairs", "generated") for part in (pairs[:32], pairs[32:]))
    rows = TextRows(tuple(list(column) for column in zip(*pairs[:16], strict=True)), path="pairs")
    tuned: dict[str, Any] = {"model": str(tiny_bert_folder), "device": "cpu"}
    files = str(folder / "train.tsv"), str(folder / "dev.tsv")
    small = [*SMALL_TUNING, "training.num_epochs=2", "training.min_steps=0"]

    def translation(output: Path, settings: list[str]) -> Any:
        config = TranslationConfig.read(overrides=[*SMALL_TRANSLATOR, "training.num_epochs=2", *settings])
        return drain(train_translator(train, dev, output=output, config=config, device="cpu"))

    def embedding(output: Path, settings: list[str]) -> Any:
        config = EmbeddingConfig.load(overrides=["training.num_epochs=2", "training.batch_size=8", *settings])
        return drain(train_embedder(rows, rows, output=output, config=config, **tuned))

    def fine_tuning(output: Path, settings: list[str]) -> Any:
        config = FineTuningConfig.load(overrides=[*small, *settings])
        return drain(fine_tune("classify", *files, output=output, config=config, **tuned))

    def distillation(output: Path, settings: list[str]) -> Any:
        if not (teacher := folder / "teacher").exists():
            fine_tuning(teacher, [])
        config = FineTuningConfig.load(overrides=[*small, *settings])
        return drain(distill(teacher, *files, layers=1, output=output, config=config, device="cpu"))

    def pretraining(output: Path, settings: list[str], *, family: str = "bert") -> Any:
        config = runs.PretrainingConfig.read(
            family=family, overrides=[*runs.settings(family, schedule_max_steps=3), *pretraining_settings(settings)]
        )
        return drain(pretrain(config, [str(folder / "story.txt")], output, device=torch.device("cpu")))

    return {
        **{f"pretraining {family}": partial(pretraining, family=family) for family in FAMILIES},
        "translation": translation,
        "embedding": embedding,
        "fine-tuning": fine_tuning,
        "distillation": distillation,
        "pretraining": pretraining,
    }


CLASSES: dict[str, type[Recipe]] = {
    "translation": TranslatorRecipe,
    "embedding": EmbeddingRecipe,
    "fine-tuning": FineTuningRecipe,
    "distillation": FineTuningRecipe,
    "pretraining": LanguageModelRecipe,
    **dict.fromkeys((f"pretraining {family}" for family in FAMILIES), LanguageModelRecipe),
}
MARKS = {f"pretraining {family}": pytest.mark.long for family in FAMILIES}


# What a model, not its recipe, cannot do.
MODEL_REFUSES = {("pretraining elmo", "muon"): "muon trains the matrices inside layers, and this model has none"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in CLASSES])
def test_a_recipe_has_every_capability_or_says_why_not(
    name: str, recipes: Mapping[str, Train], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    monkeypatch.setattr("regard.training.speed.SECONDS", 0.0)
    monkeypatch.setitem(speed.SIDE, "cpu", 64)
    runs.ignore_preparation(monkeypatch)
    compiled: list[nn.Module] = []
    monkeypatch.setattr(nn.Module, "compile", lambda module, **options: compiled.append(module))
    for capability, settings in CAPABILITIES.items():
        output = tmp_path / capability
        if capability in CLASSES[name].refuses:
            reason = CLASSES[name].refuses[capability]  # type: ignore[index]
            if capability == "epochs":  # which it has no setting for
                continue
            with pytest.raises(InputError, match=reason):
                recipes[name](output, settings)
            continue
        if reason := MODEL_REFUSES.get((name, capability)):
            with pytest.raises(InputError, match=reason):
                recipes[name](output, settings)
            continue
        recipes[name](output, settings)
        assert (output / "model.safetensors").is_file(), capability
        assert bool(compiled) == (capability == "compile"), capability
        compiled.clear()


@pytest.mark.parametrize("name", [name for name in CLASSES if "processes" in CLASSES[name].refuses])
def test_several_processes_are_refused_with_the_reason(
    name: str, recipes: Mapping[str, Train], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has no test of two processes: the others are in `recipes/*/test_run_processes.py`."""
    for variable, value in (("WORLD_SIZE", "2"), ("RANK", "0")):
        monkeypatch.setenv(variable, value)
    with pytest.raises(InputError, match=CLASSES[name].refuses["processes"]):
        recipes[name](tmp_path / "run", [])
    assert not (tmp_path / "run").exists()


def test_settings_are_declared_once() -> None:
    """A recipe may have another default and more settings, but no setting of its own that the trainer has."""
    for config in (TranslationConfig, EmbeddingConfig, FineTuningConfig):
        section = config.model_fields["training"].annotation
        assert isinstance(section, type) and issubclass(section, TrainingSection)
    for any_config in (TranslationConfig, EmbeddingConfig, FineTuningConfig, runs.PretrainingConfig):
        run = any_config.model_fields["run"].annotation
        assert isinstance(run, type) and issubclass(run, RunSection)
    optimizer, schedule = (runs.PretrainingConfig.model_fields[key].annotation for key in ("optimizer", "schedule"))
    known = {**TrainingSection.model_fields, "name": TrainingSection.model_fields["optimizer"]}
    for section in (optimizer, schedule):
        assert isinstance(section, type) and {*section.model_fields} <= known.keys()
        for key, field in section.model_fields.items():
            assert field.description == known[key].description or key == "learning_rate"
