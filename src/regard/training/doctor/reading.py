"""Checks of the tokenizer with the examples: casing and truncation. No model is run."""

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

SAMPLE = 500  # examples: enough to notice a share of a tenth, without delaying a run
WORDS = 1000  # different capitalized words
HURT = 0.5  # share of the capitalized words; a cased vocabulary contains most of those that occur
ENOUGH = 10  # words of a text or a vocabulary that are needed
CAPITAL = 0.01  # share of a cased vocabulary that is capitalized; an uncased one may have a few such tokens
PART = 0.1  # share of a text's tokens: truncating less hardly changes the meaning
CUT, CUT_ERROR = 0.1, 0.5  # share of the texts: any data has a few long ones
LOST, LOST_ERROR = 0.01, 0.1  # share of the labels, each of which is a certain mistake

_WORD = re.compile(r"[^\W\d_]{2,}")


def casing(tokenizer: Tokenizer, texts: Sequence[str]) -> DoctorFinding:
    """Whether the casing of the tokenizer fits its vocabulary and the texts."""
    check = "casing mismatch"
    capitals = [token for token in tokenizer.vocabulary if token.isascii() and token.isalpha() and token.istitle()]
    capitals = [token for token in capitals if len(token) > 1]
    if len(capitals) >= max(ENOUGH, CAPITAL * len(tokenizer.vocabulary)):
        folded = sum(_is_lowercased(tokenizer, capitals[:WORDS]))
        if folded > HURT * len(capitals[:WORDS]):
            evidence = (
                f"the tokenizer lowercases texts, and {len(capitals):,} of {len(tokenizer.vocabulary):,} tokens of its "
                f"vocabulary are capitalized words, such as {capitals[0]!r}"
            )
            remedy = 'set "do_lower_case": false in tokenizer_config.json, and "lowercase" in tokenizer.json'
            return DoctorFinding(check, "error", evidence, remedy)
    counts = Counter(word for text in texts for word in _WORD.findall(text) if word.istitle())
    words = dict(islice(counts.most_common(), WORDS))
    total = sum(words.values())
    if total < ENOUGH:
        return DoctorFinding(check, "ok", "the texts have hardly any capitalized words")
    hurt = [word for word, worse in zip(words, _is_worse(tokenizer, list(words)), strict=True) if worse]
    count = sum(words[word] for word in hurt)
    evidence = f"{count:,} of {total:,} capitalized words ({count / total:.1%}) are tokenized worse than in lower case"
    if count <= HURT * total:
        return DoctorFinding(check, "ok", evidence)
    tokens = " ".join(tokenizer.encode(f" {hurt[0]}", add_special_tokens=False).tokens)
    remedy = (
        'if the model is uncased, set "do_lower_case": true in tokenizer_config.json, and "lowercase" in '
        "tokenizer.json; otherwise use a model that fits the texts"
    )
    return DoctorFinding(check, "error", f"{evidence}, such as {hurt[0]!r} as {tokens!r}", remedy)


def truncation(task: Task[Any], examples: Sequence[Example], rows: InputBuilder) -> DoctorFinding:
    """How many texts are truncated, or how many tagged words and answers are lost."""
    sample = spaced(examples, SAMPLE)
    total = f"{len(sample):,}" if len(sample) == len(examples) else f"a sample of {len(sample):,}"
    if isinstance(sample[0], QuestionExample):
        return _lost_answers(task.preprocess(sample, rows), sample, rows)
    items = task.preprocess([without_label(example) for example in sample], rows)
    if isinstance(sample[0], TaggedExample):
        return _lost_words(items, sample, rows)
    texts, truncated_tokens, all_tokens = 0, 0, 0
    for item in items:  # one per example
        truncated = sum(row.num_truncated for row in item.sequences)
        texts += truncated > PART * (truncated + len(item))
        truncated_tokens, all_tokens = truncated_tokens + truncated, all_tokens + truncated + len(item)
    evidence = (
        f"{texts:,} of {total} texts lose more than a tenth at {rows.max_length} tokens; "
        f"{truncated_tokens / all_tokens:.1%} of all tokens are cut"
    )
    return _finding(evidence, texts / len(sample), CUT, CUT_ERROR)


def texts_of(examples: Sequence[Example]) -> list[str]:
    """The texts of at most `SAMPLE` examples."""
    texts = []
    for example in spaced(examples, SAMPLE):
        if isinstance(example, QuestionExample):
            texts += [example.question, example.context]
        elif isinstance(example, TextExample):
            texts += [example.text, example.text_pair or ""]
        else:
            texts.append(getattr(example, "text", ""))
    return texts


def _lost_words(items: Sequence[TaskInput], examples: Sequence[Example], rows: InputBuilder) -> DoctorFinding:
    read = {(item.example, word) for item in items for word in item.extra}
    tagged = [
        (index, word)
        for index, example in enumerate(examples)
        if isinstance(example, TaggedExample)
        for word, tag in enumerate(example.tags or ())
        if tag != "O"
    ]
    if not tagged:
        return skipped("labels truncated away", "no word has a tag other than O")
    lost = sum(word not in read for word in tagged)
    evidence = f"{lost:,} of {len(tagged):,} tagged words are lost; "
    evidence += f"texts of more than {rows.max_length} tokens are read in windows"
    return _finding(evidence, lost / len(tagged), LOST, LOST_ERROR)


def _lost_answers(items: Sequence[TaskInput], examples: Sequence[Example], rows: InputBuilder) -> DoctorFinding:
    answerable = {
        index for index, example in enumerate(examples) if isinstance(example, QuestionExample) and example.answers
    }
    if not answerable:
        return skipped("labels truncated away", "no question has an answer")
    lost = len(answerable - {item.example for item in items if item.target not in (None, (0, 0))})
    evidence = f"{lost:,} of {len(answerable):,} answers do not fit in any window of {rows.max_length} tokens"
    return _finding(evidence, lost / len(answerable), LOST, LOST_ERROR)


def _finding(evidence: str, share: float, warning: float, error: float) -> DoctorFinding:
    status: Status = "error" if share >= error else "warning" if share >= warning else "ok"
    remedy = (
        ""
        if status == "ok"
        else "increase the sequence length with --set training.max_length=N, up to the maximum of the model"
    )
    return DoctorFinding("labels truncated away", status, evidence, remedy)


def _is_lowercased(tokenizer: Tokenizer, words: Sequence[str]) -> list[bool]:
    cased, lowercased = _cased_and_lowercased(tokenizer, words)
    return [a == b for a, b in zip(cased, lowercased, strict=True)]


def _is_worse(tokenizer: Tokenizer, words: Sequence[str]) -> list[bool]:
    """Whether each word is unknown, or split into more pieces, only because it is capitalized."""
    unknown = tokenizer.unk_token_id
    cased, lowercased = _cased_and_lowercased(tokenizer, words)
    return [
        (unknown in a and unknown not in b) or (len(a) > len(b) and unknown not in b)
        for a, b in zip(cased, lowercased, strict=True)
    ]


def _cased_and_lowercased(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[list[list[int]], list[list[int]]]:
    # With a leading space, as in a text: in byte-level vocabularies it is part of the word.
    cased, _ = tokenizer.ids_batch([f" {word}" for word in words], add_special_tokens=False)
    lowercased, _ = tokenizer.ids_batch([f" {word.lower()}" for word in words], add_special_tokens=False)
    return cased, lowercased
