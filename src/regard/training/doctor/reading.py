"""Checks of how a tokenizer reads examples: capitals that it does not know, and what is cut away.

Runs no model.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

from regard.data.examples import Example, QuestionExample, TaggedExample, TextExample, without_label
from regard.tasks.inputs import InputBuilder
from regard.tasks.task import Task, TaskInput
from regard.text import Tokenizer
from regard.training.doctor.data import spaced
from regard.training.doctor.findings import DoctorFinding, Status, skipped

__all__ = ["casing", "texts_of", "truncation"]

SAMPLE = 500  # examples: a share of a tenth is seen in fewer, and a run begins at once
WORDS = 1000  # different capitalised words
HURT = 0.5  # of the capitalised words; a vocabulary with capitals knows most of those that occur
ENOUGH = 10  # words, of a text or a vocabulary, to judge by
CAPITAL = 0.01  # of a vocabulary: one without capitals has none, but a stray one is no mismatch
PART = 0.1  # of a text's tokens: what lacks no more than that still says what it says
CUT, CUT_ERROR = 0.1, 0.5  # of the texts: a few long ones are cut in any data
LOST, LOST_ERROR = 0.01, 0.1  # of the labels, each of which is then wrong

_WORD = re.compile(r"[^\W\d_]{2,}")


def casing(tokenizer: Tokenizer, texts: Sequence[str]) -> DoctorFinding:
    """Whether the tokenizer treats capitals as its vocabulary does, and as these texts need."""
    check = "casing mismatch"
    capitals = [token for token in tokenizer.vocabulary if token.isascii() and token.isalpha() and token.istitle()]
    capitals = [token for token in capitals if len(token) > 1]
    if len(capitals) >= max(ENOUGH, CAPITAL * len(tokenizer.vocabulary)):
        folded = sum(_folds(tokenizer, capitals[:WORDS]))
        if folded > HURT * len(capitals[:WORDS]):
            evidence = (
                f"the tokenizer makes small letters of capitals, and {len(capitals):,} of "
                f"{len(tokenizer.vocabulary):,} tokens of its vocabulary are capitalised words, such as {capitals[0]!r}"
            )
            remedy = 'set "do_lower_case": false in tokenizer_config.json, and "lowercase" in tokenizer.json'
            return DoctorFinding(check, "error", evidence, remedy)
    counts = Counter(word for text in texts for word in _WORD.findall(text) if word.istitle())
    words = dict(islice(counts.most_common(), WORDS))
    total = sum(words.values())
    if total < ENOUGH:
        return DoctorFinding(check, "ok", "the texts have hardly any capitalised word")
    hurt = [word for word, worse in zip(words, _worse(tokenizer, list(words)), strict=True) if worse]
    count = sum(words[word] for word in hurt)
    evidence = f"{count:,} of {total:,} capitalised words ({count / total:.1%}) are read worse than in small letters"
    if count <= HURT * total:
        return DoctorFinding(check, "ok", evidence)
    shown = " ".join(tokenizer.encode(f" {hurt[0]}", special=False).tokens)
    remedy = (
        'if the model knows no capitals, set "do_lower_case": true in tokenizer_config.json, and "lowercase" in '
        "tokenizer.json; else use a model that fits the texts"
    )
    return DoctorFinding(check, "error", f"{evidence}, such as {hurt[0]!r} as {shown!r}", remedy)


def truncation(task: Task[Any], examples: Sequence[Example], rows: InputBuilder) -> DoctorFinding:
    """How much of the texts, or how many labels of words and answers, the model never sees."""
    some = spaced(examples, SAMPLE)
    of = f"{len(some):,}" if len(some) == len(examples) else f"a sample of {len(some):,}"
    if isinstance(some[0], QuestionExample):
        return _lost_answers(task.preprocess(some, rows), some, rows)
    items = task.preprocess([without_label(example) for example in some], rows)
    if isinstance(some[0], TaggedExample):
        return _lost_words(items, some, rows)
    cut, all_cut, all_tokens = 0, 0, 0
    for item in items:  # one an example, whatever its rows
        gone = sum(row.num_truncated for row in item.sequences)
        cut += gone > PART * (gone + len(item))
        all_cut, all_tokens = all_cut + gone, all_tokens + gone + len(item)
    evidence = (
        f"{cut:,} of {of} texts lose more than a tenth at {rows.max_length} tokens; "
        f"{all_cut / all_tokens:.1%} of all tokens are cut"
    )
    return _judged(evidence, cut / len(some), CUT, CUT_ERROR)


def texts_of(examples: Sequence[Example]) -> list[str]:
    """What a tokenizer reads of at most `SAMPLE` examples."""
    found = []
    for example in spaced(examples, SAMPLE):
        if isinstance(example, QuestionExample):
            found += [example.question, example.context]
        elif isinstance(example, TextExample):
            found += [example.text, example.text_pair or ""]
        else:
            found.append(getattr(example, "text", ""))
    return found


def _lost_words(items: Sequence[TaskInput], examples: Sequence[Example], rows: InputBuilder) -> DoctorFinding:
    read = {(item.example, word) for item in items for word in item.extra}
    named = [
        (owner, word)
        for owner, example in enumerate(examples)
        if isinstance(example, TaggedExample)
        for word, tag in enumerate(example.tags or ())
        if tag != "O"
    ]
    if not named:
        return skipped("labels truncated away", "no word has a tag but O")
    lost = sum(place not in read for place in named)
    evidence = f"{lost:,} of {len(named):,} tagged words are lost; "
    evidence += f"texts of more than {rows.max_length} tokens are read in windows"
    return _judged(evidence, lost / len(named), LOST, LOST_ERROR)


def _lost_answers(items: Sequence[TaskInput], examples: Sequence[Example], rows: InputBuilder) -> DoctorFinding:
    asked = {
        owner for owner, example in enumerate(examples) if isinstance(example, QuestionExample) and example.answers
    }
    if not asked:
        return skipped("labels truncated away", "no question has an answer")
    found = {item.example for item in items if item.target not in (None, (0, 0))}
    lost = len(asked - found)
    evidence = f"{lost:,} of {len(asked):,} answers lie whole in no window of {rows.max_length} tokens"
    return _judged(evidence, lost / len(asked), LOST, LOST_ERROR)


def _judged(evidence: str, share: float, warning: float, error: float) -> DoctorFinding:
    status: Status = "error" if share >= error else "warning" if share >= warning else "ok"
    remedy = "" if status == "ok" else "make rows longer with --set training.max_length=N, as far as the model reads"
    return DoctorFinding("labels truncated away", status, evidence, remedy)


def _folds(tokenizer: Tokenizer, words: Sequence[str]) -> list[bool]:
    written, small = _both(tokenizer, words)
    return [a == b for a, b in zip(written, small, strict=True)]


def _worse(tokenizer: Tokenizer, words: Sequence[str]) -> list[bool]:
    """Whether each word is unknown, or in more pieces, for its capital alone."""
    unknown = tokenizer.unknown
    written, small = _both(tokenizer, words)
    return [
        (unknown in a and unknown not in b) or (len(a) > len(b) and unknown not in b)
        for a, b in zip(written, small, strict=True)
    ]


def _both(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[list[list[int]], list[list[int]]]:
    # With a space before them, as in a text: to a byte-level vocabulary that is part of the word.
    written, _ = tokenizer.ids_batch([f" {word}" for word in words], special=False)
    small, _ = tokenizer.ids_batch([f" {word.lower()}" for word in words], special=False)
    return written, small
