"""The tour: two models of the reversal lesson compared, without and with attention."""

from __future__ import annotations

from dataclasses import dataclass

from regard.lessons.reverse_comparison import (
    DECK,
    DECK_NOTE,
    RECIPES,
    ReverseConfig,
    ReverseRun,
    ReverseTask,
    join_digits,
    verdict,
)
from regard.render.story import FigureRow, Paragraph, Section, Story, StoryTable

CONFIG = ReverseConfig()
EXAMPLE = (2, 8, 1, 6)  # the deck's example; not in the training set
NAMES = ("without attention", "with attention (Luong dot)")


def tour_tasks(config: ReverseConfig) -> tuple[ReverseTask, ReverseTask]:
    """The model without attention and the one with it."""
    return ReverseTask("none", "luong", config, (EXAMPLE,)), ReverseTask("dot", "luong", config, (EXAMPLE,))


@dataclass(frozen=True)
class Tour:
    """A model without attention and one with it, trained on the same data."""

    plain: ReverseRun
    attending: ReverseRun

    def to_dict(self) -> dict[str, object]:
        """The document of --json."""
        attending = self.attending
        return {
            "deck": DECK,
            "runs": [self.plain.summary(), attending.summary()],
            "matrix": {
                "read": list(map(str, attending.inputs[0])),
                "written": list(map(str, attending.answers[0])),
                "weights": attending.matrix,
                "mean_weights": attending.mean_matrix,
            },
        }

    def story(self) -> Story:
        attending, config = self.attending, self.attending.task.config
        first = attending.inputs[0]
        task = (
            f"The task: read {len(first)} digits and write them backwards, {join_digits(first)} → "
            f"{join_digits(first[::-1])}. One LSTM encodes them, another decodes. Without attention the decoder sees "
            "only the last encoder state; with it, every step can attend to each digit. Both models are trained on "
            f"{config.train_size:,} sequences and tested on {config.test_size:,} others."
        )
        meaning = (
            "The line from top right to bottom left, the anti-diagonal, is the reversal itself: to write its first "
            "digit the model attends to the last one it read, then to the one before, and so on. It was never told "
            "where to attend; it only saw sequences and targets. In "
            f"{attending.alignment_accuracy:.4g}% of the test steps the largest weight is on that line. Attention to a "
            "digit does not prove that the model uses it."
        )
        method = (
            f"{config.description()} The deck does not give the epochs. The attention is the {attending.task.score} "
            f'score in {RECIPES[attending.task.recipe]}. {DECK_NOTE} "Sequence accuracy" is the share of entirely '
            "correct test sequences."
        )
        maps = [
            attending.heat_map(f"{join_digits(first)}, a test sequence"),
            attending.mean_heat_map("Mean over the test set, by position"),
        ]
        story = Story(
            title="Attention learns to read backwards",
            blocks=[
                Paragraph(text=task),
                Section(heading="Accuracy", blocks=[self._table()]),
                Section(heading="Attention", blocks=[FigureRow(blocks=maps), Paragraph(text=meaning)]),
                Section(heading="Outputs", blocks=[self._outputs()]),
                Section(heading="Method", blocks=[Paragraph(text=method)]),
            ],
        )
        story.with_reproduction(
            f"regard tour --seed {config.seed}",
            "from regard.lessons.reverse_comparison import ReverseConfig, train_task\n"
            "from regard.lessons.tour import Tour, tour_tasks\n\n"
            f"Tour(*map(train_task, tour_tasks(ReverseConfig(seed={config.seed})))).story()",
        )
        return story

    def _table(self) -> StoryTable:
        headers = ("token accuracy, percent", "train", "test", "sequence accuracy", "epochs")
        rows = [("the deck, without attention", *(f"{score:.3f}" for score in DECK.values()), "-", "-")]
        for name, run in zip(NAMES, (self.plain, self.attending), strict=True):
            rows.append((name, *run.score_cells()[:3], str(run.epochs)))
        return StoryTable(headers=headers, rows=rows)

    def _outputs(self) -> StoryTable:
        """The first test sequence, and the first that the model without attention gets wrong, if there is one."""
        pairs = enumerate(zip(self.plain.answers, self.plain.inputs, strict=True))
        wrong = next((number for number, (answer, read) in pairs if verdict(answer, read) == "wrong"), 0)
        rows = []
        for number in dict.fromkeys((0, wrong)):
            read = self.plain.inputs[number]
            answers = [run.answers[number] for run in (self.plain, self.attending)]
            outputs = (f"{join_digits(answer)} {verdict(answer, read)}" for answer in answers)
            rows.append((join_digits(read), join_digits(read[::-1]), *outputs))
        return StoryTable(headers=("input", "target", *NAMES), rows=rows)
