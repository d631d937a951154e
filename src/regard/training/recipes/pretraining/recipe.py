"""The recipe of pretraining: micro-batches of an endless stream of rows, an objective, and scores on held-out text."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import computed_field
from torch import nn

from regard.checkpoints import loading
from regard.device import autocast_dtype
from regard.errors import InputError
from regard.files.durable_folder import describe_changes
from regard.models.family import build, can, describe_family, family_name, pretrainable_families
from regard.render.result import Table
from regard.text import Tokenizer
from regard.training.events import Events, PretrainingPlan, describe_scores
from regard.training.loop import derive_seed
from regard.training.recipe import Capability, Evaluation, Recipe, Scores, Share, StepBatch
from regard.training.recipes.pretraining.config import PretrainingConfig
from regard.training.recipes.pretraining.micro_batches import MicroBatch
from regard.training.recipes.pretraining.objectives import (
    PretrainingDataset,
    PretrainingObjective,
    layer_parameters,
    objective_class,
)
from regard.training.run_folder import RunReport
from regard.training.settings import parse_budget
from regard.training.speed import Speed
from regard.training.trainer import Trainer
from regard.wording import duration

OTHER_TEXT = "{} was trained on another text: resume with the same --corpus and --heldout, if it was given"
DROPOUTS = ("dropout", "attention_dropout")
# The runs behind the curve: parameters of the layers, vocabulary size, and tokens read.
MEASURED_LAYERS, MEASURED_VOCABULARY, MEASURED_TOKENS = 10_616_832, 30_522, (5e7, 5e9)
CURVE = (2.05, 1.62, 0.42)  # irreducible loss, reducible loss at 100 million tokens, exponent


class PretrainingResult(RunReport):
    """A finished run: the model folder, the cost, and the scores on held-out text."""

    steps: int
    tokens: int
    seconds: float
    scores: dict[str, dict[str, float | int]]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def tokens_per_second(self) -> float:
        return self.tokens / max(self.seconds, 1e-9)

    def to_text(self) -> str:
        lines = [f"{self.output}: {self.steps:,} steps, {self.tokens:,} tokens in {duration(self.seconds)}"]
        return "\n".join([*lines, *describe_scores(self.scores)])

    def to_table(self) -> Table:
        rows = [
            [name, score["loss"], score.get("accuracy"), score.get("perplexity")] for name, score in self.scores.items()
        ]
        return ["objective", "loss", "accuracy", "perplexity"], rows


class LanguageModelRecipe(Recipe):
    """Trains a new model, or the one named `start`, on the text of a data set.

    A budget counts from `begin`, a time of `time.perf_counter`; the learning rate schedule has what is left of it.
    """

    refuses: ClassVar[Mapping[Capability, str]] = {"epochs": "the rows of a text are sampled without end"}
    remedy = (
        "Lower optimizer.learning_rate, or use a larger schedule.warmup_ratio; --resume would continue from the last "
        "checkpoint with the same settings"
    )
    main_score = "loss"
    preparation: PretrainingObjective

    def __init__(
        self,
        config: PretrainingConfig,
        dataset: PretrainingDataset,
        output: Path,
        *,
        processes: int = 1,
        start: str = "",
        begin: float = 0.0,
    ) -> None:
        self.config, self.dataset, self.output, self.start, self.begin = config, dataset, output, start, begin
        self.run, self.objective_class = config.run, objective_class(config)
        batch, micro = config.data.tokens_per_batch, config.data.tokens_per_micro_batch
        parts = batch // micro if micro else processes
        if parts % processes:
            raise InputError(
                f"{parts} forward passes per step (data.tokens_per_batch / data.tokens_per_micro_batch) cannot be "
                f"shared by {processes} processes; choose another data.tokens_per_micro_batch"
            )
        self.training = config.training(accumulation=parts // processes)
        self.micro_batches = self.objective_class.micro_batches(config, dataset, micro or batch // processes)
        self.flops_per_token = self.objective_class.flops_per_token(config, dataset.tokenizer.size)

    def build_model(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        config, tokenizer = self.config, self.dataset.tokenizer
        model: nn.Module = (
            pretrained_model(config, tokenizer, self.start) if self.start else new_model(config, tokenizer)
        )
        # Recurrent layers are library kernels, which there is nothing to compile in.
        self.constant_shapes = not can(model, "recurrent")
        return model

    def objective(self, model: nn.Module, device: torch.device) -> nn.Module:
        self.generator, self.pins_memory = torch.Generator(device=device), device.type == "cuda"
        self.preparation = self.objective_class.from_config(self.config, model, self.dataset.tokenizer, device)
        return self.preparation

    def batches(self, step: int, position: Any, share: Share) -> Iterator[StepBatch]:
        row = 0 if position is None else position["row"]
        stream = self.micro_batches.stream(step * share.count, row)
        while True:
            batches = [next(stream) for _ in range(share.count)]
            mine = batches[share.first :: share.processes]
            yield StepBatch(
                [batch.pinned() for batch in mine] if self.pins_memory else mine,
                tokens=sum(batch.tokens for batch in batches),
                position={"row": batches[-1].next_row, "text": self.dataset.digest},
            )

    def inputs(self, part: MicroBatch, device: torch.device) -> dict[str, Any]:
        self.generator.manual_seed(derive_seed(self.run.seed, part.number))
        return dict(self.preparation.prepare(part.to(device), self.generator))

    def evaluate(self, model: nn.Module, *, final: bool) -> Evaluation:
        """In the precision of the training."""
        device = next(model.parameters()).device
        dtype = autocast_dtype(self.run.precision, device)
        with torch.autocast(device.type, dtype) if dtype else nullcontext():
            return self.objective_class.scores(model, self.config, self.dataset)
        yield  # a generator without progress

    def quality(self, scores: Scores) -> float:
        return -sum(float(score["loss"]) for score in scores.values())

    def other_data(self, position: Any) -> str:
        return "" if position["text"] == self.dataset.digest else OTHER_TEXT.format(self.output)

    def seconds_left(self) -> float:
        """What the preparation has left of the budget."""
        return parse_budget(self.training.budget) - (time.perf_counter() - self.begin)

    def plan(self, trainer: Trainer, speed: Speed | None) -> Events[None]:
        assert speed is not None
        if budget := self.training.budget:
            (trainer.training_seconds,) = trainer.world.broadcast(self.seconds_left())
            if trainer.training_seconds <= 0:
                spent = duration(parse_budget(budget) - trainer.training_seconds)
                raise InputError(
                    f"the budget of {budget} is used up before the first step: vocabulary, tokens and measurement took "
                    f"{spent}. They are kept in {self.output}: run the same command again, or give a larger --budget"
                )
        batch, seconds = self.config.data.tokens_per_batch, speed.seconds_per_step
        steps = trainer.steps or max(int((trainer.training_seconds or 0.0) / seconds), 1)
        yield PretrainingPlan(
            seconds_per_step=seconds,
            preparation=time.perf_counter() - self.begin,
            tokens_per_second=batch / seconds,
            steps=steps,
            seconds=steps * seconds,
            tokens=steps * batch,
            epochs=steps * batch / self.dataset.text.tokens,
            mfu=speed.mfu * batch / seconds,
            expected_loss=expected_loss(self.config, self.dataset.tokenizer.size, steps * batch),
        )


def model_config(config: PretrainingConfig, **fields: Any) -> Any:
    """The configuration of the model that the settings describe."""
    family = pretrainable_families()[config.model.family]
    return family.config_class(family=family.name, **config.recipe.config_fields(dict(config.model)), **fields)


def trained_heads(config: PretrainingConfig) -> tuple[str, ...] | None:
    """The heads that a run trains; None: the family's default. Without sentence pairs there are no heads for them."""
    if config.recipe.objective == "replaced-token-detection":
        return ("discriminator",)
    if config.recipe.objective != "masked-lm":
        return None
    return ("mlm_head",) if config.objective.sentence_pairs == "none" else ("pooler", "mlm_head", "nsp_head")


