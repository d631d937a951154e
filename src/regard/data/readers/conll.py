"""Sentences with a tag for each word: CoNLL columns, JSON lines, or plain text whose words are found here.

Knows how the files look; `schemes` knows what the tags mean and `words` where words lie.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from regard.data.examples import Tagged
from regard.data.files import name_of
from regard.data.readers.read import Path, Read, example_list, read_lines
from regard.data.readers.records import (
    Record,
    is_parquet,
    json_lines,
    looks_like_json,
    parquet,
    string_at,
    strings_at,
)
from regard.data.readers.schemes import is_tag, scheme_of, strays, to_iob2
from regard.data.readers.words import words_of
from regard.errors import InputError

__all__ = ["read_tagged"]

_DOCUMENT = "-DOCSTART-"
_SAMPLE = 1000
_WORDS = ("words", "tokens")
_TAGS = ("tags", "ner_tags", "labels")

Sentence = tuple[int, list[str], list[str] | None]  # where it began, its words, their tags


def read_tagged(path: Path, *, labelled: bool | None = None) -> Read[Tagged]:
    """Tagged sentences, their tags in IOB2 whatever scheme the file has.

    CoNLL columns have the word first and the tag last; a blank line ends a sentence and -DOCSTART- lines are left out.
    A line of JSON has `words` (or `tokens`) and `tags` (or `ner_tags`), or a `text`. Unless `labelled`, a file without
    columns is plain text, one text a line. The text of a sentence is its words with one blank between them.
    """
    name = name_of(path)
    if is_parquet(path):
        return _from_records(parquet(path), name, "Parquet", "row", labelled)
    lines = read_lines(path)
    if looks_like_json(path, lines):
        return _from_records(json_lines(lines, name), name, "JSON lines", "line", labelled)
    if labelled or _has_columns(lines):
        sentences = list(_sentences(lines, name, tagged=labelled is not False))
        return _tagged(sentences, name, f"{_width(lines)} columns")
    texts = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    examples = [Tagged(line, words_of(line)) for _, line in texts]
    return Read(examples, name, "plain text, one text a line", {}, [number for number, _ in texts])


def _has_columns(lines: Sequence[str]) -> bool:
    """Whether most lines end with a tag after a word, or a document begins."""
    sample = list(islice((line for line in lines if line.strip()), _SAMPLE))
    tagged = sum(len(fields := _fields(line)) > 1 and is_tag(fields[-1]) for line in sample)
    return sample[0].startswith(_DOCUMENT) or 2 * tagged > len(sample)


def _fields(line: str) -> list[str]:
    fields = line.split("\t") if "\t" in line else line.split(" ")
    return [field for field in fields if field] if "" in fields else fields


def _width(lines: Sequence[str]) -> int:
    """How many columns most lines have."""
    rows = islice((line for line in lines if line.strip() and not line.startswith(_DOCUMENT)), _SAMPLE)
    return max((widths := Counter(len(_fields(line)) for line in rows)), key=widths.__getitem__, default=0)


def _sentences(lines: Sequence[str], name: str, *, tagged: bool) -> Iterator[Sentence]:
    width, words, tags, began = _width(lines), [], [], 0  # type: int, list[str], list[str], int
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith(_DOCUMENT):
            if words:
                yield began, words, tags if tagged else None
                words, tags = [], []
            continue
        fields = _fields(line.rstrip())
        if len(fields) != width or width < 2:
            raise InputError(
                f"{name} line {number}: expected {max(width, 2)} columns, the word first and its tag last, got "
                f"{len(fields)}: {line[:60]!r}; mend the line, and put a blank line between sentences"
            )
        if tagged and not is_tag(fields[-1]):
            raise InputError(
                f"{name} line {number}: expected a tag in the last column, such as O, B-PER or I-PER, "
                f"got {fields[-1][:40]!r}; mend the line"
            )
        began = began if words else number
        words.append(fields[0])
        tags.append(fields[-1])
    if words:
        yield began, words, tags if tagged else None


def _tagged(sentences: list[Sentence], name: str, how: str) -> Read[Tagged]:
    given = [tags for _, _, tags in sentences if tags is not None]
    scheme = scheme_of(given)
    examples = [_joined(words, None if tags is None else tuple(to_iob2(tags, scheme))) for _, words, tags in sentences]
    if given:
        mended = strays(given) if scheme == "IOB2" else 0
        note = f" ({mended} entities begin with I-, read as B-)" if mended else ""
        how = f"{scheme}{note}, {how}"
    return Read(example_list(examples, name), name, how, {}, [began for began, _, _ in sentences])


def _joined(words: Sequence[str], tags: tuple[str, ...] | None) -> Tagged:
    spans, start = [], 0
    for word in words:
        spans.append((start, start + len(word)))
        start += len(word) + 1
    return Tagged(" ".join(words), tuple(spans), tags)


def _from_records(
    records: Iterator[tuple[int, Record]], name: str, how: str, unit: str, labelled: bool | None
) -> Read[Tagged]:
    sentences: list[Sentence] = []
    plain: dict[int, Tagged] = {}
    for number, record in records:
        where = f"{name} {unit} {number}"
        key = next((key for key in _WORDS if key in record), None)
        if key is None and not labelled and "text" in record:
            text = string_at(record, "text", where)
            plain[len(sentences)] = Tagged(text, words_of(text))
            sentences.append((number, [], None))
            continue
        if key is None:
            raise InputError(f"{where}: expected words or tokens, got the keys {', '.join(record) or 'none'}; add them")
        words = strings_at(record, key, where)
        if not words or not all(word.strip() for word in words):
            raise InputError(f"{where}: {key!r} should hold words, got {'an empty one' if words else 'none'}")
        sentences.append((number, words, None if labelled is False else _tags(record, words, where, bool(labelled))))
    read = _tagged(sentences, name, how)
    examples = [plain.get(place, example) for place, example in enumerate(read.examples)]
    return Read(examples, name, read.how, {}, read.lines)


def _tags(record: Record, words: list[str], where: str, needed: bool) -> list[str] | None:
    key = next((key for key in _TAGS if key in record), None)
    if key is None:
        if needed:
            raise InputError(f"{where}: expected tags, got the keys {', '.join(record)}; give each word its tag")
        return None
    tags = strings_at(record, key, where)
    if len(tags) != len(words):
        raise InputError(f"{where}: {len(words)} words and {len(tags)} {key}; give each word one tag")
    wrong = next((tag for tag in tags if not is_tag(tag)), None)
    if wrong is not None:
        raise InputError(f"{where}: expected tags such as O, B-PER or I-PER, got {wrong!r}; mend it")
    return tags
