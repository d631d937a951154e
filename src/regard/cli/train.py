"""`regard train TASK`: tune a model for a task on one's own files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
from regard.cli.output import duration, note, print_json, status_line
from regard.errors import InputError
from regard.known import DEFAULT_MODEL

if TYPE_CHECKING:
    from regard.training.finetuning.config import FineTuningConfig
    from regard.training.finetuning.report import FineTuningReport

__all__ = ["register"]

ABOUT = ("event", "time", "seed", "epoch", "seconds")  # what an event says beside its numbers
SAY_EVERY = 15.0  # seconds, where no terminal shows a line that changes
# ULM-FiT's: a layer learns 2.6 times as slowly as the one above it. Half the run until all of them do.
ULMFIT = [f"training.layerwise_lr_decay={1 / 2.6:.4f}", "training.unfreeze=0.5"]
TASKS = {
    "classify": """One class a text, or several: sentiment, spam, topics. Or one class a picture.

    Reads TSV, CSV, JSONL and Parquet: a text and its label, or several columns of 0 and 1. Pictures are a folder with
    one folder for each class, or MNIST's IDX files; of them a new model learns.""",
    "pair": """One class a pair of texts: entailment, paraphrase.

    Reads TSV, CSV, JSONL and Parquet: two texts and their label.""",
    "regress": """A number for a text or pair: similarity.

    Reads TSV, CSV, JSONL and Parquet: one or two texts and a number.""",
    "choose": """Which of several endings fits a text.

    Reads JSONL and Parquet with ctx, endings and label, SWAG's CSV, and text of six lines an example. --columns names
    other keys or columns: the text, the endings (a list, or each apart), the label.""",
    "tag": """Entities in a text: persons, places, organisations.

    Reads CoNLL's columns, the word first and its tag last, in IOB1, IOB2 or BIOES, with a blank line between sentences;
    and JSONL and Parquet with words and tags. --columns 0,2 says that word and tag are elsewhere.""",
    "answer": """Which part of a context answers a question.

    Reads SQuAD's JSON, v1.1 and v2, and JSONL and Parquet with question, context and answers, which --columns can name
    otherwise. Where some questions have no answer, the threshold of saying so is the best on dev.""",
}


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Tune a model for a task on your own files.", no_args_is_help=True)
    for name, about in TASKS.items():
        group.command(name, help=about)(_command(name))
    group.command("distill")(distill)
    train_translate.register(group)
    app.add_typer(group, name="train")


