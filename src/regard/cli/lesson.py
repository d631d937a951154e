"""`regard lesson`: the worked examples of the lectures, trained while one watches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import JsonOption, SeedOption, check_page
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.lessons.compare import Run, Task
    from regard.lessons.reverse import Epoch

__all__ = ["register"]

SAY_EVERY = 15.0  # seconds, where no terminal shows a line that changes
LESSONS = {
    "reverse": "Write a sequence backwards, without attention and with six kinds of it: the bottleneck and its cure.",
    "six-words": 'A Transformer of six words learns "je suis étudiant" and "merci"; every probability is shown.',
}

PageOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="PAGE.html", help="Write a page for a browser as well.")
]


def register(app: typer.Typer) -> None:
    lessons = typer.Typer(invoke_without_command=True)
    lessons.callback()(lesson)
    lessons.command("reverse")(reverse)
    lessons.command("six-words")(six_words)
    app.add_typer(lessons, name="lesson")


def lesson(context: typer.Context) -> None:
    """The lectures' worked examples; without a name, list them."""
    if context.invoked_subcommand is None:
        for name, text in LESSONS.items():
            print(f"{name:<11}{text}")
        print("\n`regard lesson NAME` runs one, `regard lesson NAME --help` tells its options.")


def reverse(
    steps: Annotated[int, typer.Option("--steps", metavar="N", help="Digits in a sequence.")] = 4,
    features: Annotated[int, typer.Option("--features", metavar="N", help="Different digits there are.")] = 10,
    units: Annotated[
        int | None, typer.Option("--units", metavar="N", help="Of each LSTM; 16, above 8 steps 64.")
    ] = None,
    train_size: Annotated[
        int | None,
        typer.Option("--train-size", metavar="N", help="Sequences to learn from; 2,000, above 8 steps 20,000."),
    ] = None,
    test_size: Annotated[
        int | None, typer.Option("--test-size", metavar="N", help="Others to be tested on; 200, above 8 steps 1,000.")
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option("--epochs", metavar="N", help="At most, fewer if training digits are right; 24, above 8 steps 8."),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", metavar="N", help="Of sequences; 10, above 8 steps 100.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="X", help="Adam's learning rate; 0.001, above 8 steps 0.003.")
    ] = None,
    clip: Annotated[
        float | None,
        typer.Option("--clip", metavar="X", help="Cut gradients to this length; 0 (not), above 8 steps 1."),
    ] = None,
    lengths: Annotated[
        str | None,
        typer.Option(
            "--lengths",
            metavar="A,B,...",
            help="Train two models at these lengths too; quarters of the steps, or double and triple if few.",
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", metavar="N", help="Trainings at a time; one for each core.")
    ] = None,
    output: PageOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Reverse sequences with an LSTM encoder-decoder: no attention against dot, general and additive in two recipes.

    Up to 8 steps what is not said is the deck's (4 digits of 10, 2,000/200, 16 units, batches of 10), beyond that a
    setting that can learn longer ones. All models share data and budget.
    """
    from regard.cli.lesson_text import print_reverse, reverse_document
    from regard.cli.output import print_json
    from regard.lessons.compare import choose_setting, gather, plan

    setting = choose_setting(
        steps=steps,
        features=features,
        units=units,
        train_size=train_size,
        test_size=test_size,
        batch_size=batch_size,
        learning_rate=rate,
        clip=clip,
        epochs=epochs,
        seed=seed,
    )
    tasks = plan(setting, None if lengths is None else _numbers(lengths))
    with _page(output) as write:
        comparison = gather(_train(tasks, jobs))
        if write is not None:
            from regard.lessons.lesson_page import reverse_page

            write.write_text(reverse_page(comparison), encoding="utf-8")
    if as_json:
        print_json(reverse_document(comparison, output))
    else:
        print_reverse(comparison, output)


def six_words(
    epochs: Annotated[int, typer.Option("--epochs", metavar="N", help="How often both pairs are learned.")] = 60,
    output: PageOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Teach a small Transformer "je suis étudiant" → "I am a student <eos>" and "merci" → "thanks <eos>".

    Prints the probability of each of the six words at every output before and after training, the summed cross-entropy,
    and every step of decoding.
    """
    from dataclasses import asdict

    from regard.cli.lesson_text import print_six_words
    from regard.cli.output import print_json, progress
    from regard.lessons.six_words import WORDS, learn_six_words

    with _page(output) as write:
        with progress("training on two sentences", total=epochs, unit="epochs") as advance:
            learned = learn_six_words(epochs=epochs, seed=seed, on_epoch=lambda loss: advance(1))
        if write is not None:
            from regard.lessons.lesson_page import six_words_page

            write.write_text(six_words_page(learned, epochs=epochs, seed=seed), encoding="utf-8")
    if as_json:
        print_json(
            {"vocabulary": WORDS, "epochs": epochs, **asdict(learned), "page": None if output is None else str(output)}
        )
    else:
        print_six_words(learned, output)


@contextmanager
def _page(output: Path | None) -> Iterator[Path | None]:
    """Where to write the page, if one is wanted. What cannot be made or written must not cost a training."""
    if output is None:
        yield None
        return
    from regard.files.disk import replace_file
    from regard.render.bundle import check_built

    check_page(output)
    check_built()
    with replace_file(output) as temporary:
        yield temporary


def _train(tasks: Sequence[Task], jobs: int | None) -> list[Run]:
    from regard.cli.output import note, status_line
    from regard.lessons.workers import train_all

    now: dict[Task, Epoch] = {}
    done: list[Run] = []
    with status_line(SAY_EVERY) as say:

        def on_epoch(task: Task, epoch: Epoch) -> None:
            now[task] = epoch
            doing = "; ".join(
                f"{_name(task)}: epoch {at.number} of {at.total}, "
                f"{at.train.token_accuracy:.1f}% of training digits right"
                for task, at in now.items()
            )
            say(f"{len(done)} of {len(tasks)} models trained; {doing}")

        def on_run(run: Run) -> None:
            now.pop(run.task, None)
            done.append(run)
            note(f"{_name(run.task)}: {run.test.token_accuracy:.3f}% of test digits right, epochs: {run.epochs}")

        say(f"training {len(tasks)} models")
        return train_all(tasks, jobs=jobs, on_epoch=on_epoch, on_run=on_run)


def _name(task: Task) -> str:
    return f"{task.name}, {task.setting.steps} steps"


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--lengths must be whole numbers with commas between them, like 4,8,12, not {text!r}"
        ) from None
