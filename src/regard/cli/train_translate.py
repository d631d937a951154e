"""`regard train translate`: learn to translate from pairs of sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from regard.cli.options import MAX_LINE, DeviceOption, JsonOption, MaxLineOption, ResumeOption
from regard.cli.output import duration, note, print_json, status_line
from regard.errors import InputError
from regard.wording import count_of

if TYPE_CHECKING:
    from regard.training.translation.config import TranslationConfig
    from regard.training.translation.report import TranslationReport

__all__ = ["register"]

SAY_EVERY = 15.0  # seconds, where no terminal shows a line that changes
PAIRS = ("--train", "--dev")  # options with one file or two behind them


class PairsCommand(TyperCommand):
    """A command without arguments of its own, so that whatever stands behind `--train FILE` is its second file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spread(args))


def spread(arguments: list[str]) -> list[str]:
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
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="Where the run and the model go.")],
    dev: Annotated[
        list[str] | None,
        typer.Option("--dev", metavar="SRC TGT", help="To judge on, by BLEU; by default a tenth of the pairs."),
    ] = None,
    hold_out: Annotated[
        int, typer.Option("--hold-out", metavar="N", min=0, help="Set N pairs aside, and score them once at the end.")
    ] = 0,
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="1,0", help="Of a table: source and target, by number from 0 or by name."),
    ] = None,
    model: Annotated[
        Literal["transformer", "lstm"] | None,
        typer.Option("--model", "-m", help="What to train; by default transformer."),
    ] = None,
    score: Annotated[
        Literal["dot", "general", "additive", "none"] | None,
        typer.Option("--score", help="lstm: how the decoder attends; by default general."),
    ] = None,
    recipe: Annotated[
        Literal["luong", "deck"] | None,
        typer.Option("--recipe", help="lstm: attend behind the cell (luong, the default) or before it (deck)."),
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
    """Learn to translate: a Transformer, or an LSTM with attention, judged by BLEU (sacrebleu) after each epoch.

    Files may be compressed: .gz, .xz, .bz2, .zst, or a .zip with one text in it. What is kept is the best epoch, or the
    average of the last ones where that is better on dev. No sentence of pairs that are taken out of the others, for
    --hold-out or for want of --dev, is left among them.
    """
    from regard.data.translation_pairs import read_translation_pairs, split_held_out
    from regard.training.translation.run import fit

    chosen = _config(config, output, _overrides(model, score, recipe, settings or []), resume=resume)
    _check_kind(chosen.model.family, {"--score": score, "--recipe": recipe})
    files = [train, *([dev] if dev else [])]
    if columns is not None and all(len(some) > 1 for some in files):
        raise InputError("--columns is for a table, and here are only pairs of files; leave it out")
    learned, *judged = (read_translation_pairs(*some, columns=columns if len(some) == 1 else None) for some in files)
    parts = split_held_out(learned, judged[0] if judged else None, out=hold_out, seed=chosen.run.seed)
    with status_line(SAY_EVERY) as tick:
        report = fit(
            parts[0],
            parts[1],
            test=parts[2],
            output=output,
            config=chosen,
            resume=resume,
            device=device,
            say=note,
            on_event=_Shown(tick).event,
        )
    if as_json:
        print_json({"output": output, **report.document()})
    else:
        for line in _lines(output, report):
            print(line)


def _overrides(model: str | None, score: str | None, recipe: str | None, settings: list[str]) -> list[str]:
    said = {"family": model, "score": score, "recipe": recipe}
    return [*(f"model.{key}={value}" for key, value in said.items() if value is not None), *settings]


def _check_kind(kind: str, said: Mapping[str, str | None]) -> None:
    """Refuse an LSTM's options for another model, which would do nothing with them."""
    for option, value in said.items():
        if value is not None and kind != "lstm":
            raise InputError(
                f"{option} {value} is for an LSTM, and the model to train is a {kind}; add --model lstm, "
                f"or leave {option} out"
            )


def _config(path: str | None, output: str, overrides: list[str], *, resume: bool) -> TranslationConfig:
    """The settings of a run; one that goes on has its own."""
    from regard.settings import check_saved_settings
    from regard.training.translation.config import TranslationConfig
    from regard.training.translation.run import CONFIG

    saved = Path(output) / CONFIG
    goes_on = resume and path is None and saved.is_file()
    if goes_on:
        check_saved_settings(saved)
        path = str(saved)
    return TranslationConfig.read(path, overrides=overrides, saved=goes_on)


def _lines(output: str, report: TranslationReport) -> list[str]:
    outcome = report.outcome
    epochs = outcome.epochs
    what = f"epoch {epochs[0]}" if len(epochs) == 1 else f"the average of epochs {epochs[0]} to {epochs[-1]}"
    lines = [
        f"{output}: {what}, {report.parameters:,} parameters, {outcome.steps:,} steps in {duration(outcome.seconds)}",
        f"dev BLEU             {outcome.scores['bleu']:6.2f}  {report.signature['bleu']}",
        f"dev BLEU, lower case {outcome.scores['bleu_lowercase']:6.2f}  {report.signature['bleu_lowercase']}",
    ]
    if report.test:
        lines.append(f"{'test BLEU':<21}{report.test['bleu']:6.2f}  {count_of(report.test['pairs'], 'pair')} set aside")
        lines.append(f"{'test BLEU, lower case':<21}{report.test['bleu_lowercase']:6.2f}  beam {report.test['beam']}")
    return lines


class _Shown:
    """Events as lines: on a terminal one that changes, elsewhere one now and then."""

    def __init__(self, tick: Callable[[str], None]) -> None:
        self._tick = tick

    def event(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "plan":
                note(f"{event['parameters']:,} parameters, at most {event['steps']:,} steps")
            case "step":
                self._step(event)
            case "judging":
                self._tick(f"judging: {event['done']:,} of {event['of']:,} sentences of dev are translated")
            case "evaluation":
                note(f"epoch {event['epoch']}  BLEU {event['bleu']:.2f}  lower case {event['bleu_lowercase']:.2f}")
            case "average":
                several = f"epochs {event['epochs'][0]} to {event['epochs'][-1]} averaged"
                note(f"{several}  BLEU {event['bleu']:.2f}  lower case {event['bleu_lowercase']:.2f}")
            case "resume":
                note(f"going on behind step {event['step']:,}, after {duration(event['seconds'])}")
            case "damaged checkpoint":
                note(f"passed over: {event['problem']}")
            case "stopped":
                note("stopped, and all is saved; the same command with --resume goes on")
            case "left out":
                note(f"{event['pairs']:,} of {event['of']:,} pairs are longer than {event['length']} tokens: left out")

    def _step(self, event: Mapping[str, Any]) -> None:
        left = event["seconds"] * (event["steps"] - event["step"]) / event["step"]
        self._tick(
            f"epoch {event['epoch']}  step {event['step']:,} of {event['steps']:,}  loss {event['loss']:.3f}  "
            f"{event['tokens_per_second']:,.0f} tokens/s  {duration(left)} left"
        )
