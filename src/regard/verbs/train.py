"""`regard train TASK`: fine-tune a model for a task on your own files."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from regard.errors import InputError
from regard.events import Event, Note
from regard.verbs.base import GENERAL_GROUP, RUN_GROUP, Device, Models, Request, argument, model_option, option, verb
from regard.verbs.tables import TableRequest, table_options

if TYPE_CHECKING:
    from regard.data.readers import ExampleSet
    from regard.settings import SettingsTables
    from regard.training.finetuning.config import FineTuningConfig
    from regard.training.finetuning.report import FineTuningReport

# ULM-FiT's layer-wise decay; all layers are unfrozen after half of the run.
ULMFIT = [f"training.layerwise_lr_decay={1 / 2.6:.4f}", "training.unfreeze=0.5"]


def _assignments(value: object) -> object:
    return [f"{key}={item}" for key, item in value.items()] if isinstance(value, Mapping) else value


# "KEY=VALUE" each; in Python also a dictionary.
Settings = Annotated[list[str] | dict[str, Any], BeforeValidator(_assignments)]


def settings_option(example: str) -> Any:
    return option([], "--set", help=f"One setting, like {example}.", metavar="KEY=VALUE", repeat=True, group=RUN_GROUP)


class RunRequest(Request):
    """Options of all training runs."""

    output: Path = option(..., "-o", help="Folder of the run and the model.", metavar="DIR")
    config: Path | None = option(None, help="Settings, as TOML.", metavar="FILE", group=RUN_GROUP)
    settings: Settings = settings_option("training.num_epochs=4")
    resume: bool = option(False, help="Continue the run in DIR; start it if there is none.", group=RUN_GROUP)
    device: Device = option("auto", help="Device to compute on; auto uses a GPU if there is one.", group=GENERAL_GROUP)

    def saved_config(self) -> Path | None:
        """The settings of the run that is resumed, unless others are given."""
        from regard.training.run_folder import saved_config

        return saved_config(self.output, resume=self.resume) if self.config is None else None


class FineTuningRequest(RunRequest, TableRequest):
    """Options of runs on labeled examples."""

    train: Path = option(help="Labeled examples to train on.", metavar="FILE")
    dev: Path | None = option(None, help="Examples to evaluate on. Default: a tenth of the examples.", metavar="FILE")
    split: str | None = option(None, help="Split FILE into train, dev and test.", metavar="80/10/10")
    seeds: int | None = option(None, help="Train with N seeds and keep the best.", metavar="N", ge=1)

    def load_config(self, defaults: SettingsTables, overrides: Sequence[str] = ()) -> FineTuningConfig:
        """The settings of the run; `overrides` come before those of the request."""
        from regard.training.finetuning.config import FineTuningConfig

        saved = self.saved_config()
        seeds = [] if self.seeds is None else [f"run.num_seeds={self.seeds}"]
        overrides = [*seeds, *overrides, *self.settings]
        return FineTuningConfig.load(
            self.config or saved, overrides=overrides, defaults=defaults, saved=saved is not None
        )

    def run_options(self) -> dict[str, Any]:
        return {
            "output": self.output,
            "table": table_options(self),
            "split": self.split,
            "resume": self.resume,
            "device": self.device,
        }


class TrainRequest(FineTuningRequest):
    task: str = argument(help="The task; `regard train --help` lists them.")
    model: str = model_option()
    frozen: bool = option(False, help="Train only the task head; the encoder stays frozen.")
    both: bool = option(False, help="Train with a frozen encoder as well, in DIR/frozen, and report both.")
    limit: int | None = option(None, help="Train on a sample of at most N of the examples.", metavar="N", ge=1)
    ulmfit: bool = option(False, help="Unfreeze layers gradually, from the top; lower layers learn more slowly.")


def _tasks() -> dict[str, str]:
    from regard.tasks.registry import TASKS

    return {name: task.about for name, task in TASKS.items()}


def _sample(request: TrainRequest, limit: int) -> Generator[Note, None, ExampleSet[Any]]:
    from regard.tasks.registry import read_examples

    read = read_examples(request.task, request.train, table=table_options(request), labeled=True)
    if limit >= len(read.examples):
        return read
    yield Note(message=f"{limit:,} of {len(read.examples):,} examples were sampled")
    return read.sample(limit)


@verb(
    TrainRequest,
    result="regard.training.finetuning.report:FineTuningReport",
    http=False,
    subcommands=("task", _tasks),
)
def train(request: TrainRequest, models: Models) -> Generator[Event, None, FineTuningReport]:
    """Fine-tune a model for a task on your own files."""
    from regard.tasks.registry import task_for
    from regard.training.finetuning.run import fine_tune

    if request.frozen and request.both:
        raise InputError("--both includes --frozen; use one of them")
    if request.frozen and request.ulmfit:
        raise InputError("--ulmfit trains all layers in the end, --frozen none of them; use one of them")
    overrides = [*(["training.frozen=true"] if request.frozen else []), *(ULMFIT if request.ulmfit else [])]
    examples: Path | ExampleSet[Any] = request.train
    if request.limit is not None:
        examples = yield from _sample(request, request.limit)
    defaults = {"training": dict(task_for(request.task, request.train).training_defaults)}
    return (
        yield from fine_tune(
            request.task,
            examples,
            request.dev,
            model=request.model,
            config=request.load_config(defaults, overrides),
            both=request.both,
            **request.run_options(),
        )
    )
