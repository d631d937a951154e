"""Readers for four benchmarks (LAMBADA, HellaSwag, PIQA, Winogrande), and the figures that the lectures report.

Each item is a context with its endings. A benchmark is held in memory: the largest has about ten thousand items. The
lectures' figures are perplexities for LAMBADA and percentages for the others; the lectures do not say whether these are
normalised by the length of the endings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from regard.data.files import STANDARD_INPUT, display_name
from regard.data.readers import read_choice_examples
from regard.data.readers.records import Path, Record, kind_of, open_records, read_lines, string_at
from regard.errors import InputError, check_choice
from regard.wording import is_count

BLANK = "_"


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
    """`label` is the index of the right ending; a word to predict is the only one. `where` names the line in errors."""

    candidates: tuple[Ending, ...]
    label: int
    where: str


@dataclass(frozen=True)
class _Unlabelled:
    """An item of a file; `label` is None if the labels are in another file."""

    candidates: tuple[Ending, ...]
    label: int | None
    where: str


@dataclass(frozen=True)
class BenchmarkTask:
    """How a benchmark is read. `first`: its labels count from 0 or 1. `normalised`: its endings differ in length."""

    read: Callable[[Path], Iterator[_Unlabelled]]
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


def _lambada(path: Path) -> Iterator[_Unlabelled]:
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
        yield _Unlabelled((Ending(context, f" {word}"),), 0, f"{name} line {number}")


def _hellaswag(path: Path) -> Iterator[_Unlabelled]:
    """Six lines an example as they are; of JSON lines, the activity comes before the text, and WikiHow's marks go."""
    read = read_choice_examples(
        path, remedy="expected HellaSwag's examples; name its file, or the benchmark that this is of"
    )
    opened, _ = open_records(path)
    records = [] if opened is None else [record for _, record in opened.numbered]
    for place, (example, line) in enumerate(zip(read.examples, read.lines, strict=True)):
        where = f"{read.path} line {line}"
        context, endings = example.text, example.endings
        if records:
            activity = records[place].get("activity_label")
            context = _unmarked(f"{activity}: {context}" if isinstance(activity, str) else context)
            endings = tuple(map(_unmarked, endings))
        yield _Unlabelled(_endings(context, endings, where), example.label, where)


def _unmarked(text: str) -> str:
    """Without "[title]", "[step]" and their like, as the six-line files are."""
    return re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". ")).replace("  ", " ")


def _piqa(path: Path) -> Iterator[_Unlabelled]:
    """JSON lines with `goal`, `sol1`, `sol2`, and perhaps `label`."""
    name = display_name(path)
    for number, record in _expected_records(path, "goal, sol1 and sol2"):
        where = f"{name} line {number}"
        goal, *solutions = (string_at(record, key, where) for key in ("goal", "sol1", "sol2"))
        label = None if record.get("label") is None else _place(record["label"], 2, 0, where)
        yield _Unlabelled(_endings(f"Question: {goal.strip()}\nAnswer:", solutions, where), label, where)


def _winogrande(path: Path) -> Iterator[_Unlabelled]:
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
        yield _Unlabelled(tuple(Ending(before + option, after) for option in options), label, where)


def _endings(context: str, endings: tuple[str, ...] | list[str], where: str) -> tuple[Ending, ...]:
    """Each ending with one blank before it."""
    if not all(ending.strip() for ending in endings):
        raise InputError(f"{where}: an ending is empty, so there is nothing to score; mend or remove the example")
    return tuple(Ending(context.rstrip(), f" {ending.strip()}") for ending in endings)


def _expected_records(path: Path, keys: str) -> list[tuple[int, Record]]:
    records, _ = open_records(path)
    found = [] if records is None else list(records.numbered)
    if not found:
        raise InputError(f"{display_name(path)} line 1: expected JSON lines with {keys}; this is another kind of file")
    return found


TASKS = {
    "lambada": BenchmarkTask(_lambada, word=True),
    "hellaswag": BenchmarkTask(_hellaswag, normalised=True),
    "piqa": BenchmarkTask(_piqa, normalised=True),
    "winogrande": BenchmarkTask(_winogrande, first=1),
}

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


def published(task: str) -> dict[str, float]:
    """The figures of one benchmark, by model."""
    return {name: figures[task] for name, figures in PUBLISHED.items()}
