"""`regard train TASK`: fine-tune a model for a task on your own files."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator

from regard.errors import InputError
from regard.events import Event
from regard.verbs.base import (
    GENERAL_GROUP,
    RUN_GROUP,
    Device,
    Models,
    Request,
    argument,
    model_option,
    option,
    verb,
)
from regard.verbs.tables import TableRequest, table_options

if TYPE_CHECKING:
    from regard.settings import SettingsTables
    from regard.training.recipes.finetuning.config import FineTuningConfig
    from regard.training.recipes.finetuning.report import FineTuningReport

# ULM-FiT's layer-wise decay; all layers are unfrozen after half of the run.
ULMFIT = [f"training.layerwise_lr_decay={1 / 2.6:.4f}", "training.unfreeze=0.5"]


TRAINING_GROUP = "Training"  # the group of these options in help pages


def assignments(values: Mapping[str, object]) -> list[str]:
    """Settings as "KEY=VALUE"; those that are None are left out."""
    from regard.settings import toml_value

    return [f"{key}={toml_value(value)}" for key, value in values.items() if value is not None]


def _assignments(value: object) -> object:
    return assignments(value) if isinstance(value, Mapping) else value


# "KEY=VALUE" each; in Python also a dictionary.
Settings = Annotated[list[str] | dict[str, Any], BeforeValidator(_assignments)]


def settings_option(example: str) -> Any:
    return option([], "--set", help=f"One setting, like {example}.", metavar="KEY=VALUE", repeat=True, group=RUN_GROUP)


def epochs_option() -> Any:
    return option(None, help="Number of epochs, at most.", metavar="N", ge=1, group=TRAINING_GROUP)


def limit_option(unit: str) -> Any:
    return option(None, help=f"Train on a sample of at most N of the {unit}.", metavar="N", ge=1)


def patience_option() -> Any:
    return option(
        None, help="Stop after N epochs without a better one on dev.", metavar="N", ge=1, group=TRAINING_GROUP
    )


# Of the loss: those of scikit-learn's formula, or a weight for each label; 1 for labels without one.
ClassWeights = Literal["balanced"] | dict[str, float]


class RunRequest(Request):
    """Options of all training runs."""

    output: Path = option(..., "-o", help="Folder of the run and the model.", metavar="DIR", writes=True)
    config: Path | None = option(None, help="Settings, as TOML.", metavar="FILE", group=RUN_GROUP)
    settings: Settings = settings_option("training.num_epochs=4")
    resume: bool = option(False, help="Continue the run in DIR; start it if there is none.", group=RUN_GROUP)
    tensorboard: Path | None = option(
        None,
        help="Folder to write scalars for TensorBoard to, beside the event log.",
        metavar="DIR",
        group=RUN_GROUP,
        writes=True,
    )
    device: Device = option("auto", help="Device to compute on; auto uses a GPU if there is one.", group=GENERAL_GROUP)

    @property
    def resumes(self) -> bool:
        """Whether the run in the folder is continued: also if `torchrun` starts its processes again after a failure."""
        return self.resume or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0

    def config_file(self) -> Path | None:
        """The settings that are given, or those of the run that is resumed."""
        from regard.training.run_folder import saved_config

        return self.config or saved_config(self.output, resume=self.resumes)

    def run_options(self) -> dict[str, Any]:
        return {
            "output": self.output,
            "resume": self.resumes,
            "tensorboard": self.tensorboard,
            "device": self.device,
        }


def _source(value: object) -> object:
    if value is None or isinstance(value, os.PathLike):
        return value
    if isinstance(value, str):
        return Path(value)
    from regard.data.readers import RecordList

    return RecordList.from_source(value)


# A file; in Python also a DataFrame, or a list of dictionaries or tuples.
ExampleSource = Annotated[Any, BeforeValidator(_source)]


class FineTuningRequest(RunRequest, TableRequest):
    """Options of runs on labeled examples."""

    train: ExampleSource = option(help="Labeled examples to train on.", metavar="FILE")
    dev: ExampleSource = option(None, help="Examples to evaluate on. Default: a tenth of the examples.", metavar="FILE")
    split: str | None = option(None, help="Split FILE into train, dev and test.", metavar="80/10/10")
    limit: int | None = limit_option("examples")
    seeds: int | None = option(
        None, help="Train with N seeds and keep the best.", metavar="N", ge=1, group=TRAINING_GROUP
    )
    epochs: int | None = epochs_option()
    batch_size: int | None = option(None, help="Examples per step.", metavar="N", ge=1, group=TRAINING_GROUP)
    learning_rate: float | None = option(None, help="Peak learning rate.", metavar="X", gt=0, group=TRAINING_GROUP)
    early_stopping_patience: int | None = patience_option()
    class_weights: ClassWeights | None = option(
        None,
        help="balanced: weigh rare classes more in the loss, as scikit-learn does. In Python also a weight per label.",
        metavar="balanced",
        group=TRAINING_GROUP,
    )

    def load_config(self, defaults: SettingsTables, overrides: Sequence[str] = ()) -> FineTuningConfig:
        """The settings of the run; `overrides` come before those of the request."""
        from regard.training.recipes.finetuning.config import FineTuningConfig

        options = {
            "run.num_seeds": self.seeds,
            "training.num_epochs": self.epochs,
            "training.batch_size": self.batch_size,
            "training.learning_rate": self.learning_rate,
            "training.early_stopping_patience": self.early_stopping_patience,
            "training.class_weights": self.class_weights,
        }
        overrides = [*assignments(options), *overrides, *self.settings]
        return FineTuningConfig.load(self.config_file(), overrides=overrides, defaults=defaults)

    def run_options(self) -> dict[str, Any]:
        more = {"table": table_options(self), "split": self.split, "limit": self.limit}
        return super().run_options() | more


class TrainRequest(FineTuningRequest):
    task: str = argument(help="The task; `regard train --help` lists them.")
    model: str | None = model_option(
        None,
        help="A model folder, a hub name or a built-in name. Default: regard-bert; regard-embed for at most 1,000 "
        "texts, for numbers and with --frozen.",
    )
    baseline: bool = option(
        True,
        "--baseline/--no-baseline",
        help="Also fit a linear model on vectors of the texts, and keep the better one.",
        group=TRAINING_GROUP,
    )
    frozen: bool = option(False, help="Train only the task head; the encoder stays frozen.", group=TRAINING_GROUP)
    both: bool = option(
        False, help="Train with a frozen encoder as well, in DIR/frozen, and report both.", group=TRAINING_GROUP
    )
    ulmfit: bool = option(
        False, help="Unfreeze layers gradually, from the top; lower layers learn more slowly.", group=TRAINING_GROUP
    )


def _tasks() -> dict[str, str]:
    from regard.tasks.registry import TASKS

    return {name: task.about for name, task in TASKS.items()}


@verb(
    TrainRequest,
    result="regard.training.recipes.finetuning.report:FineTuningReport",
    http=False,
    subcommands=("task", _tasks),
)
def train(request: TrainRequest, models: Models) -> Generator[Event, None, FineTuningReport]:
    """Fine-tune a model for a task on your own files."""
    from regard.tasks.registry import task_for
    from regard.training.recipes.finetuning.run import fine_tune

    if request.frozen and request.both:
        raise InputError("--both includes --frozen; use one of them")
    if request.frozen and request.ulmfit:
        raise InputError("--ulmfit trains all layers in the end, --frozen none of them; use one of them")
    overrides = [*(["training.frozen=true"] if request.frozen else []), *(ULMFIT if request.ulmfit else [])]
    overrides += [] if request.baseline else ["training.baseline=false"]
    defaults = {"training": dict(task_for(request.task, request.train).training_defaults)}
    return (
        yield from fine_tune(
            request.task,
            request.train,
            request.dev,
            model=request.model,
            config=request.load_config(defaults, overrides),
            both=request.both,
            **request.run_options(),
        )
    )
