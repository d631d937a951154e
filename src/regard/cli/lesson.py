"""`regard tour`, the first thing to try, and `regard lesson`: the chapters of the course, and two worked examples that
train while you watch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from regard.cli.commands import ForceOption, GroupedCommand, JsonOption, SeedOption, command, open_target, render_events
from regard.errors import InputError, suggest

if TYPE_CHECKING:
    from regard.lessons.reverse import ReverseEpoch
    from regard.lessons.reverse_comparison import ReverseComparison, ReverseRun, ReverseTask
    from regard.lessons.six_words import SixWordsLesson
    from regard.lessons.tour import Tour

LESSONS = {
    "reverse": "Reverse a sequence without attention and with six kinds of it, which remove the bottleneck.",
    "six-words": 'A Transformer with six words learns "je suis étudiant" and "merci"; every probability is shown.',
}

PageOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="PAGE.html", help="Write a page for a browser as well.")
]


def register(app: typer.Typer) -> None:
    app.command("tour")(tour)
    lessons = typer.Typer(cls=CourseGroup, invoke_without_command=True)
    lessons.callback()(lesson)
    lessons.command("reverse")(reverse)
    lessons.command("six-words")(six_words)
    app.add_typer(lessons, name="lesson")


class CourseGroup(TyperGroup):
    """A command for every chapter, beside the two lessons that train. Chapters are imported when they are needed."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        from regard.lessons.course.course import CHAPTERS, load_chapter

        if (found := super().get_command(ctx, cmd_name)) is not None:
            return found
        if cmd_name not in CHAPTERS and not cmd_name.isdecimal():
            raise InputError(f"there is no lesson {cmd_name[:80]!r}; {suggest(cmd_name, [*CHAPTERS, *LESSONS])}")
        chapter = load_chapter(cmd_name)
        made = typer.Typer(add_completion=False, rich_markup_mode=self.rich_markup_mode)
        help = f"{chapter.title}. {chapter.summary}"
        made.command(chapter.name, help=help, cls=GroupedCommand)(chapter_command(chapter.name))
        return typer.main.get_command(made)

    def list_commands(self, ctx: Any) -> list[str]:
        from regard.lessons.course.course import CHAPTERS

        return [*CHAPTERS, *super().list_commands(ctx)]


def lesson(context: typer.Context, as_json: JsonOption = False) -> None:
    """Read a chapter of the course, or train a worked example of the lectures; without a name, list them."""
    if context.invoked_subcommand is not None:
        return
    from regard.verbs.lesson import lesson as verb
    from regard.verbs.python import LocalModels

    result = render_events(verb.run(verb.parse({}), LocalModels()))
    if as_json:
        print(result.to_json())
        return
    print(f"The course:\n\n{result.to_text()}\n\nWorked examples that train while you watch:\n")
    for name, text in LESSONS.items():
        print(f"    {name:<21}  {text}")
    print("\n`regard lesson NAME` shows one, `regard lesson NAME --help` lists its options.")


def chapter_command(name: str) -> Callable[..., None]:
    """The command of a chapter: that of the verb, and `--ask`."""
    from regard.verbs.lesson import lesson as verb

    show = command(verb, {"chapter": name})
    shape = inspect.signature(show)
    option = Annotated[bool, typer.Option("--ask", help="Ask the exercises: predict, then see the computed answer.")]
    parameter = inspect.Parameter("ask", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=option)

    def run(ask: bool, **values: Any) -> None:
        if not ask:
            return show(**values)
        if values["as_json"] or values["save_to"] is not None:
            raise InputError("--ask is a conversation in the terminal; leave out --json and --output")
        ask_exercises(name, values["part"])

    run.__signature__ = shape.replace(parameters=[parameter, *shape.parameters.values()])  # type: ignore[attr-defined]
    run.__annotations__ = {**show.__annotations__, "ask": option}
    return run