def new_model(config: PretrainingConfig, tokenizer: Tokenizer) -> Any:
    """A model with new weights."""
    ids = {name: getattr(tokenizer, token) for name, token in config.recipe.token_ids.items()}
    model = build(model_config(config, vocab_size=tokenizer.size, **ids), output_heads=trained_heads(config))
    return model if config.recipe.trained_model is None else config.recipe.trained_model(model)


def pretrained_model(config: PretrainingConfig, tokenizer: Tokenizer, name: str) -> Any:
    """A pretrained model to continue from; its shape and vocabulary must match the settings."""
    if config.recipe.trained_model is not None:
        title = describe_family(config.model.family)
        raise InputError(
            f"{title} cannot be trained from {name}: the other model that it is trained with is new. Start without a "
            "model, or continue an interrupted run with --resume"
        )
    found: Any
    found, vocabulary = loading.load(name)
    family = pretrainable_families()[config.model.family]
    if family_name(found) != family.name:
        raise InputError(f"{name} is not a {config.model.family}; start from a model of that family")
    if vocabulary is None or vocabulary.vocabulary != tokenizer.vocabulary:
        raise InputError(f"{name} has another vocabulary than the corpus; set vocabulary.path to that model's folder")
    settings = config.recipe.config_fields(dict(config.model))
    dropouts = {key: value for key, value in settings.items() if key in DROPOUTS}
    wanted = {key: value for key, value in settings.items() if key not in DROPOUTS}
    if different := describe_changes({key: getattr(found.config, key) for key in wanted}, wanted):
        raise InputError(f"{name} has another shape than [model]: {'; '.join(different)}. Set [model] to its shape")
    present = tuple(head for head in family.output_heads if getattr(found, head) is not None)
    new = build(replace(found.config, **dropouts), output_heads=trained_heads(config) or present or None)
    if missing := new.load_state_dict(found.state_dict(), strict=False).missing_keys:
        heads = ", ".join(sorted({key.split(".")[0] for key in missing}))
        raise InputError(
            f"{name} lacks heads that this run trains: {heads}; start from a model that was pretrained for it"
        )
    return new


def expected_loss(config: PretrainingConfig, vocabulary: int, tokens: int) -> float | None:
    """The masked language modeling loss to expect after `tokens` tokens; None if no comparable run was measured.

    The curve is fitted to runs on English text with 6 layers of 384, a vocabulary of 30,522 and Muon.
    """
    comparable = (
        config.recipe.objective == "masked-lm"
        and config.optimizer.name == "muon"
        and config.objective.mlm_probability == 0.15
        and 1 / 2 <= layer_parameters(config.model) / MEASURED_LAYERS <= 2
        and 3 / 4 <= vocabulary / MEASURED_VOCABULARY <= 4 / 3
        and MEASURED_TOKENS[0] <= tokens <= MEASURED_TOKENS[1]
    )
    least, size, power = CURVE
    return least + size * (tokens / 1e8) ** -power if comparable else None
