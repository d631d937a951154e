"""`regard pretrain`: a model of one's own from raw text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from regard.cli.options import MAX_LINE, DeviceOption, JsonOption, MaxLineOption, ResumeOption
from regard.cli.output import duration, note, print_json, progress, status_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from regard.data.corpus import CorpusProgress

__all__ = ["register"]

SCORES = {
    "words": "words",
    "pairs": "next sentence",
    "spans": "dropped stretches",
    "forwards": "next word",
    "backwards": "previous word",
}
SAY_EVERY = 30.0  # seconds, where no terminal shows a line that changes


def register(app: typer.Typer) -> None:
    app.command("pretrain")(pretrain)


def pretrain(
    family: Annotated[Literal["bert", "gpt", "t5", "elmo"], typer.Argument(help="What to train.")],
    corpus: Annotated[
        list[str],
        typer.Option(
            "--corpus",
            "-c",
            metavar="FILES",
            help="Text files or folders; may be given several times. A blank line ends a document.",
        ),
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="Where the run and the model go.")],
    heldout: Annotated[
        list[str] | None,
        typer.Option("--heldout", metavar="FILES", help="Text to evaluate on; by default 1% of the corpus is kept."),
    ] = None,
    config: Annotated[str | None, typer.Option("--config", metavar="FILE", help="Settings, as TOML.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="One setting, like optimizer.learning_rate=2e-3."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="TIME", help="20min, 90s, 1h30m: the schedule ends when the clock does."),
    ] = None,
    start: Annotated[
        str, typer.Option("--start", metavar="MODEL", help="Go on from this model's weights instead of chance.")
    ] = "",
    resume: ResumeOption = False,
    verify: Annotated[
        Literal["auto", "always"],
        typer.Option(
            "--verify", help="auto: hash files of the corpus that are new or changed since they were; always: all."
        ),
    ] = "auto",
    max_line: MaxLineOption = MAX_LINE,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Pretrain a BERT (masked words, next sentence), a GPT (next word), a T5 (dropped stretches of text) or an ELMo
    (next word and previous word, by LSTMs) on raw text.

    Without a vocabulary of its own one is trained on the text. The run can be killed at any time: the same command with
    --resume goes on, with exactly the same result where its length is given in steps. Several GPUs or processes:
    torchrun --nproc-per-node N -m regard pretrain ...
    """
    from regard.device import choose_device
    from regard.settings import check_saved_settings
    from regard.training.pretraining.config import PretrainingConfig
    from regard.training.pretraining.run import CONFIG, pretrain

    # The budget takes the place of what the file says, but not of another --set.
    overrides = [] if budget is None else [f"schedule.budget={budget}", "schedule.max_steps=0"]
    overrides += settings or []
    saved = Path(output) / CONFIG
    goes_on = resume and config is None and saved.is_file()
    if goes_on:
        check_saved_settings(saved)
        config = str(saved)
    chosen = PretrainingConfig.read(config, family=family, overrides=overrides, saved=goes_on)
    with ExitStack() as stack:
        shown = _Shown(stack)
        result = pretrain(
            chosen,
            corpus,
            Path(output),
            held_out=heldout or (),
            start=start,
            resume=resume,
            verify=verify,
            device=choose_device(device),
            say=shown.say,
            on_event=shown.event,
            on_built=shown.built,
        )
    if int(os.environ.get("RANK", "0")):  # the first process speaks
        return
    if as_json:
        print_json(
            {
                "output": str(result.output),
                "steps": result.steps,
                "tokens": result.tokens,
                "seconds": result.seconds,
                "tokens_per_second": result.tokens / max(result.seconds, 1e-9),
                "scores": result.scores,
            }
        )
    else:
        print(f"{result.output}: {result.steps:,} steps, {result.tokens:,} tokens in {duration(result.seconds)}")
        for line in _scores(result.scores):
            print(line)


class _Shown:
    """Events as lines: on a terminal one that changes, elsewhere one now and then."""

    def __init__(self, stack: ExitStack) -> None:
        self._advance: Callable[[int], None] | None = None
        self._built = stack.enter_context(ExitStack())
        self._done = 0
        self._tick = stack.enter_context(status_line(SAY_EVERY))

    def say(self, text: str) -> None:
        note(text)

    def built(self, report: CorpusProgress) -> None:
        if self._advance is None and report.done < report.documents:
            self._advance = self._built.enter_context(
                progress("encoding", total=report.documents - report.resumed, unit="documents")
            )
            self._done = report.resumed
        if self._advance is not None:
            self._advance(report.done - self._done)
        self._done = report.done
        if report.done == report.documents:
            self._built.close()

    def event(self, event: Mapping[str, Any]) -> None:
        kind = event["event"]
        if kind == "plan":
            for line in _plan(event):
                note(line)
        elif kind == "resume":
            note(f"going on behind step {event['step']:,}, after {duration(event['seconds'])} of training")
        elif kind == "step":
            self._step(event)
        elif kind == "evaluation":
            scores = {name: event[name] for name in SCORES if name in event}
            note(f"step {event['step']:,}, held-out text: " + "; ".join(_scores(scores)))

    def _step(self, event: Mapping[str, Any]) -> None:
        line = (
            f"step {event['step']:,}  {100 * event['progress']:.1f}%  loss {event['loss']:.3f}  "
            f"{event['tokens_per_second']:,.0f} tokens/s  MFU {event['utilisation']:.2f}  "
            f"{duration(event['left'])} left"
        )
        self._tick(line)


def _plan(plan: Mapping[str, Any]) -> list[str]:
    lines = [
        f"plan: {plan['steps']:,} steps in {duration(plan['seconds'])} at {plan['tokens_per_second']:,.0f} tokens/s "
        f"(MFU {plan['utilisation']:.2f})",
        f"      {plan['tokens']:,} tokens, {plan['epochs']:.3g} times the text",
    ]
    if plan["loss"] is not None:
        lines.append(f"      expect a held-out loss of about {plan['loss']:.2f}")
    return lines


def _scores(scores: Mapping[str, Mapping[str, float]]) -> list[str]:
    return [f"{SCORES[name]}: loss {score['loss']:.3f}, {_measure(score)}" for name, score in scores.items()]


def _measure(score: Mapping[str, float]) -> str:
    if "accuracy" in score:
        return f"{100 * score['accuracy']:.1f}% right"
    return f"perplexity {score['perplexity']:.2f}"