def ask_exercises(chapter: str, part: str | None = None) -> None:
    """Ask the exercises of a chapter, or one of them; each answer is computed after the prediction."""
    from regard.lessons.course.lesson import LETTERS, ExercisePart, Lesson, answer_text, question_text
    from regard.verbs.lesson import lesson as verb
    from regard.verbs.python import LocalModels

    models = LocalModels()

    def parts(**arguments: object) -> list[ExercisePart]:
        result = render_events(verb.run(verb.parse({"chapter": chapter, **arguments}), models))
        assert isinstance(result, Lesson)
        return [one for one in result.parts if isinstance(one, ExercisePart)]

    exercises = parts(outline=True, **({} if part is None else {"part": part}))
    if not exercises:
        raise InputError(f"{part or chapter} has no exercise; `regard lesson {chapter}` shows the chapter")
    right = asked = 0
    for number, exercise in enumerate(exercises, 1):
        print(f"\nExercise {number} of {len(exercises)}. {question_text(exercise)}")
        choice = _predict(len(exercise.choices))
        if choice is None:
            break
        (answered,) = parts(part=exercise.name)
        assert answered.answer is not None
        asked += 1
        right += choice == answered.answer.choice
        print("Right." if choice == answered.answer.choice else f"Not {LETTERS[choice]}.")
        print(answer_text(answered))
    print(f"\n{right} of {asked} predictions were right.")


def _predict(choices: int) -> int | None:
    """The index of the choice that the user types; None to stop."""
    from regard.lessons.course.lesson import LETTERS

    while True:
        try:
            typed = input(f"Your prediction ({LETTERS[0]} to {LETTERS[choices - 1]}, q to stop): ").strip().lower()
        except EOFError:
            print()
            return None
        if typed == "q":
            return None
        if len(typed) == 1 and typed in LETTERS[:choices]:
            return LETTERS.index(typed)
        print(f"Expected a letter from {LETTERS[0]} to {LETTERS[choices - 1]}, or q.")


def tour(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="PAGE.html", help="Where to write the page.")
    ] = Path("regard-tour.html"),
    force: ForceOption = False,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Watch attention learn: train two tiny models in about a minute and see what one of them attends to.

    Both reverse four digits, one without attention and one with it. The result is printed and written as a page for a
    browser.
    """

    def train() -> Tour:
        from regard.cli.output import note, progress
        from regard.lessons import reverse_comparison
        from regard.lessons import tour as lesson

        note("Training two small models; this takes about a minute.")
        config = replace(lesson.CONFIG, seed=seed)
        runs = []
        for name, task in zip(lesson.NAMES, lesson.tour_tasks(config), strict=True):
            with progress(f"training {name}", total=config.epochs, unit="epochs") as advance:
                runs.append(reverse_comparison.train_task(task, lambda epoch: advance(1)))
        return lesson.Tour(*runs)

    _run(train, output, as_json=as_json, force=force)
    if not as_json:
        print("Next: `regard models` lists the models Regard knows, `regard embed --help` turns texts into vectors.")


def reverse(
    steps: Annotated[int, typer.Option(metavar="N", help="Number of digits in a sequence.")] = 4,
    features: Annotated[int, typer.Option(metavar="N", help="Number of distinct digits.")] = 10,
    as_in_deck: Annotated[
        bool,
        typer.Option("--as-in-deck", help="Keep the deck's configuration for any number of steps, as its exercise."),
    ] = False,
    units: Annotated[int | None, typer.Option(metavar="N", help="Units of each LSTM; 16, above 8 steps 64.")] = None,
    train_size: Annotated[
        int | None, typer.Option(metavar="N", help="Training sequences; 2,000, above 8 steps 20,000.")
    ] = None,
    test_size: Annotated[
        int | None, typer.Option(metavar="N", help="Test sequences; 200, above 8 steps 1,000.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(metavar="N", help="Maximum number of epochs; 24, above 8 steps 8.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(metavar="N", help="Sequences per batch; 10, above 8 steps 100.")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(metavar="X", help="Adam's learning rate; 0.001, above 8 steps 0.003.")
    ] = None,
    max_grad_norm: Annotated[
        float | None, typer.Option(metavar="X", help="Maximum gradient norm; 0 (no clipping), above 8 steps 1.")
    ] = None,
    lengths: Annotated[
        str | None,
        typer.Option(
            "--lengths",
            metavar="A,B,...",
            help="Other lengths for two of the models; quarters of the steps, or their double and triple if short.",
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", help="Models trained at a time; by default one per core.")
    ] = None,
    output: PageOption = None,
    force: ForceOption = False,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Reverse sequences with an LSTM encoder-decoder: no attention against dot, general and additive in two recipes.

    Up to 8 steps the defaults are those of the deck (4 digits of 10, 2,000/200 sequences, 16 units, batches of 10);
    longer sequences get a larger configuration, unless --as-in-deck. All models share data and budget. The deck's
    exercise is --steps 20 --features 16 --as-in-deck.
    """

    def train() -> ReverseComparison:
        from regard.lessons.reverse_comparison import collect_runs, plan_tasks, reverse_config

        config = reverse_config(
            steps=steps,
            features=features,
            as_in_deck=as_in_deck,
            units=units,
            train_size=train_size,
            test_size=test_size,
            batch_size=batch_size,
            learning_rate=learning_rate,
            max_grad_norm=max_grad_norm,
            epochs=epochs,
            seed=seed,
        )
        return collect_runs(_train(plan_tasks(config, None if lengths is None else _numbers(lengths)), jobs))

    _run(train, output, as_json=as_json, force=force)


