"""Benchmarks by likelihood (LAMBADA, HellaSwag, PIQA, Winogrande): the most likely ending is the model's answer.

Each item is a context with its endings; a benchmark is held in memory. The figures that the lectures report are
perplexities for LAMBADA and percentages for the others; they do not say whether these are normalized by the length of
the endings.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import nn

from regard.data.batch import in_groups
from regard.data.files import STANDARD_INPUT, display_name
from regard.data.readers import read_choice_examples
from regard.data.readers.records import Path, Record, kind_of, open_records, read_lines, string_at
from regard.errors import InputError, check_choice
from regard.events import Progress
from regard.inference.causal_lm import CausalScorer, ScoredIds, SequenceScore, begin_token
from regard.nn.training import evaluation_mode
from regard.render.result import Result
from regard.tasks.metrics import mean_interval
from regard.text import Tokenizer
from regard.wording import count_of, is_count

BLANK = "_"
_ORDER = ("lambada", "winogrande", "hellaswag", "piqa")
PUBLISHED: Mapping[str, Mapping[str, float]] = {
    name: dict(zip(_ORDER, figures, strict=True))
    for name, figures in {
        "GPT-Neo-2.7B": (5.626, 56.5, 55.8, 73.0),
        "GPT3-2.7B": (4.60, 62.3, 62.8, 75.6),
        "GPT-J-6B": (3.99, 65.3, 66.1, 76.5),
        "GPT3-6.7B": (4.00, 64.5, 67.4, 78.0),
        "Curie": (3.997, 65.6, 68.5, 77.9),
        "GPT3-175B": (3.00, 70.2, 78.9, 81.0),
        "Davinci": (2.95, 72.0, 78.0, 83.0),
    }.items()
}
AT_ONCE = 64  # items whose endings are batched together


class Ending(NamedTuple):
    """A context and a possible ending; the space between them belongs to the ending."""

    context: str
    ending: str

    @property
    def bytes(self) -> int:
        """Bytes of the ending without surrounding white space."""
        return len(self.ending.strip().encode("utf-8", "surrogatepass"))


@dataclass(frozen=True)
class BenchmarkItem:
    """`label` is the index of the right ending; a word to predict is the only one. `where` names the line in errors.

    Readers leave the label out (None) if the labels are in another file.
    """

    candidates: tuple[Ending, ...]
    label: int | None
    where: str


@dataclass(frozen=True)
class BenchmarkTask:
    """How a benchmark is read. `first`: its labels count from 0 or 1. `normalised`: its endings differ in length."""

    read: Callable[[Path], Iterator[BenchmarkItem]]
    first: int = 0
    normalised: bool = False
    word: bool = False  # one word is to be predicted; there is nothing to choose from


def read_items(task: str, data: Path, *, labels: Path | None = None, limit: int | None = None) -> list[BenchmarkItem]:
    """The first `limit` items of a benchmark, or all. `labels`: a file with the right answers of all, one a line."""
    check_choice("benchmark", task, TASKS)
    kind = TASKS[task]
    for path in (data, labels):
        if path is not None and os.fspath(path) == STANDARD_INPUT:
            raise InputError("a benchmark is read from files: save what comes from standard input first")
    if limit is not None and limit < 1:
        raise InputError(f"limit is {limit}; expected how many examples to take, at least 1")
    if kind.word and labels is not None:
        raise InputError(f"{task} needs no labels: the last word of each line is to be predicted; leave them out")
    found = list(kind.read(data))
    if labels is None:
        indices = [item.label for item in found]
    else:
        indices = list(_labels(labels, [len(item.candidates) for item in found], kind.first, display_name(data)))
    items = []
    for item, place in list(zip(found, indices, strict=True))[:limit]:
        if place is None:
            raise InputError(f"{item.where}: no label, so nothing can be scored; name the file that has them (labels)")
        items.append(BenchmarkItem(item.candidates, place, item.where))
    return items


def _labels(path: Path, sizes: list[int], first: int, data: str) -> Iterator[int]:
    name, lines = display_name(path), read_lines(path)
    while not lines[-1].strip():
        lines.pop()
    if len(lines) != len(sizes):
        raise InputError(
            f"{data} has {len(sizes):,} examples and {name} {len(lines):,} labels; expected one label a line for each"
        )
    for number, (line, size) in enumerate(zip(lines, sizes, strict=True), start=1):
        yield _place(line, size, first, f"{name} line {number}")


def _place(value: object, size: int, first: int, where: str) -> int:
    """The index of the right ending from 0, for labels that count from `first`."""
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not is_count(text) or not first <= int(text) < first + size:
        came = repr(value) if isinstance(value, str | int | float) else kind_of(value)
        raise InputError(f"{where}: expected the number of the right one, {first} to {first + size - 1}, got {came}")
    return int(text) - first


def _lambada(path: Path) -> Iterator[BenchmarkItem]:
    """One passage per line, or JSON lines with `text`; the last word is to be predicted."""
    name = display_name(path)
    records, lines = open_records(path)
    if records is not None:
        texts = [(number, string_at(record, "text", f"{name} line {number}")) for number, record in records.numbered]
    else:
        last = max(number for number, line in enumerate(lines, start=1) if line.strip())
        texts = list(enumerate(lines[:last], start=1))
    for number, text in texts:
        context, word = [*text.rsplit(maxsplit=1), "", ""][:2]
        if not word:
            raise InputError(
                f"{name} line {number}: expected a passage of two or more words, the last one to be predicted, "
                f"got {text[:40]!r}"
            )
        yield BenchmarkItem((Ending(context, f" {word}"),), 0, f"{name} line {number}")


def _hellaswag(path: Path) -> Iterator[BenchmarkItem]:
    """Six lines an example as they are; of JSON lines, the activity comes before the text, and WikiHow's marks go."""
    read = read_choice_examples(
        path, remedy="expected HellaSwag's examples; name its file, or the benchmark that this is of"
    )
    records = [record for _, record in _records(path)]
    for place, (example, line) in enumerate(zip(read.examples, read.lines, strict=True)):
        where = f"{read.path} line {line}"
        context, endings = example.text, example.endings
        if records:
            activity = records[place].get("activity_label")
            context = _unmarked(f"{activity}: {context}" if isinstance(activity, str) else context)
            endings = tuple(map(_unmarked, endings))
        yield BenchmarkItem(_endings(context, endings, where), example.label, where)


