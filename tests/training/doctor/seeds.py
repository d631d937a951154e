"""Clean examples and folders, and folders with a mistake in their tokenizer."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from tokenizers import Tokenizer, processors

from regard.data.examples import TextExample
from regard.data.readers import ExampleSet
from regard.training.doctor import DoctorFinding, problems

E = TypeVar("E")

SUBJECTS = ("The film", "This sound", "My day", "Their word", "The water", "Each side", "His time", "The first part")
GOOD, BAD = ("good", "funny", "hot", "long"), ("bad", "dull", "down", "out")
REST = "for them and we can see it at this time with some people who would go there now but what he said was"


def clean_texts(count: int, *, first: int) -> list[TextExample]:
    """Different texts of two balanced classes; `first` is the index of the first one in a fixed list."""
    generator, found = random.Random(5), []
    for number in range(first + count):
        label = "pos" if generator.random() < 0.5 else "neg"
        words = [generator.choice(SUBJECTS), "was", generator.choice(GOOD if label == "pos" else BAD)]
        words += generator.choices(REST.split(), k=generator.randint(3, 9))
        found.append(TextExample(" ".join(words) + f" {number}", None, label))
    return found[first:]


def clean_pairs(count: int) -> list[TextExample]:
    texts = clean_texts(2 * count, first=0)
    pairs = zip(texts[::2], texts[1::2], strict=True)
    return [TextExample(a.text, b.text, "same" if a.label == b.label else "other") for a, b in pairs]


def read_of(examples: Sequence[E], path: str = "data.tsv") -> ExampleSet[E]:
    lines = list(range(2, len(examples) + 2))
    return ExampleSet(list(examples), path, "tab-separated, header, text = text, label = label", {}, lines)


def write_tsv(path: Path, examples: Iterable[TextExample], *, swapped: bool = False) -> Path:
    columns = "label\ttext" if swapped else "text\tlabel"
    lines = [columns, *(f"{one.text}\t{one.label}" for one in examples)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def reported(found: Iterable[DoctorFinding]) -> dict[str, str]:
    return {finding.check: finding.status for finding in problems(found)}


def without_segments(folder: Path, target: Path) -> Path:
    """The same model with a tokenizer that gives both texts of a pair the segment 0."""
    _copy(folder, target)
    pipeline = Tokenizer.from_file(str(target / "tokenizer.json"))
    marks = [(mark, pipeline.token_to_id(mark)) for mark in ("[CLS]", "[SEP]")]
    pipeline.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:0 [SEP]:0", special_tokens=marks
    )
    pipeline.save(str(target / "tokenizer.json"))
    return target


def cased(folder: Path, target: Path) -> Path:
    """The same model, whose vocabulary is lowercase, with a tokenizer that does not lowercase."""
    _copy(folder, target)
    document = json.loads((target / "tokenizer.json").read_text(encoding="utf-8"))
    document["normalizer"]["lowercase"] = False
    (target / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    return target


def with_inputs(folder: Path, target: Path, inputs: Sequence[str]) -> Path:
    """The same model with other model_input_names."""
    _copy(folder, target)
    path = target / "tokenizer_config.json"
    document = json.loads(path.read_text(encoding="utf-8")) | {"model_input_names": list(inputs)}
    path.write_text(json.dumps(document), encoding="utf-8")
    return target


def _copy(folder: Path, target: Path) -> None:
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("checksums.json"))  # the copy will differ
