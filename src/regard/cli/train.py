"""`regard train TASK`: fine-tune a model for a task on your own files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from regard.cli import train_translate
from regard.cli.options import (
    MAX_LINE,
    ColumnsOption,
    DelimiterOption,
    DeviceOption,
    HeaderOption,
    JsonOption,
    MaxLineOption,
    ModelOption,
    QuotedOption,
    ResumeOption,
)
from regard.cli.output import print_json
from regard.cli.training_display import training_display
from regard.errors import InputError
from regard.events import drain
from regard.known import DEFAULT_MODEL

if TYPE_CHECKING:
    from regard.training.finetuning.config import FineTuningConfig

STATUS_EVERY = 15.0  # seconds, without a terminal
# ULM-FiT's layer-wise decay; all layers are unfrozen after half of the run.
ULMFIT = [f"training.layerwise_lr_decay={1 / 2.6:.4f}", "training.unfreeze=0.5"]


class TaskGroup(TyperGroup):
    """Adds one command per task when a command or the help is needed, because the tasks import torch."""

    def list_commands(self, ctx: Any) -> list[str]:
        self._add_tasks()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        self._add_tasks()
        return super().get_command(ctx, cmd_name)

    def _add_tasks(self) -> None:
        from regard.tasks.registry import TASKS

        if not TASKS.keys() <= self.commands.keys():
            app = typer.Typer(rich_markup_mode=self.rich_markup_mode)
            for name, task in TASKS.items():
                app.command(name, help=task.description)(_command(name))
            self.commands = {**typer.main.get_group(app).commands, **self.commands}


def register(app: typer.Typer) -> None:
    group = typer.Typer(cls=TaskGroup, help="Fine-tune a model for a task on your own files.", no_args_is_help=True)
    group.command("distill")(distill)
    train_translate.register(group)
    app.add_typer(group, name="train")


Data = Annotated[str, typer.Option("--train", metavar="FILE", help="Labeled examples to train on.")]
Output = Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="Folder of the run and the model.")]
Dev = Annotated[
    str | None, typer.Option("--dev", metavar="FILE", help="Examples to evaluate on. Default: a tenth of the examples.")
]
Split = Annotated[str | None, typer.Option("--split", metavar="80/10/10", help="Split FILE into train, dev and test.")]
Seeds = Annotated[int | None, typer.Option("--seeds", min=1, metavar="N", help="Train with N seeds and keep the best.")]
ConfigFile = Annotated[str | None, typer.Option("--config", metavar="FILE", help="Settings, as TOML.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One setting, like training.num_epochs=4.")
]


def _command(task: str) -> Callable[..., None]:
    def train(
        data: Data,
        output: Output,
        dev: Dev = None,
        split: Split = None,
        columns: ColumnsOption = None,
        header: HeaderOption = None,
        delimiter: DelimiterOption = None,
        quoted: QuotedOption = None,
        model: ModelOption = DEFAULT_MODEL,
        frozen: Annotated[
            bool, typer.Option("--frozen", help="Train only the task head; the encoder stays frozen.")
        ] = False,
        both: Annotated[
            bool, typer.Option("--both", help="Train with a frozen encoder as well, in DIR/frozen, and report both.")
        ] = False,
        ulmfit: Annotated[
            bool,
            typer.Option("--ulmfit", help="Unfreeze layers gradually, from the top; lower layers learn more slowly."),
        ] = False,
        seeds: Seeds = None,
        config: ConfigFile = None,
        settings: Settings = None,
        resume: ResumeOption = False,
        max_line: MaxLineOption = MAX_LINE,
        device: DeviceOption = "auto",
        as_json: JsonOption = False,
    ) -> None:
        from regard.data.readers import TableOptions
        from regard.tasks.registry import task_for
        from regard.training.finetuning.run import fine_tune

        if frozen and both:
            raise InputError("--both includes --frozen; use one of them")
        if frozen and ulmfit:
            raise InputError("--ulmfit trains all layers in the end, --frozen none of them; use one of them")
        overrides = [*(["training.frozen=true"] if frozen else []), *(ULMFIT if ulmfit else []), *(settings or [])]
        defaults = {"training": task_for(task, data).training_defaults}
        with training_display(STATUS_EVERY) as on_event:
            events = fine_tune(
                task,
                data,
                dev,
                model=model,
                output=output,
                config=_config(defaults, config, output, overrides, seeds=seeds, resume=resume),
                table=TableOptions.parse(columns, header=header, delimiter=delimiter, quoting=quoted),
                split=split,
                resume=resume,
                both=both,
                device=device,
            )
            report = drain(events, on_event)
        if as_json:
            print_json(report.to_dict())
        else:
            print(report)

    return train


def distill(
    teacher: Annotated[str, typer.Option("--teacher", metavar="DIR", help="A folder that `regard train` wrote.")],
    layers: Annotated[int, typer.Option("--layers", metavar="N", min=1, help="Layers of the student.")],
    data: Data,
    output: Output,
    dev: Dev = None,
    split: Split = None,
    columns: ColumnsOption = None,
    header: HeaderOption = None,
    delimiter: DelimiterOption = None,
    quoted: QuotedOption = None,
    seeds: Seeds = None,
    config: ConfigFile = None,
    settings: Settings = None,
    resume: ResumeOption = False,
    max_line: MaxLineOption = MAX_LINE,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Distill a fine-tuned model into a student with fewer layers: DistilBERT's recipe, for any task.

    The student starts with evenly chosen layers of the teacher. It learns the labels, the teacher's logits at
    temperature 2, and the direction of the teacher's hidden states.
    """
    from regard.data.readers import TableOptions
    from regard.training.finetuning.config import DISTILLATION_DEFAULTS
    from regard.training.finetuning.run import distill

    with training_display(STATUS_EVERY) as on_event:
        events = distill(
            teacher,
            data,
            dev,
            layers=layers,
            output=output,
            config=_config(DISTILLATION_DEFAULTS, config, output, settings or [], seeds=seeds, resume=resume),
            table=TableOptions.parse(columns, header=header, delimiter=delimiter, quoting=quoted),
            split=split,
            resume=resume,
            device=device,
        )
        report = drain(events, on_event)
    if as_json:
        print_json(report.to_dict())
    else:
        print(report)


def _config(
    defaults: Mapping[str, Mapping[str, object]],
    path: str | None,
    output: str,
    overrides: list[str],
    *,
    seeds: int | None,
    resume: bool,
) -> FineTuningConfig:
    """The settings of a run; a resumed run has its own."""
    from regard.training.finetuning.config import FineTuningConfig
    from regard.training.run_folder import saved_config

    saved = saved_config(output, resume=resume) if path is None else None
    overrides = [*([] if seeds is None else [f"run.num_seeds={seeds}"]), *overrides]
    return FineTuningConfig.load(path or saved, overrides=overrides, defaults=defaults, saved=saved is not None)
