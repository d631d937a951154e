"""`regard tour`: the first thing to try. Trains two tiny models, without and with attention, and compares them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import JsonOption, SeedOption, check_page

if TYPE_CHECKING:
    from regard.lessons.reverse import ReverseDataset
    from regard.lessons.tour import TourRun, TourStory
    from regard.models.seq2seq import Score

EXAMPLE = (2, 8, 1, 6)  # the deck's example; not in the training set
LINE = 96


def register(app: typer.Typer) -> None:
    app.command("tour")(tour)


def tour(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="PAGE.html", help="Where to write the page.")
    ] = Path("regard-tour.html"),
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Watch attention learn: train two tiny models in about a minute and see what one of them attends to.

    Both reverse four digits, one without attention and one with it. The result is printed and written as a page for a
    browser.
    """
    from regard.cli.output import note, print_json
    from regard.files.disk import replace_file
    from regard.render.bundle import check_built

    check_page(output)
    check_built()
    with replace_file(output) as temporary:  # first: a page that cannot be written is refused before the training
        note("Training two small models; this takes about a minute.")
        from regard.lessons import reverse
        from regard.lessons.tour import tour_page, tour_story

        sizes = reverse.TRAIN_SIZE, reverse.TEST_SIZE, reverse.TIMESTEPS, reverse.FEATURES
        data = reverse.create_dataset(*sizes, seed=seed, held_out=[EXAMPLE])
        plain = _train("without attention", "none", data, seed=seed)
        attending = _train("with attention (Luong dot)", "dot", data, seed=seed)
        story = tour_story(plain, attending, data, seed=seed)
        temporary.write_text(tour_page(story), encoding="utf-8")
    if as_json:
        print_json(_document([plain, attending], story, output))
    else:
        _print(story, output)


def _train(name: str, score: Score, data: ReverseDataset, *, seed: int) -> TourRun:
    from regard.cli.output import progress
    from regard.lessons import reverse
    from regard.lessons.tour import TourRun

    model = reverse.new_model(data, score=score, seed=seed)
    with progress(f"training {name}", total=reverse.EPOCHS, unit="epochs") as advance:
        for epoch in reverse.train_reverse(model, data, epochs=reverse.EPOCHS, seed=seed):
            advance(1)
            if epoch.done:
                break
    return TourRun(name, score, model.config.recipe, epoch.number, epoch.seconds, reverse.evaluate(model, data))


def _print(story: TourStory, output: Path) -> None:
    from textwrap import fill

    from regard.cli.output import console
    from regard.render.terminal import terminal_heat_map

    print(fill(story.task, LINE) + "\n")
    rows = [story.headers, *story.rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        print(f"  {first:<{widths[0]}}" + "".join(f"  {t:>{w}}" for t, w in zip(others, widths[1:], strict=True)))
    for example in story.examples:
        print(f"\n{example.read}, {example.reason}; the target is {example.right}:")
        for name, answer, verdict in example.answers:
            print(f"  {name:<{widths[0]}}  {answer}  {verdict}")
    print("\nAttention weights in percent; columns are the input, rows the output:\n")
    picture = terminal_heat_map(story.matrix, [f"  {name}" for name in story.written], story.read)
    console().print(picture)
    print("\n" + fill(story.meaning, LINE) + "\n")
    print(fill(story.method, LINE))
    print(f"\nPage written to {output}; open it in a browser, it needs no network.")
    print("Next: `regard models` lists the models Regard knows, `regard embed --help` turns texts into vectors.")


def _document(runs: list[TourRun], story: TourStory, output: Path) -> dict[str, Any]:
    from regard.lessons.tour import DECK

    return {
        "deck": DECK,
        "runs": [
            {
                "score": run.score,
                "recipe": None if run.score == "none" else run.recipe,
                "train_token_accuracy": run.evaluation.train.token_accuracy,
                "test_token_accuracy": run.evaluation.test.token_accuracy,
                "test_sequence_accuracy": run.evaluation.test.sequence_accuracy,
                "alignment_accuracy": run.evaluation.alignment_accuracy,
                "epochs": run.epochs,
                "seconds": round(run.seconds, 3),
            }
            for run in runs
        ],
        "matrix": {
            "read": story.read,
            "written": story.written,
            "weights": story.matrix,
            "mean_weights": story.mean_matrix,
        },
        "page": str(output),
    }
