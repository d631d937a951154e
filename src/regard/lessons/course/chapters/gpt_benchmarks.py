"""Parts of the chapter on GPT: the benchmark table of GPT-J, its training facts, and what GPT-3 cost.

The data sets do not come with Regard: the slow part scores the first examples of those that `find_data` finds. The
scores of the built-in model on the whole sets are in its model card.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import TYPE_CHECKING

from regard.checkpoints.models import Models
from regard.events import Event
from regard.lessons.course.chapter import DeckRow, ExerciseAnswer, beside_deck
from regard.lessons.course.chapters.gpt_model import MODEL
from regard.lessons.course.data_sets import find_data, missing_data
from regard.render.story import Paragraph, StoryBlock, StoryTable

if TYPE_CHECKING:
    from regard.training.cost import CostEstimate

SAMPLE = 40  # examples of each benchmark in the slow part
FILES = {
    "lambada": ("lambada/lambada_development_plain_text.txt", None),
    "hellaswag": ("hellaswag/hellaswag_val_full.txt.bz2", None),
    "piqa": ("piqa/dev.jsonl", "piqa/dev-labels.lst"),
}
TASKS = ("lambada", "winogrande", "hellaswag", "piqa")
_ROW = re.compile(
    r"^\| (\w+), ([\d,]+) examples \| ([\d.]+) \(([\d.]+) to ([\d.]+)\) \| *([\d.]*) *\| *([\d.]*) *\| *([\d,.]*) *\|"
)
_TRAINED = re.compile(r"^\| 1 \| ([\d,]+) \| (\d+) \|", re.MULTILINE)
V100_RATE = 28e12 / 125e12  # of the peak: 28 teraflop/s, as in the estimate that the deck's figure goes back to
V100_PRICE = 1.5  # dollars an hour in that estimate
GPT3_TOKENS = 300_000_000_000


def card_scores() -> dict[str, dict[str, float]]:
    """The scores in the built-in model's card, by benchmark: accuracy, its interval, chance, perplexity."""
    names = ("n", "accuracy", "low", "high", "normalized", "chance", "perplexity")
    found = {}
    for line in _card().splitlines():
        if match := _ROW.match(line):
            values = (value.replace(",", "") for value in match.groups()[1:])
            found[match[1]] = {name: float(value) for name, value in zip(names, values, strict=True) if value}
    return found


def _card() -> str:
    from regard.known import builtin_folder

    return (builtin_folder(MODEL) / "README.md").read_text(encoding="utf-8")


def _cell(task: str, scores: dict[str, float]) -> str:
    return f"{scores['perplexity']:,.0f}" if task == "lambada" else f"{scores['accuracy']:.1f}%"


def _printed(perplexity: float) -> str:
    """As the deck prints it: with two digits, or with three if there are three."""
    return f"{perplexity:.2f}" if round(perplexity, 2) == perplexity else f"{perplexity:.3f}"


def table(models: Models) -> list[StoryBlock]:
    from regard.inference.benchmark import PUBLISHED

    rows = [
        (name, _printed(values["lambada"]), *(f"{values[task]:.1f}%" for task in TASKS[1:]))
        for name, values in PUBLISHED.items()
    ]
    scores = card_scores()
    ours = [_cell(task, scores[task]) if task in scores else "no data" for task in TASKS]
    chance = [f"{scores[task]['chance']:.0f}%" if "chance" in scores.get(task, {}) else "" for task in TASKS]
    rows += [(f"{MODEL} (ours)", *ours), ("chance", *chance)]
    counts = ", ".join(f"{task} {int(one['n']):,}" for task, one in scores.items())
    return [
        StoryTable(
            headers=("model", "LAMBADA perplexity", "Winogrande", "HellaSwag", "PIQA"),
            rows=rows,
            caption="S2's table, and our model",
        ),
        Paragraph(
            text=f"Our row is from the model's card: all examples of each set ({counts}), measured by `regard "
            "benchmark`. We have "
            "no copy of Winogrande, so that cell is empty. LAMBADA is the perplexity of the last word."
        ),
        _training_facts(),
    ]