Data = Annotated[str, typer.Option("--train", metavar="FILE", help="Labelled examples to learn from.")]
Output = Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="Where the run and the model go.")]
Dev = Annotated[
    str | None, typer.Option("--dev", metavar="FILE", help="To judge on; by default a tenth of the examples.")
]
Split = Annotated[str | None, typer.Option("--split", metavar="80/10/10", help="Cut FILE into train, dev and test.")]
Seeds = Annotated[int | None, typer.Option("--seeds", min=1, metavar="N", help="Repeat with N seeds; keep the best.")]
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
        frozen: Annotated[bool, typer.Option("--frozen", help="Let only the new layer learn.")] = False,
        both: Annotated[
            bool, typer.Option("--both", help="Do it frozen as well, in DIR/frozen, and report both.")
        ] = False,
        ulmfit: Annotated[
            bool,
            typer.Option(
                "--ulmfit",
                help="Let the layers begin to learn one after the other, from the top, lower layers at lower rates.",
            ),
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
        from regard.tasks.read_examples import task_for
        from regard.training.finetuning.run import fit

        if frozen and both:
            raise InputError("--both includes --frozen; use one of them")
        if frozen and ulmfit:
            raise InputError("--ulmfit lets all layers learn in the end, --frozen none of them; use one of them")
        overrides = ["training.frozen=true"] if frozen else []
        overrides += ULMFIT if ulmfit else []
        kind = "pictures" if task_for(task, data).reads_images else task
        with _told(output, as_json=as_json) as tell:
            tell.report = fit(
                task,
                data,
                dev,
                model=model,
                output=output,
                config=_config(kind, config, output, [*overrides, *(settings or [])], seeds=seeds, resume=resume),
                table=TableOptions.parse(columns, header=header, delimiter=delimiter, quoting=quoted),
                parts=split,
                resume=resume,
                both=both,
                device=device,
                say=note,
                on_event=tell.event,
            )

    return train


def distill(
    teacher: Annotated[str, typer.Option("--teacher", metavar="DIR", help="What `regard train` wrote.")],
    layers: Annotated[int, typer.Option("--layers", metavar="N", min=1, help="Of the student.")],
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
    """Teach a student of fewer layers what a tuned model says: DistilBERT's recipe, for any task.

    The student begins with some of the teacher's layers, evenly chosen. It learns the labels, the teacher's numbers at
    temperature 2, and the direction of the teacher's hidden states.
    """
    from regard.data.readers import TableOptions
    from regard.training.finetuning.run import distill

    with _told(output, as_json=as_json) as tell:
        tell.report = distill(
            teacher,
            data,
            dev,
            layers=layers,
            output=output,
            config=_config("distill", config, output, settings or [], seeds=seeds, resume=resume),
            table=TableOptions.parse(columns, header=header, delimiter=delimiter, quoting=quoted),
            parts=split,
            resume=resume,
            device=device,
            say=note,
            on_event=tell.event,
        )


def _config(
    task: str, path: str | None, output: str, overrides: list[str], *, seeds: int | None, resume: bool
) -> FineTuningConfig:
    """The settings of a run; one that goes on has its own."""
    from regard.settings import check_saved_settings
    from regard.training.finetuning.config import DEFAULTS, FineTuningConfig
    from regard.training.finetuning.run import CONFIG

    saved = Path(output) / CONFIG
    goes_on = resume and path is None and saved.is_file()
    if goes_on:
        check_saved_settings(saved)
        path = str(saved)
    chosen = [] if seeds is None else [f"run.num_seeds={seeds}"]
    return FineTuningConfig.load(path, overrides=[*chosen, *overrides], defaults=DEFAULTS[task], saved=goes_on)


@contextmanager
def _told(output: str, *, as_json: bool) -> Iterator[_Shown]:
    """Show what happens inside, and at the end the report."""
    with status_line(SAY_EVERY) as tick:
        shown = _Shown(tick)
        yield shown
    report = shown.report
    assert report is not None
    if as_json:
        print_json({"output": output, **report.document()})
        return
    count, best = len(report.outcomes), report.best
    one = f"{output}: scores on dev after epoch {best.epoch}"
    print(f"{output}: the model of seed {best.seed}, the best; means of {count} seeds on dev" if count > 1 else one)
    for line in _lines(report):
        print(line)


def _lines(report: FineTuningReport) -> list[str]:
    deviation = report.deviation
    lines = []
    for name, value in report.mean.items():
        spread = f" ± {deviation[name]:.2f}" if len(report.outcomes) > 1 else ""
        lines.append(f"{name:<20}{value:6.2f}{spread}")
    for name, other in report.beside.items():
        lines += [f"{name + ' ' + score:<20}{value:6.2f}" for score, value in other["mean"].items()]
    for name, value in report.data.get("test", {}).get("scores", {}).items():
        lines.append(f"{'test ' + name:<20}{value:6.2f}")
    return lines


class _Shown:
    """Events as lines: on a terminal one that changes, elsewhere one now and then."""

    def __init__(self, tick: Callable[[str], None]) -> None:
        self._tick = tick
        self._told: object = None  # of the layers: what all seeds have in common is said once
        self.report: FineTuningReport | None = None

    def event(self, event: Mapping[str, Any]) -> None:
        kind = event["event"]
        if kind == "step":
            self._step(event)
        elif kind == "layers":
            self._layers(event)
        elif kind == "judging":
            of = f"{event['done']:,} of {event['of']:,} examples" if event["of"] else "on dev"
            self._tick(f"seed {event['seed']}  epoch {event['epoch']}  judging {of}")
        elif kind == "evaluation":
            scores = "  ".join(f"{name} {value:.2f}" for name, value in event.items() if name not in ABOUT)
            note(f"seed {event['seed']}  epoch {event['epoch']}  {scores}")
        elif kind == "settled":
            said = "  ".join(f"{name} {value:.4g}" for name, value in event.items() if name not in ABOUT)
            note(f"seed {event['seed']}  best on dev: {said}")
        elif kind == "resume":
            note(f"seed {event['seed']}: going on behind step {event['step']:,}, after {duration(event['seconds'])}")
        elif kind == "damaged checkpoint":
            note(f"passed over: {event['problem']}")
        elif kind == "stopped":
            note("stopped, and all is saved; the same command with --resume goes on")
        elif kind == "cut":
            note(f"{event['texts']:,} of {event['of']:,} texts are longer than {event['length']} tokens and were cut")

    def _layers(self, event: Mapping[str, Any]) -> None:
        if event["layers"] == self._told:
            return
        self._told = event["layers"]
        begins, rates = [], []
        for one in event["layers"]:
            name = {None: "the new layer", 0: "embeddings"}.get(one["layer"], f"layer {one['layer']}")
            begins.append(f"{name} never" if one["step"] is None else f"{name} at {one['step']:,}")
            rates.append(f"{name}: {one['rate']:.2g}")
        note(f"of {event['steps']:,} steps, learning begins: {', '.join(begins)}")
        note(f"rates before warm-up and decay: {', '.join(rates)}")

    def _step(self, event: Mapping[str, Any]) -> None:
        done = event["step"] / event["steps"]
        rate, left = event["step"] / max(event["seconds"], 1e-9), event["seconds"] * (1 - done) / done
        line = (
            f"seed {event['seed']}  epoch {event['epoch']}  step {event['step']:,} of {event['steps']:,}  "
            f"loss {event['loss']:.3f}  {rate:.1f} steps/s  {duration(left)} left"
        )
        self._tick(line)