def _unmarked(text: str) -> str:
    """Without "[title]", "[step]" and their like, as the six-line files are."""
    return re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". ")).replace("  ", " ")


def _piqa(path: Path) -> Iterator[BenchmarkItem]:
    """JSON lines with `goal`, `sol1`, `sol2`, and perhaps `label`."""
    name = display_name(path)
    for number, record in _expected_records(path, "goal, sol1 and sol2"):
        where = f"{name} line {number}"
        goal, *solutions = (string_at(record, key, where) for key in ("goal", "sol1", "sol2"))
        label = None if record.get("label") is None else _place(record["label"], 2, 0, where)
        yield BenchmarkItem(_endings(f"Question: {goal.strip()}\nAnswer:", solutions, where), label, where)


def _winogrande(path: Path) -> Iterator[BenchmarkItem]:
    """JSON lines with `sentence`, `option1`, `option2` and `answer`: either option fills the blank, and what follows
    it is scored."""
    name = display_name(path)
    for number, record in _expected_records(path, "sentence, option1, option2 and answer"):
        where = f"{name} line {number}"
        sentence, *options = (string_at(record, key, where).strip() for key in ("sentence", "option1", "option2"))
        before, blank, after = sentence.partition(BLANK)
        if not blank or BLANK in after:
            raise InputError(f"{where}: expected a sentence with one {BLANK!r} for the blank, got {sentence[:60]!r}")
        if not after.strip() or not all(options):
            missing = "nothing follows the blank" if all(options) else "an option is empty"
            raise InputError(f"{where}: {missing}, so there is nothing to score; mend or remove it")
        answer = record.get("answer")
        label = None if answer in (None, "") else _place(answer, 2, 1, where)
        yield BenchmarkItem(tuple(Ending(before + option, after) for option in options), label, where)


