"""`regard pretrain`: train a model from raw text."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.cli.options import MAX_LINE, DeviceOption, JsonOption, MaxLineOption, ResumeOption
from regard.cli.output import print_json
from regard.cli.training_display import training_display
from regard.events import drain

STATUS_EVERY = 30.0  # seconds, without a terminal


def register(app: typer.Typer) -> None:
    app.command("pretrain")(pretrain)


def pretrain(
    family: Annotated[Literal["bert", "gpt", "t5", "elmo"], typer.Argument(help="Model family.")],
    corpus: Annotated[
        list[str],
        typer.Option(
            "--corpus",
            "-c",
            metavar="FILES",
            help="Text files or folders; repeatable. A blank line ends a document.",
        ),
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="Folder of the run and the model.")],
    heldout: Annotated[
        list[str] | None,
        typer.Option("--heldout", metavar="FILES", help="Text to evaluate on. Default: 1% of the corpus, held out."),
    ] = None,
    config: Annotated[str | None, typer.Option("--config", metavar="FILE", help="Settings, as TOML.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="One setting, like optimizer.learning_rate=2e-3."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="TIME", help="20min, 90s, 1h30m: the schedule ends with the budget."),
    ] = None,
    start: Annotated[str, typer.Option("--start", metavar="MODEL", help="Continue from this model's weights.")] = "",
    resume: ResumeOption = False,
    verify: Annotated[
        Literal["auto", "always"],
        typer.Option("--verify", help="auto: hash corpus files that are new or have changed; always: all files."),
    ] = "auto",
    max_line: MaxLineOption = MAX_LINE,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Pretrain a BERT (masked tokens, next sentence), a GPT (next token), a T5 (dropped spans) or an ELMo (next and
    previous token, by LSTMs) on raw text.

    Without a tokenizer, one is trained on the text. The run can be killed at any time: the same command with --resume
    continues it, with exactly the same result if its length is given in steps. Several GPUs or processes: torchrun
    --nproc-per-node N -m regard pretrain ...
    """
    from regard.device import choose_device
    from regard.training.pretraining.config import PretrainingConfig
    from regard.training.pretraining.run import pretrain
    from regard.training.run_folder import saved_config

    # The budget replaces the one of the file, but not one of --set.
    overrides = [] if budget is None else [f"schedule.budget={budget}", "schedule.max_steps=0"]
    overrides += settings or []
    saved = saved_config(output, resume=resume) if config is None else None
    chosen = PretrainingConfig.read(config or saved, family=family, overrides=overrides, saved=saved is not None)
    with training_display(STATUS_EVERY) as on_event:
        events = pretrain(
            chosen,
            corpus,
            Path(output),
            held_out=heldout or (),
            start=start,
            resume=resume,
            verify=verify,
            device=choose_device(device),
        )
        result = drain(events, on_event)
    if not int(os.environ.get("RANK", "0")):  # only the main process prints
        if as_json:
            print_json(result.to_dict())
        else:
            print(result)
