"""`regard train TASK`: tune a model for a task on one's own files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import DeviceOption, JsonOption, ModelOption
from regard.cli.output import duration, note, print_json, ticking
from regard.known import DEFAULT

if TYPE_CHECKING:
    from regard.finetune.report import Report

__all__ = ["register"]

SAY_EVERY = 15.0  # seconds, where no terminal shows a line that changes
TASKS = {
    "classify": "One class a text, or several: sentiment, spam, topics.",
    "pair": "One class a pair of texts: entailment, paraphrase.",
    "regress": "A number for a text or pair: similarity.",
    "choose": "Which of several endings fits a text.",
    "tag": "Entities in a text: persons, places, organisations.",
    "answer": "Which part of a context answers a question.",
}


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Tune a model for a task on your own files.", no_args_is_help=True)
    for name, about in TASKS.items():
        group.command(name, help=about)(_command(name))
    app.add_typer(group, name="train")


def _command(task: str) -> Callable[..., None]:
    def train(
        data: Annotated[str, typer.Option("--train", metavar="FILE", help="Labelled examples to learn from.")],
        output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="Where the run and the model go.")],
        dev: Annotated[
            str | None, typer.Option("--dev", metavar="FILE", help="To judge on; by default a tenth of the examples.")
        ] = None,
        split: Annotated[
            str | None, typer.Option("--split", metavar="80/10/10", help="Cut FILE into train, dev and test.")
        ] = None,
        columns: Annotated[
            str | None,
            typer.Option("--columns", metavar="A,B", help="Columns by name or number from 0: text first, label last."),
        ] = None,
        model: ModelOption = DEFAULT,
        frozen: Annotated[bool, typer.Option("--frozen", help="Let only the new layer learn.")] = False,
        seeds: Annotated[
            int | None, typer.Option("--seeds", min=1, metavar="N", help="Repeat with N seeds; keep the best.")
        ] = None,
        config: Annotated[str | None, typer.Option("--config", metavar="FILE", help="Settings, as TOML.")] = None,
        settings: Annotated[
            list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One setting, like training.epochs=4.")
        ] = None,
        resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in DIR.")] = False,
        device: DeviceOption = "auto",
        as_json: JsonOption = False,
    ) -> None:
        from regard.device import choose
        from regard.finetune.config import DEFAULTS, Config
        from regard.finetune.run import CONFIG, fit

        overrides = ["training.frozen=true"] if frozen else []
        overrides += [] if seeds is None else [f"run.seeds={seeds}"]
        saved = Path(output) / CONFIG
        if resume and config is None and saved.is_file():
            config = str(saved)
        chosen = Config.load(config, overrides=[*overrides, *(settings or [])], defaults=DEFAULTS[task])
        with ExitStack() as stack:
            shown = _Shown(stack)
            report = fit(
                task,
                data,
                dev,
                model=model,
                output=Path(output),
                config=chosen,
                columns=columns.split(",") if columns else None,
                parts=split,
                resume=resume,
                device=choose(device),
                say=note,
                on_event=shown.event,
            )
        if as_json:
            print_json({"output": output, **report.document()})
        else:
            print(f"{output}: best of {len(report.outcomes)} seeds is {report.best.seed}" if seeds else output)
            for line in _lines(report):
                print(line)

    return train


def _lines(report: Report) -> list[str]:
    deviation = report.deviation
    lines = []
    for name, value in report.mean.items():
        spread = f" ± {deviation[name]:.2f}" if len(report.outcomes) > 1 else ""
        lines.append(f"{name:<20}{value:6.2f}{spread}")
    for name, value in report.data.get("test", {}).get("scores", {}).items():
        lines.append(f"{'test ' + name:<20}{value:6.2f}")
    return lines


class _Shown:
    """Events as lines: on a terminal one that changes, elsewhere one now and then."""

    def __init__(self, stack: ExitStack) -> None:
        self._tick = stack.enter_context(ticking(SAY_EVERY))

    def event(self, event: Mapping[str, Any]) -> None:
        kind = event["event"]
        if kind == "step":
            self._step(event)
        elif kind == "evaluation":
            scores = "  ".join(f"{name} {event[name]:.2f}" for name in event if _is_score(name))
            note(f"seed {event['seed']}  epoch {event['epoch']}  {scores}")
        elif kind == "resume":
            note(f"seed {event['seed']}: going on behind step {event['step']:,}, after {duration(event['seconds'])}")
        elif kind == "cut":
            note(f"{event['rows']:,} of {event['of']:,} texts are longer than {event['length']} tokens and were cut")

    def _step(self, event: Mapping[str, Any]) -> None:
        done = event["step"] / event["steps"]
        rate, left = event["step"] / max(event["seconds"], 1e-9), event["seconds"] * (1 - done) / done
        line = (
            f"seed {event['seed']}  epoch {event['epoch']}  step {event['step']:,} of {event['steps']:,}  "
            f"loss {event['loss']:.3f}  {rate:.1f} steps/s  {duration(left)} left"
        )
        self._tick(line)


def _is_score(name: str) -> bool:
    return name not in ("event", "time", "seed", "epoch", "seconds")
