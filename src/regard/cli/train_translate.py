"""`regard train translate`: train a translator on sentence pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from regard.cli.options import MAX_LINE, DeviceOption, JsonOption, MaxLineOption, ResumeOption
from regard.cli.output import print_json
from regard.cli.training_display import training_display
from regard.errors import InputError
from regard.events import drain

if TYPE_CHECKING:
    from regard.training.translation.config import TranslationConfig

STATUS_EVERY = 15.0  # seconds, without a terminal
PAIRS = ("--train", "--dev")  # options with one file or two


class PairsCommand(TyperCommand):
    """A command without arguments, so that a word after `--train FILE` is its second file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, repeat_option(args))


def repeat_option(arguments: list[str]) -> list[str]:
    """`--train A B` as `--train A --train B`."""
    found: list[str] = []
    for argument in arguments:
        if len(found) > 1 and found[-2] in PAIRS and not (argument.startswith("-") and len(argument) > 1):
            found.append(found[-2])
        found.append(argument)
    return found


def register(group: typer.Typer) -> None:
    group.command("translate", cls=PairsCommand)(translate)


def translate(
    train: Annotated[
        list[str],
        typer.Option("--train", metavar="SRC TGT", help="Sentences and translations, line by line; or one table."),
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="Folder of the run and the model.")],
    dev: Annotated[
        list[str] | None,
        typer.Option("--dev", metavar="SRC TGT", help="Pairs to evaluate on, by BLEU. Default: a tenth of the pairs."),
    ] = None,
    hold_out: Annotated[
        int, typer.Option("--hold-out", metavar="N", min=0, help="Hold out N pairs, and score them once at the end.")
    ] = 0,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns", metavar="1,0", help="Table columns of source and target, by index from 0 or by name."
        ),
    ] = None,
    model: Annotated[
        Literal["transformer", "lstm"] | None,
        typer.Option("--model", "-m", help="Model family. Default: transformer."),
    ] = None,
    score: Annotated[
        Literal["dot", "general", "additive", "none"] | None,
        typer.Option("--score", help="lstm: attention score. Default: general."),
    ] = None,
    recipe: Annotated[
        Literal["luong", "deck"] | None,
        typer.Option("--recipe", help="lstm: attention after the cell (luong, default) or before it (deck)."),
    ] = None,
    config: Annotated[str | None, typer.Option("--config", metavar="FILE", help="Settings, as TOML.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One setting, like training.num_epochs=20.")
    ] = None,
    resume: ResumeOption = False,
    max_line: MaxLineOption = MAX_LINE,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Train a translator: a Transformer, or an LSTM with attention, evaluated by BLEU (sacrebleu) after each epoch.

    Files may be compressed: .gz, .xz, .bz2, .zst, or a .zip that holds one text. The best epoch is kept, or the average
    of the last epochs if it is better on dev. Sentences of held-out pairs, for --hold-out or in place of --dev, do not
    remain in the training data.
    """
    from regard.data.translation_pairs import read_translation_pairs, split_held_out
    from regard.training.translation.run import train_translator

    chosen = _config(config, output, _overrides(model, score, recipe, settings or []), resume=resume)
    _check_family(chosen.model.family, {"--score": score, "--recipe": recipe})
    files = [train, *([dev] if dev else [])]
    if columns is not None and all(len(some) > 1 for some in files):
        raise InputError("--columns is for a table, but only pairs of files are given; leave it out")
    learned, *judged = (read_translation_pairs(*some, columns=columns if len(some) == 1 else None) for some in files)
    parts = split_held_out(learned, judged[0] if judged else None, out=hold_out, seed=chosen.run.seed)
    with training_display(STATUS_EVERY) as on_event:
        events = train_translator(
            parts[0],
            parts[1],
            test=parts[2],
            output=output,
            config=chosen,
            resume=resume,
            device=device,
        )
        report = drain(events, on_event)
    if as_json:
        print_json(report.to_dict())
    else:
        print(report)


def _overrides(model: str | None, score: str | None, recipe: str | None, settings: list[str]) -> list[str]:
    given = {"family": model, "score": score, "recipe": recipe}
    return [*(f"model.{key}={value}" for key, value in given.items() if value is not None), *settings]


def _check_family(family: str, given: Mapping[str, str | None]) -> None:
    """Refuse an LSTM's options for another model, for which they have no effect."""
    for option, value in given.items():
        if value is not None and family != "lstm":
            raise InputError(
                f"{option} {value} is for an LSTM, and the model to train is a {family}; add --model lstm, "
                f"or leave {option} out"
            )


def _config(path: str | None, output: str, overrides: list[str], *, resume: bool) -> TranslationConfig:
    """The settings of a run; a resumed run has its own."""
    from regard.training.run_folder import saved_config
    from regard.training.translation.config import TranslationConfig

    saved = saved_config(output, resume=resume) if path is None else None
    return TranslationConfig.read(path or saved, overrides=overrides, saved=saved is not None)
