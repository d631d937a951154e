"""Reads sentences with a tag for each word (CoNLL columns, JSON lines), and splits plain text into words."""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import Literal

from regard.data.examples import TaggedExample
from regard.data.files import STANDARD_INPUT, content_suffix, display_name, open_text
from regard.data.readers.records import (
    ExampleSet,
    MissingValue,
    Path,
    Record,
    Records,
    json_object,
    keep_missing,
    open_records,
    string_at,
    strings_at,
)
from regard.data.readers.tables import INFERRED, Missing, TableOptions, column_at
from regard.errors import InputError, check_choice
from regard.wording import is_count

# The shape of a text has one symbol for each character: a for letters and combining marks (which \w would split), 0 for
# digits, a space, the marks that may join words, # for other marks, and c for endings such as 's.
_SHAPE = re.compile(
    r"""
    (?<![a0_.])(?:a\.){2,}(?![a0_])       # U.S. with its last period
    | [a0_]+ (?: [.&@'-][a0_]+ | (?<=0)[,:/](?=0)[a0_]+ )*
    | c+
    | (?P<mark>[^\sa0_])(?P=mark)*       # a run of one mark: ... or --
    """,
    re.VERBOSE,
)
_ENDING = re.compile(r"(?:n['\u2019]t|['\u2019](?:s|re|ve|ll|d|m))(?!\w)", re.IGNORECASE)  # John's, didn't
_RUN = re.compile(r"(.)\1*", re.DOTALL)


def split_words(text: str) -> tuple[tuple[int, int], ...]:
    """Return the words and punctuation marks of a text as [start, end) in characters; only whitespace is left out."""
    shape = list(map(_symbol, text))
    for ending in _ENDING.finditer(text):
        shape[ending.start() : ending.end()] = "c" * len(ending[0])
    spans = []
    for match in _SHAPE.finditer("".join(shape)):
        start, end = match.span()
        if match["mark"] == "#":  # different marks have the same symbol
            spans += [(start + run.start(), start + run.end()) for run in _RUN.finditer(text[start:end])]
        else:
            spans.append((start, end))
    return tuple(spans)


@lru_cache(maxsize=4096)
def _symbol(character: str) -> str:
    if character.isspace():
        return " "
    if character in "'\u2019":
        return "'"
    if character in ".&@-,:/_":
        return character
    category = unicodedata.category(character)
    if category[0] == "N":
        return "0"
    return "#" if category[0] in "PS" else "a"


Scheme = Literal["IOB1", "IOB2", "BIOES"]
SCHEMES: tuple[Scheme, ...] = ("IOB1", "IOB2", "BIOES")
_TAG = re.compile(r"O|[BIESLU]-\S.*")
_BEGINS = "BSU"
_ENDS = "ESLU"


@lru_cache(maxsize=1024)
def is_tag(tag: str) -> bool:
    """Return whether a tag is O or a prefix and a type, such as B-PER."""
    return _TAG.fullmatch(tag) is not None


def detect_scheme(sentences: Iterable[Sequence[str]]) -> Scheme:
    """Return the scheme that most tags fit, IOB2 if that is undecided. CoNLL-2003's IOB1 has a few unneeded B-."""
    i_starts, b_starts = 0, 0  # entities that start with I- and with B-, and follow no entity of the same type
    for tags in sentences:
        before = "O"
        for tag in tags:
            if tag[0] in _ENDS:
                return "BIOES"
            starts = tag[2:] != before[2:]
            i_starts += tag[0] == "I" and starts
            b_starts += tag[0] == "B" and starts
            before = tag
    return "IOB1" if i_starts > b_starts else "IOB2"


def strays(sentences: Iterable[Sequence[str]]) -> int:
    """Count the entities that start with I-, which is invalid in IOB2."""
    pairs = (pair for tags in sentences for pair in zip(("O", *tags), tags, strict=False))
    return sum(tag[0] == "I" and tag[2:] != before[2:] for before, tag in pairs)