def _endings(context: str, endings: tuple[str, ...] | list[str], where: str) -> tuple[Ending, ...]:
    """Each ending with one blank before it."""
    if not all(ending.strip() for ending in endings):
        raise InputError(f"{where}: an ending is empty, so there is nothing to score; mend or remove the example")
    return tuple(Ending(context.rstrip(), f" {ending.strip()}") for ending in endings)


def _records(path: Path) -> Iterator[tuple[int, Record]]:
    """The objects of JSON lines or Parquet; nothing of another file."""
    records, _ = open_records(path)
    return iter(()) if records is None else records.numbered


def _expected_records(path: Path, keys: str) -> list[tuple[int, Record]]:
    found = list(_records(path))
    if not found:
        raise InputError(f"{display_name(path)} line 1: expected JSON lines with {keys}; this is another kind of file")
    return found


def published(task: str) -> dict[str, float]:
    """The figures of one benchmark, by model."""
    return {name: figures[task] for name, figures in PUBLISHED.items()}


class BenchmarkResult(Result):
    """Scores in percent; None where a task has no such score.

    `accuracy`: the right ending has the highest log-probability; for LAMBADA, every token of the last word is the
    model's first choice given the right tokens before it. `accuracy_normalised`: the same for log-probabilities divided
    by the bytes of the ending. `perplexity`: exp of the mean negative log-likelihood of LAMBADA's last words, per word.
    `interval`: 95% confidence interval of the accuracy. `chance`: the accuracy of guessing. `cut`: examples too long
    for the model, whose context was truncated on the left.
    """

    model: str = ""
    task: str
    n: int
    accuracy: float
    accuracy_normalised: float | None
    perplexity: float | None
    chance: float | None
    interval: tuple[float, float]
    cut: int

    def to_text(self) -> str:
        low, high = self.interval
        lines = [
            f"{self.task}: {count_of(self.n, 'example')}, {self.model}",
            f"{'accuracy':<20} {self.accuracy:6.2f} % (95%: {low:.2f} to {high:.2f})",
        ]
        if self.accuracy_normalised is not None:
            lines.append(f"{'normalised by bytes':<20} {self.accuracy_normalised:6.2f} %")
        if self.chance is not None:
            lines.append(f"{'chance':<20} {self.chance:6.2f} %")
        if self.perplexity is not None:
            lines.append(f"{'perplexity of a word':<20} {self.perplexity:,.4g}")
        unit = "percent" if self.perplexity is None else "perplexity"
        lines += ["", f"In the lectures' table ({unit}):"]
        return "\n".join([*lines, *(f"  {name:<18} {figure:g}" for name, figure in published(self.task).items())])


@dataclass
class _Tally:
    """Scores of the items so far."""

    right: list[float] = field(default_factory=list)
    right_normalised: list[float] = field(default_factory=list)
    nll: float = 0.0
    chance: float = 0.0
    cut: int = 0

    def add(self, item: BenchmarkItem, scores: Sequence[SequenceScore], *, cut: bool) -> None:
        assert item.label is not None
        values = [score.log_probability for score in scores]
        normalised = [value / ending.bytes for value, ending in zip(values, item.candidates, strict=True)]
        right = scores[0].greedy if len(values) == 1 else values.index(max(values)) == item.label
        self.right.append(100.0 * right)
        self.right_normalised.append(100.0 * (normalised.index(max(normalised)) == item.label))
        self.nll -= values[item.label]
        self.chance += 100 / len(values)
        self.cut += cut


