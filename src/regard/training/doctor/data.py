"""Checks of the examples, with the tokenizer or the image size that is used; no model is run."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import islice
from typing import Any

from regard.data.examples import (
    ChoiceExample,
    Example,
    ImageExample,
    QuestionExample,
    TaggedExample,
    TextExample,
    example_key,
    is_labeled,
    leakage_key,
    normalize_text,
    without_label,
)
from regard.data.image_processor import ImageProcessor
from regard.data.readers import ExampleSet
from regard.tasks.inputs import InputBuilder
from regard.tasks.task import Task, TaskInput
from regard.tasks.token_classification import TokenClassification
from regard.text import Tokenizer
from regard.training.doctor.findings import SIZES, DoctorFinding, Status, skipped

LEAK, LEAK_ERROR = 0.01, 0.1  # share of the evaluation texts: 1% can change a score by a point, 10% make it useless
RARE = 0.1  # relative to the share of a class if all were equally frequent: 5% of two classes
NOISE = 0.01  # share of the examples: a few equal texts with different labels are normal in annotated data
APART = 0.5  # numbers of equal texts are different if they are this many standard deviations apart


def leakage(train: ExampleSet[Any], data: ExampleSet[Any]) -> DoctorFinding:
    """How many evaluation texts are in the training data, ignoring case and whitespace."""
    check = "train/dev leakage"
    known = {leakage_key(example) for example in train.examples}
    shared = [index for index, example in enumerate(data.examples) if leakage_key(example) in known]
    share = len(shared) / len(data.examples)
    first = data.examples[0]
    what = (
        "contexts" if isinstance(first, QuestionExample) else "images" if isinstance(first, ImageExample) else "texts"
    )
    evidence = f"{len(shared):,} of {len(data.examples):,} {what} ({share:.1%}) are in {train.path} too"
    if share < LEAK:
        return DoctorFinding(check, "ok", evidence)
    evidence += f", such as {shortened(_text(data.examples[shared[0]]))} on {data.location(shared[0])}"
    remedy = f"remove them from one of the files; --split keeps equal {what} in the same part"
    return DoctorFinding(check, "error" if share >= LEAK_ERROR else "warning", evidence, remedy)


def class_imbalance(read: ExampleSet[Any]) -> DoctorFinding:
    """Whether a class is so rare that a model can ignore it and still score well."""
    check = "class imbalance"
    examples = [example for example in read.examples if is_labeled(example)]
    counts = Counter(name for example in examples for name in classes(example))
    if not counts:
        return skipped(check, "there are no classes, only numbers or no labels")
    several = any(isinstance(example, TextExample) and isinstance(example.label, tuple) for example in examples)
    if len(counts) == 1 and not several:
        name, count = next(iter(counts.items()))
        # A single type of entity, or an answer to every question, is normal.
        normal = not isinstance(examples[0], TextExample | ImageExample)
        remedy = "" if normal else "add examples of another class"
        return DoctorFinding(check, "ok" if normal else "warning", f"all {count:,} labels are {name!r}", remedy)
    total = len(examples) if several else counts.total()
    rarest, count = min(counts.items(), key=lambda entry: entry[1])
    most, highest = max(counts.items(), key=lambda entry: entry[1])
    evidence = (
        f"the rarest of {len(counts)} classes is {rarest!r} with {count:,} of {total:,} ({count / total:.1%}), "
        f"the most frequent {most!r} with {highest / total:.1%}"
    )
    if count / total >= RARE / (2 if several else len(counts)):
        return DoctorFinding(check, "ok", evidence)
    remedy = "evaluate with F1 or MCC instead of accuracy; collect more examples of that class, or leave it out"
    return DoctorFinding(check, "warning", evidence, remedy)


def label_noise(read: ExampleSet[Any]) -> DoctorFinding:
    """How many examples have a duplicate with another label: no model can predict both correctly."""
    check = "label noise by duplicates"
    indices: dict[Hashable, list[int]] = {}
    for index, example in enumerate(read.examples):
        # A question may have several correct answers.
        if is_labeled(example) and not isinstance(example, QuestionExample):
            indices.setdefault(example_key(example), []).append(index)
    if not indices:
        return skipped(check, "equal texts may have several correct answers, or there are no labels")
    labels = [_label(example) for example in read.examples]
    numbers = [label for label in labels if isinstance(label, float)]
    apart = APART * statistics.pstdev(numbers) if numbers else 0.0
    unequal = [group for group in indices.values() if _differ([labels[index] for index in group], apart)]
    count, total = sum(map(len, unequal)), len(read.examples)
    evidence = f"{count:,} of {total:,} examples ({count / total:.1%}) have a duplicate with another label"
    if count < NOISE * total:
        return DoctorFinding(check, "ok", evidence)
    first = unequal[0]
    other = next(index for index in first if _differ([labels[first[0]], labels[index]], apart))
    evidence += f", such as {shortened(_text(read.examples[first[0]]))} on {read.location(first[0])} and "
    evidence += read.location(other)
    return DoctorFinding(check, "warning", evidence, "inspect them, then keep one label for each or remove them")


def classes(example: Example) -> tuple[str, ...]:
    """The classes of an example, for counting."""
    if isinstance(example, TaggedExample):
        return tuple(tag[2:] for tag in example.tags or () if tag.startswith("B-"))
    if isinstance(example, QuestionExample):
        return ("an answer" if example.answerable else "no answer",)
    label = example.label
    if label is None or isinstance(label, float):
        return ()
    return label if isinstance(label, tuple) else (str(label),)


def shortened(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 60 else text[:57] + "...")


def spaced(examples: Sequence[Example], count: int) -> list[Example]:
    """At most `count` evenly spaced examples, because files are often sorted by label or length."""
    if len(examples) <= count:
        return list(examples)
    return [examples[index * len(examples) // count] for index in range(count)]


def _label(example: Example) -> Hashable:
    if isinstance(example, TaggedExample):
        return example.tags
    if isinstance(example, ChoiceExample):  # the endings may be in another order
        return None if example.label is None else normalize_text(example.endings[example.label])
    if isinstance(example, QuestionExample):
        return None
    return frozenset(example.label) if isinstance(example.label, tuple) else example.label


def _differ(labels: Sequence[Hashable], apart: float) -> bool:
    numbers = [label for label in labels if isinstance(label, float)]
    if len(numbers) == len(labels):
        return max(numbers) - min(numbers) > apart
    return len(set(labels)) > 1


def _text(example: Example) -> str:
    if isinstance(example, QuestionExample):
        return example.context
    return example.text if isinstance(example, TextExample | ChoiceExample | TaggedExample) else example.name


FEW = 20  # examples; with fewer, columns cannot be told apart
MANY = 0.5  # share of the examples: a column with more different values holds ids or texts, not classes
SAME = 0.1  # share of the examples: a column with fewer different values holds labels, not texts
HALF = 0.5  # share of texts that are numbers, or equal to their second text
SHORT = 3  # characters: the median length of suspicious texts
REMEDY = "name the columns with --columns, the text first and the label last"


def wrong_columns(reads: Sequence[ExampleSet[Any]], *, labels: Sequence[str] = ()) -> DoctorFinding:
    """The first sign of a wrong column in the files; `labels` are those of a fine-tuned model."""
    check = "wrong columns"
    for read in reads:
        for status, sign in _signs(read.examples, labels):
            return DoctorFinding(check, status, f"{read.path}: {sign} ({read.description})", REMEDY)
    if not any(isinstance(example, TextExample | TaggedExample) for read in reads for example in read.examples):
        return skipped(check, "the format of these files names the fields")
    return DoctorFinding(check, "ok", "; ".join(f"{read.path}: {read.description}" for read in reads))


def _signs(examples: Sequence[Any], labels: Sequence[str]) -> Iterator[tuple[Any, str]]:
    yield from (("error", sign) for sign in _unknown(examples, labels))
    texts = [example for example in examples if isinstance(example, TextExample)]
    if len(texts) < FEW:
        return
    yield from (("error", sign) for sign in (*_labels(texts), *_texts(texts)))
    middle = statistics.median(len(example.text.strip()) for example in texts)
    if middle <= SHORT:
        yield "warning", f"half of the texts have at most {middle:g} characters, such as {shortened(texts[0].text)}"


def _unknown(examples: Sequence[Any], labels: Sequence[str]) -> Iterator[str]:
    if not labels:
        return
    known = {label[2:] if isinstance(examples[0], TaggedExample) else label for label in labels}
    unknown = sorted({name for example in examples for name in classes(example)} - known)
    if unknown:
        names = ", ".join(map(shortened, unknown[:3])) + (f" and {len(unknown) - 3:,} more" if len(unknown) > 3 else "")
        expected = ", ".join(map(repr, labels[:5])) + (" and more" if len(labels) > 5 else "")
        yield f"the model was fine-tuned for the labels {expected}, and the file has {names}"


def _labels(texts: Sequence[TextExample]) -> Iterator[str]:
    different = {name for example in texts for name in classes(example)}
    if len(different) > MANY * len(texts):
        label = shortened(min(different))
        yield f"{len(different):,} different labels in {len(texts):,} examples look like ids or texts, such as {label}"
    numbers = {example.label for example in texts if isinstance(example.label, float)}
    whole = all(number.is_integer() for number in numbers)
    if numbers and whole and len(numbers) == len(texts) and max(numbers) - min(numbers) < 2 * len(texts):
        yield f"all {len(texts):,} labels are different whole numbers, from {min(numbers):g} to {max(numbers):g}: ids"


def _texts(texts: Sequence[TextExample]) -> Iterator[str]:
    for name, column in (
        ("", [example.text for example in texts]),
        ("second ", [example.text_pair or "" for example in texts]),
    ):
        bare = [text for text in column if text.strip() and not any(map(str.isalpha, text))]
        if len(bare) > HALF * len(texts):
            yield f"{len(bare):,} of {len(texts):,} {name}texts have no letter, such as {shortened(bare[0])}"
    different = len({example_key(example) for example in texts})
    if different < SAME * len(texts):
        yield f"only {different:,} of {len(texts):,} texts are different, such as {shortened(texts[0].text)}"
    equal = sum(example.text == example.text_pair for example in texts)
    if equal > HALF * len(texts):
        yield f"in {equal:,} of {len(texts):,} pairs both texts are the same"


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
        cased, lowercased = _cased_and_lowercased(tokenizer, capitals[:WORDS])
        folded = sum(a == b for a, b in zip(cased, lowercased, strict=True))
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
    if isinstance(task, TokenClassification):
        return _lost_words({(item.example, word) for item in items for word in task.words_of(item)}, sample, rows)
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


def _lost_words(read: set[tuple[int, int]], examples: Sequence[Example], rows: InputBuilder) -> DoctorFinding:
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


STRETCHED = 1.1  # change of the aspect ratio; less is not visible
MANY_STRETCHED = 0.1  # share of the images
SMALL, MOST = 2.0, 0.5  # enlargement of a side, and share of the images; enlarging adds no information


def wrong_sizes(reads: Sequence[ExampleSet[Any]], processor: ImageProcessor) -> DoctorFinding:
    """How many images are stretched, or enlarged to more than twice their size."""
    height, width = processor.image_size
    for read in reads:
        shapes = [image.pixels.shape[:2] for image in read.examples]
        resized = sum(shape != (height, width) for shape in shapes)
        stretched = sum(_stretch(shape, processor.image_size) > STRETCHED for shape in shapes)
        small = sum(max(height / high, width / wide) > SMALL for high, wide in shapes)
        evidence = f"{read.path}: {resized:,} of {len(shapes):,} images are resized to {height} x {width}"
        if stretched >= MANY_STRETCHED * len(shapes) and stretched:
            remedy = "crop or pad the images to one shape"
            return DoctorFinding(
                SIZES, "warning", f"{evidence}, {stretched:,} of them stretched by more than a tenth", remedy
            )
        if small >= MOST * len(shapes) and small:
            remedy = "train with a smaller image size, or use larger images"
            return DoctorFinding(
                SIZES, "warning", f"{evidence}, {small:,} of them to more than twice their size", remedy
            )
    return DoctorFinding(SIZES, "ok", evidence)


def _stretch(shape: tuple[int, int], target: tuple[int, int]) -> float:
    """The factor by which the aspect ratio changes."""
    return math.exp(abs(math.log(shape[0] / shape[1] * target[1] / target[0])))