def _training_facts() -> StoryTable:
    trained = _TRAINED.search(_card())
    assert trained is not None
    tokens, seconds = int(trained[1].replace(",", "")), int(trained[2])
    from regard.training.cost import estimate_cost, find_shape

    gptj, own = 6e9 * 6 * 400e9, estimate_cost(find_shape(MODEL), tokens=tokens)
    return beside_deck(
        [
            DeckRow("training tokens", "400B", f"{tokens / 1e9:.2f}B", "GPT-J; ours from its card"),
            DeckRow("hardware", "TPU v3-256", "one H200"),
            DeckRow("training time", "five weeks", f"{seconds / 60:.0f} minutes"),
            DeckRow("parameters", "6B", f"{own.parameters / 1e6:.0f}M"),
            DeckRow("operations, 6 N D", f"{gptj:.1e}", f"{own.flops:.1e}", "both computed", ""),
        ],
        caption="Training facts of GPT-J beside ours",
    )


def sample(models: Models) -> Generator[Event, None, list[StoryBlock]]:
    """Score the first examples of each data set that is there."""
    from regard.inference.benchmark import benchmark_events, read_items

    rows, blocks = [], list[StoryBlock]()
    for task, (data_name, labels_name) in FILES.items():
        data, labels = find_data(data_name), labels_name and find_data(labels_name)
        if data is None or (labels_name and labels is None):
            absent = labels_name if data and labels_name else data_name
            blocks.append(Paragraph(text=missing_data(absent)))
            continue
        items = read_items(task, data, labels=labels, limit=SAMPLE)
        with models.use(MODEL) as loaded:
            result = yield from benchmark_events(loaded.model, loaded.tokenizer, task, items, name=MODEL)
        low, high = result.interval
        perplexity = "" if result.perplexity is None else f"{result.perplexity:,.0f}"
        rows.append((task, str(result.n), f"{result.accuracy:.1f}% ({low:.0f} to {high:.0f})", perplexity))
    if rows:
        headers = ("benchmark", "examples", "accuracy (95% interval)", "perplexity of a word")
        caption = f"The first {SAMPLE} examples, computed now"
        blocks.insert(0, StoryTable(headers=headers, rows=rows, caption=caption))
    return blocks


def piqa_answer(models: Models) -> ExerciseAnswer:
    scores = card_scores()["piqa"]
    above = scores["low"] > scores["chance"]
    return ExerciseAnswer(
        1 if above else 0,
        f"{scores['accuracy']:.1f}% with a 95% interval of {scores['low']:.1f} to {scores['high']:.1f}; guessing "
        "between two "
        f"endings gets {scores['chance']:.0f}%. GPT-J's 76.5% in the deck is 26.5 points above guessing, not 76.5.",
    )


def cost(models: Models) -> list[StoryBlock]:
    found = _gpt3_cost()
    assert found.money is not None
    rows = [
        DeckRow("parameters", "175,000,000,000", f"{found.parameters:,}", "counted from the paper's configuration"),
        DeckRow("operations", "-", f"{found.flops:.3g}", f"6 x parameters x {GPT3_TOKENS / 1e9:.0f}B tokens"),
        DeckRow("V100 years", "-", f"{found.gpu_years:,.0f}", f"at {V100_RATE:.1%} of the peak, one GPU"),
        DeckRow("money", "$4,600,000", f"${found.money:,.0f}", f"at ${V100_PRICE:g} an hour"),
    ]
    return [beside_deck(rows)]


def _gpt3_cost() -> CostEstimate:
    from regard.training.cost import estimate_cost, find_shape

    return estimate_cost(find_shape("gpt3"), tokens=GPT3_TOKENS, gpu="v100", utilization=V100_RATE, price=V100_PRICE)


def years_answer(models: Models) -> ExerciseAnswer:
    years = _gpt3_cost().gpu_years
    choices = (3.6, 36, 360, 3600)
    choice = min(range(len(choices)), key=lambda index: abs(choices[index] - years))
    return ExerciseAnswer(
        choice,
        f'{years:,.0f} years on one V100. The deck\'s "a Tesla V100 cloud instance" means very many of them at once.',
    )