def benchmark_events(
    model: nn.Module, tokenizer: Tokenizer | None, task: str, items: Sequence[BenchmarkItem], *, name: str = ""
) -> Generator[Progress, None, BenchmarkResult]:
    """Score every ending of every item.

    Each context follows the ids that `opening_ids` returns; an empty one follows the begin token, as in
    lm-evaluation-harness. A context that is too long for the model is truncated on the left; an ending that is too long
    by itself is scored in windows, after one token of its context.
    """
    check_choice("benchmark", task, TASKS)
    if not items:
        raise InputError("a benchmark needs at least one example, got none")
    scorer, tally = CausalScorer.of(model, tokenizer, doing="a benchmark"), _Tally()
    yield Progress(stage="scoring", done=0, total=len(items), unit="examples")
    for group in in_groups(items, AT_ONCE):
        with evaluation_mode(model):
            _score(scorer, group, tally)
        yield Progress(stage="scoring", done=len(tally.right), total=len(items), unit="examples")
    settings, n = TASKS[task], len(items)
    return BenchmarkResult(
        model=name,
        task=task,
        n=n,
        accuracy=sum(tally.right) / n,
        accuracy_normalised=sum(tally.right_normalised) / n if settings.normalised else None,
        perplexity=_exp(tally.nll / n) if settings.word else None,
        chance=None if settings.word else tally.chance / n,
        interval=mean_interval(tally.right),
        cut=tally.cut,
    )


def _score(scorer: CausalScorer, items: Sequence[BenchmarkItem], tally: _Tally) -> None:
    endings = [(item.where, ending) for item in items for ending in item.candidates]
    contexts, _ = scorer.tokenizer.ids_batch([ending.context for _, ending in endings], add_special_tokens=False)
    targets, _ = scorer.tokenizer.ids_batch([ending.ending for _, ending in endings], add_special_tokens=False)
    rows = [
        _rows(scorer, context, target, where)
        for context, target, (where, _) in zip(contexts, targets, endings, strict=True)
    ]
    scores = iter(scorer.score([row for parts, _ in rows for row in parts]))
    whole = [_sum([next(scores) for _ in parts]) for parts, _ in rows]
    start = 0
    for item in items:
        end = start + len(item.candidates)
        tally.add(item, whole[start:end], cut=any(cut for _, cut in rows[start:end]))
        start = end


def _rows(scorer: CausalScorer, context: list[int], ending: list[int], where: str) -> tuple[list[ScoredIds], bool]:
    """Context and ending as rows the model can read, and whether they were too long for one.

    An ending that is too long by itself becomes rows that overlap by half.
    """
    if not ending:
        raise InputError(f"{where}: an ending has no tokens in this model's vocabulary; mend or remove the example")
    opening, most = scorer.opening, scorer.max_length
    if not opening and not context:
        begin = begin_token(scorer.model, scorer.tokenizer)
        opening = [] if begin is None else [begin]
    ids = [*opening, *context, *ending]
    if len(ids) == len(ending):
        raise InputError(f"{where}: there is no context, and this model has no begin token to predict the ending from")
    if len(ending) > most:
        return scorer.window_rows(ids[-(len(ending) + 1) :]), True
    read = ids[-(most + 1) :]  # the last id is predicted and not read
    return [ScoredIds(read, len(read) - len(ending))], len(read) < len(ids)


def _sum(scores: Sequence[SequenceScore]) -> SequenceScore:
    return SequenceScore(sum(score.log_probability for score in scores), all(score.greedy for score in scores))


def _exp(mean: float) -> float:
    return math.inf if mean > 700 else math.exp(mean)  # exp(710) is not a float any more


TASKS = {
    "lambada": BenchmarkTask(_lambada, word=True),
    "hellaswag": BenchmarkTask(_hellaswag, normalised=True),
    "piqa": BenchmarkTask(_piqa, normalised=True),
    "winogrande": BenchmarkTask(_winogrande, first=1),
}