def six_words(
    epochs: Annotated[int, typer.Option(metavar="N", help="Number of epochs over both pairs.")] = 60,
    output: PageOption = None,
    force: ForceOption = False,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Train a small Transformer on "je suis étudiant" → "I am a student <eos>" and "merci" → "thanks <eos>".

    Prints the probability of each of the six words at every output before and after training, the summed cross-entropy,
    and every step of decoding.
    """

    def train() -> SixWordsLesson:
        from regard.cli.output import progress
        from regard.lessons.six_words import train_six_words

        with progress("training on two sentences", total=epochs, unit="epochs") as advance:
            return train_six_words(epochs=epochs, seed=seed, on_epoch=lambda loss: advance(1))

    _run(train, output, as_json=as_json, force=force)


def _run(
    train: Callable[[], Tour | ReverseComparison | SixWordsLesson], output: Path | None, *, as_json: bool, force: bool
) -> None:
    """Train, write the page and print the result. A page that cannot be written is refused before the training."""
    from regard.cli.output import console, print_json

    with ExitStack() as stack:
        target = None
        if output is not None:
            from regard.render.bundle import check_built

            target = open_target(stack, str(output), (".html",), force=force)
            check_built()
        result = train()
        story = result.story()
        if target is not None:
            target.write_text(story.to_html(), encoding="utf-8")
    if as_json:
        print_json({**result.to_dict(), "page": None if output is None else str(output)})
        return
    console().print(story.to_rich())
    if output is None:
        print("\nAdd --output page.html for a page with all results.")
    else:
        print(f"\nPage written to {output}; open it in a browser, it needs no network.")


def _train(tasks: Sequence[ReverseTask], jobs: int | None) -> list[ReverseRun]:
    from regard.cli.output import STATUS_EVERY, note, status_line
    from regard.lessons.workers import train_all

    current: dict[ReverseTask, ReverseEpoch] = {}
    done: list[ReverseRun] = []
    with status_line(STATUS_EVERY) as show:

        def on_epoch(task: ReverseTask, epoch: ReverseEpoch) -> None:
            current[task] = epoch
            running = "; ".join(
                f"{_name(task)}: epoch {at.number} of {at.total}, training accuracy {at.train.token_accuracy:.1f}%"
                for task, at in current.items()
            )
            show(f"{len(done)} of {len(tasks)} models trained; {running}")

        def on_run(run: ReverseRun) -> None:
            current.pop(run.task, None)
            done.append(run)
            note(f"{_name(run.task)}: test accuracy {run.test.token_accuracy:.3f}%, epochs: {run.epochs}")

        show(f"training {len(tasks)} models")
        return train_all(tasks, jobs=jobs, on_epoch=on_epoch, on_run=on_run)


def _name(task: ReverseTask) -> str:
    return f"{task.name}, {task.config.steps} steps"


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--lengths must be whole numbers separated by commas, such as 4,8,12, not {text!r}") from None