def to_iob2(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """Convert tags to IOB2. An I- after O or after another type starts an entity."""
    check_choice("scheme", scheme, SCHEMES)
    converted: list[str] = []
    open_type = ""  # type of the entity that the next word may continue
    for tag in tags:
        prefix, entity_type = tag[0], tag[2:]
        if prefix == "O":
            converted.append("O")
        else:
            begins = prefix in _BEGINS or entity_type != open_type
            converted.append(f"{'B' if begins else 'I'}-{entity_type}")
        open_type = "" if scheme == "BIOES" and prefix in _ENDS else entity_type
    return converted


_DOCUMENT = "-DOCSTART-"
MARK = "\ufeff"  # byte-order mark
_SAMPLE = 1000
_WORDS = ("words", "tokens")
_TAGS = ("tags", "ner_tags", "labels")
Sentence = tuple[int, list[str], list[str] | None]  # number of its first line, words, tags


def read_tagged_examples(
    path: Path, options: TableOptions = INFERRED, *, labeled: bool | None = None
) -> ExampleSet[TaggedExample]:
    """Read tagged sentences; tags are converted to IOB2.

    CoNLL columns have the word first and the tag last; a blank line ends a sentence, and -DOCSTART- lines are skipped.
    A line of JSON has `words` (or `tokens`) and `tags` (or `ner_tags`), or a `text`. Unless `labeled` is True, a file
    without columns is plain text, one text per line. The text of a sentence is its words joined by spaces. The columns
    are those of the word and of the tag, numbers from 0 or JSON keys; if `labeled` is False, the tag is optional.
    `missing` "skip" leaves out records of JSON and Parquet without words or tags and counts them.
    """
    if not replace(options, columns=None).infers_format:
        raise InputError(
            "tag reads columns separated by blanks or tabs, without header and quotes; leave out --header, "
            "--delimiter and --quoted"
        )
    name, columns = display_name(path), options.columns
    if columns is not None and len(columns) not in ((1, 2) if labeled is False else (2,)):
        raise InputError(f"--columns for tag should be word, tag, such as 0,3; got {', '.join(columns)}")
    records, lines = open_records(path, encoding=options.encoding)
    if records is not None:
        return _from_records(records, labeled, columns, options.missing)
    lines = [line.removeprefix(MARK) for line in lines]  # one after the first line, where files were joined
    if labeled or columns is not None or _has_columns(lines):
        width = _width(lines)
        word, tag = _column_indices(columns, width, name)
        sentences = list(_sentences(lines, name, tagged=labeled is not False, word=word, tag=tag))
        roles = "" if columns is None else f", word = column {word}" + f", tag = column {tag}" * (labeled is not False)
        return _example_set(sentences, name, f"{width} columns{roles}")
    texts = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    examples = [TaggedExample(line, split_words(line)) for _, line in texts]
    return ExampleSet(examples, name, "plain text, one text per line", {}, [number for number, _ in texts])


def holds_tagged_words(path: Path) -> bool:
    """Return whether a file has CoNLL's columns, or JSON lines with words; other files have texts."""
    if os.fspath(path) == STANDARD_INPUT or content_suffix(path) in (".parquet", ".pq"):
        return False
    with open_text(path) as lines:
        sample = [line for line in islice(lines, _SAMPLE) if line.removeprefix(MARK).strip()]
    record = json_object(sample[0].strip()) if sample else None
    if record is not None:
        return "text" not in record and any(key in record for key in _WORDS)
    return bool(sample) and _has_columns(sample)


def _column_indices(columns: Sequence[str] | None, width: int, name: str) -> tuple[int, int]:
    """Return the columns of the word and of the tag (default: the last)."""
    if columns is None:
        return 0, width - 1
    for column in columns:
        if not is_count(column) or int(column) >= width:
            raise InputError(f"{name}: no column {column!r}; expected a number from 0 to {width - 1}")
    return int(columns[0]), int(columns[1]) if len(columns) > 1 else width - 1


def _has_columns(lines: Sequence[str]) -> bool:
    """Return whether most lines end with a tag after a word, or the first line is -DOCSTART-."""
    sample = list(islice((line for line in lines if line.strip()), _SAMPLE))
    tagged = sum(len(fields := _fields(line)) > 1 and is_tag(fields[-1]) for line in sample)
    return sample[0].startswith(_DOCUMENT) or 2 * tagged > len(sample)


def _fields(line: str) -> list[str]:
    fields = line.split("\t") if "\t" in line else line.split(" ")
    return [field for field in fields if field] if "" in fields else fields


def _width(lines: Sequence[str]) -> int:
    """Return the number of columns that most lines have."""
    rows = islice((line for line in lines if line.strip() and not line.startswith(_DOCUMENT)), _SAMPLE)
    return max((widths := Counter(len(_fields(line)) for line in rows)), key=widths.__getitem__, default=0)


def _sentences(lines: Sequence[str], name: str, *, tagged: bool, word: int, tag: int) -> Iterator[Sentence]:
    width, words, tags, start = _width(lines), [], [], 0  # type: int, list[str], list[str], int
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith(_DOCUMENT):
            if words:
                yield start, words, tags if tagged else None
                words, tags = [], []
            continue
        fields = _fields(line.rstrip())
        if len(fields) != width or width < 2:
            raise InputError(
                f"{name} line {number}: expected {max(width, 2)} columns, the word in column {word} and its tag in "
                f"column {max(tag, 1)}, got {len(fields)}: {line[:60]!r}; fix the line, and put a blank line between "
                "sentences"
            )
        if tagged and not is_tag(fields[tag]):
            raise InputError(
                f"{name} line {number}: expected a tag in column {tag}, such as O, B-PER or I-PER, got "
                f"{fields[tag][:40]!r}; fix the line, or name the columns of word and tag with --columns"
            )
        start = start if words else number
        words.append(fields[word])
        tags.append(fields[tag])
    if words:
        yield start, words, tags if tagged else None


def _example_set(sentences: list[Sentence], name: str, description: str) -> ExampleSet[TaggedExample]:
    all_tags = [tags for _, _, tags in sentences if tags is not None]
    scheme = detect_scheme(all_tags)
    examples = [_join(words, None if tags is None else tuple(to_iob2(tags, scheme))) for _, words, tags in sentences]
    if all_tags:
        converted = strays(all_tags) if scheme == "IOB2" else 0
        note = f" ({converted} entities begin with I-, read as B-)" if converted else ""
        description = f"{scheme}{note}, {description}"
    return ExampleSet(examples, name, description, {}, [start for start, _, _ in sentences])


def _join(words: Sequence[str], tags: tuple[str, ...] | None) -> TaggedExample:
    spans, start = [], 0
    for word in words:
        spans.append((start, start + len(word)))
        start += len(word) + 1
    return TaggedExample(" ".join(words), tuple(spans), tags)


def _from_records(
    records: Records, labeled: bool | None, columns: Sequence[str] | None, missing: Missing | None
) -> ExampleSet[TaggedExample]:
    sentences: list[Sentence] = []
    untagged: dict[int, TaggedExample] = {}  # by index
    dropped: Counter[str] = Counter()
    for number, record in records.numbered:
        where = f"{records.name} {records.unit} {number}"
        if columns is not None:
            record = {
                key: column_at(record, column, where) for key, column in zip(("words", "tags"), columns, strict=False)
            }
        key = next((key for key in _WORDS if key in record), None)
        if key is None and not labeled and "text" in record:
            text = string_at(record, "text", where)
            untagged[len(sentences)] = TaggedExample(text, split_words(text))
            sentences.append((number, [], None))
            continue
        if key is None:
            raise InputError(f"{where}: expected words or tokens, got the keys {', '.join(record) or 'none'}; add them")
        try:
            words = strings_at(record, key, where)
            if not words or not all(word.strip() for word in words):
                raise InputError(f"{where}: {key!r} should hold words, got {'an empty one' if words else 'none'}")
            tags = None if labeled is False else _tags(record, words, where, bool(labeled))
        except MissingValue as error:
            keep_missing(missing, error, dropped)
            continue
        sentences.append((number, words, tags))
    tagged = _example_set(sentences, records.name, records.description)
    examples = [untagged.get(index, example) for index, example in enumerate(tagged.examples)]
    return replace(tagged, examples=examples, dropped=dict(dropped), unit=records.unit)


def _tags(record: Record, words: list[str], where: str, needed: bool) -> list[str] | None:
    key = next((key for key in _TAGS if key in record), None)
    if key is None:
        if needed:
            raise MissingValue(f"{where}: expected tags, got the keys {', '.join(record)}; give each word its tag")
        return None
    tags = strings_at(record, key, where)
    if len(tags) != len(words):
        raise InputError(f"{where}: {len(words)} words and {len(tags)} {key}; give each word one tag")
    wrong = next((tag for tag in tags if not is_tag(tag)), None)
    if wrong is not None:
        raise InputError(f"{where}: expected tags such as O, B-PER or I-PER, got {wrong!r}; fix it")
    return tags
