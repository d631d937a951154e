"""Token classification: CoNLL columns, tagging schemes, JSON lines, and words of plain text."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.examples import TaggedExample
from regard.data.readers import TableOptions, detect_scheme, read_tagged_examples, split_words, to_iob2
from regard.data.readers.conll import holds_tagged_words
from regard.errors import InputError

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(name: str, content: str) -> Path:
        path = tmp_path / name
        path.write_text(content, encoding="utf-8", newline="")
        return path

    return make


@pytest.mark.parametrize(
    ("name", "count", "entities"),
    # The organizers of the shared task published the number of entities of each type.
    [
        ("conll2003/eng.train", 14041, {"LOC": 7140, "MISC": 3438, "ORG": 6321, "PER": 6600}),
        ("conll2003/eng.testa", 3250, {"LOC": 1837, "MISC": 922, "ORG": 1341, "PER": 1842}),
    ],
)
def test_conll_2003(shared_data: Callable[[str], Path], name: str, count: int, entities: dict[str, int]) -> None:
    started = time.process_time()
    read = read_tagged_examples(shared_data(name), labeled=True)
    assert time.process_time() - started < 4  # about 1 second on one core; the bound detects quadratic time only
    assert (len(read.examples), read.description, read.dropped) == (count, "IOB1, 4 columns", {})
    begun = Counter(tag[2:] for example in read.examples for tag in example.tags or () if tag.startswith("B-"))
    assert begun == entities
    without = read_tagged_examples(shared_data(name), labeled=False).examples
    assert [(e.text, e.words, None) for e in read.examples] == [(e.text, e.words, e.tags) for e in without]


def test_sentence_and_its_line_number(write: Write) -> None:
    content = "-DOCSTART- -X- O O\r\n\r\nEU NNP I-NP I-ORG\r\nrejects VBZ I-VP O\r\n\r\n\r\nPeter NNP I-NP I-PER\r\n"
    for path in (write("a.conll", content), write("b.txt", content.replace(" ", "\t"))):
        read = read_tagged_examples(path)
        assert read.examples == [
            TaggedExample("EU rejects", ((0, 2), (3, 10)), ("B-ORG", "O")),
            TaggedExample("Peter", ((0, 5),), ("B-PER",)),
        ]
        assert (read.lines, read.description) == ([3, 7], "IOB1, 4 columns")


@pytest.mark.parametrize(
    ("scheme", "tags"),
    [
        ("IOB1", "I-PER I-PER B-PER O I-LOC I-ORG I-ORG"),
        ("IOB2", "B-PER I-PER B-PER O B-LOC B-ORG I-ORG"),
        ("BIOES", "B-PER E-PER S-PER O S-LOC B-ORG E-ORG"),
        ("BIOES", "B-PER L-PER U-PER O U-LOC B-ORG L-ORG"),
    ],
)
def test_schemes_are_equivalent(write: Write, scheme: str, tags: str) -> None:
    expected = ["B-PER", "I-PER", "B-PER", "O", "B-LOC", "B-ORG", "I-ORG"]
    assert detect_scheme([tags.split()]) == scheme
    assert to_iob2(tags.split(), scheme) == expected  # type: ignore[arg-type]
    read = read_tagged_examples(write("a", "".join(f"word {tag}\n" for tag in tags.split())))
    assert (read.examples[0].tags, read.description) == (tuple(expected), f"{scheme}, 2 columns")


def test_an_entity_that_begins_with_i_is_counted(write: Write) -> None:
    read = read_tagged_examples(write("a", "a B-PER\nb O\nc I-PER\n\nd B-LOC\n"))
    assert read.examples[0].tags == ("B-PER", "O", "B-PER")
    assert read.description == "IOB2 (1 entities begin with I-, read as B-), 2 columns"
    assert to_iob2(["B-PER", "E-PER", "E-PER", "I-LOC"], "BIOES") == ["B-PER", "I-PER", "B-PER", "B-LOC"]
    with pytest.raises(InputError, match="unknown scheme 'IOB3'"):
        to_iob2(["O"], "IOB3")  # type: ignore[arg-type]


_SPANS = st.lists(st.tuples(st.sampled_from(["PER", "LOC", ""]), st.integers(1, 3)), max_size=8)


@given(_SPANS)
def test_any_entities_survive_every_scheme(spans: list[tuple[str, int]]) -> None:
    two: list[str] = []
    one: list[str] = []
    ends: list[str] = []
    before = ""
    for kind, length in spans:
        if not kind:
            for tags in (two, one, ends):
                tags.extend(["O"] * length)
        else:
            two += [f"B-{kind}", *[f"I-{kind}"] * (length - 1)]
            one += [f"{'B' if before == kind else 'I'}-{kind}", *[f"I-{kind}"] * (length - 1)]
            inner = [f"I-{kind}"] * (length - 2)
            ends += [f"S-{kind}"] if length == 1 else [f"B-{kind}", *inner, f"E-{kind}"]
        before = kind
    assert to_iob2(two, "IOB2") == to_iob2(one, "IOB1") == to_iob2(ends, "BIOES") == two


def test_json_lines(write: Write) -> None:
    rows = [
        {"words": ["New", "York"], "tags": ["I-LOC", "I-LOC"]},
        {"tokens": ["a"], "ner_tags": ["O"]},
    ]
    path = write("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    read = read_tagged_examples(path, labeled=True)
    assert read.examples == [
        TaggedExample("New York", ((0, 3), (4, 8)), ("B-LOC", "I-LOC")),
        TaggedExample("a", ((0, 1),), ("O",)),
    ]
    assert read.description == "IOB1, JSON lines"
    plain = read_tagged_examples(write("b.jsonl", '{"text": "In Rome."}\n{"words": ["Oslo"]}\n'))
    assert plain.examples == [TaggedExample("In Rome.", ((0, 2), (3, 7), (7, 8))), TaggedExample("Oslo", ((0, 4),))]
    with pytest.raises(InputError, match="line 1: expected words or tokens, got the keys text"):
        read_tagged_examples(write("b.jsonl", '{"text": "In Rome."}\n'), labeled=True)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"words": ["a", "b"], "tags": ["O"]}, "line 2: 2 words and 1 tags"),
        ({"words": ["a"], "tags": [3]}, "line 2: 'tags' should hold strings, got a number: 3"),
        ({"words": ["a"], "tags": ["PER"]}, "line 2: expected tags such as O, B-PER or I-PER, got 'PER'"),
        ({"words": []}, "line 2: 'words' should hold words, got none"),
        ({"words": ["a", " "]}, "line 2: 'words' should hold words, got an empty one"),
        ({"words": "a b"}, "line 2: 'words' should be a list of strings, got a string"),
        ({"words": ["a"]}, "line 2: expected tags, got the keys words"),
    ],
)
def test_invalid_json_is_reported(write: Write, row: dict[str, object], message: str) -> None:
    path = write("a.jsonl", '{"words": ["a"], "tags": ["O"]}\n' + json.dumps(row) + "\n")
    with pytest.raises(InputError, match=message):
        read_tagged_examples(path, labeled=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "EU NNP O\nrejects O\nGerman JJ O\n",
            r"line 2: expected 3 columns, the word in column 0 and its tag in column 2, got 2: 'rejects O'",
        ),
        ("EU O\nrejects\nGerman O\n", r"line 2: expected 2 columns.*got 1: 'rejects'"),
        ("EU O\nrejects VBZ\nGerman O\n", r"line 2: expected a tag in column 1.*got 'VBZ'"),
        ("a text that is no table\n", r"line 1: expected a tag"),
        ("word\n\nword\n", r"line 1: expected 2 columns"),
        ("-DOCSTART- -X- O O\n\n", "has no examples"),
        ("\n\n", "is empty"),
    ],
)
def test_invalid_columns_are_reported(write: Write, content: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_tagged_examples(write("a.conll", content), labeled=True)


def test_plain_text(write: Write) -> None:
    for labeled in (None, False):
        read = read_tagged_examples(write("a.txt", "Rome, then Oslo.\n\nParis\n"), labeled=labeled)
        assert read.examples == [
            TaggedExample("Rome, then Oslo.", ((0, 4), (4, 5), (6, 10), (11, 15), (15, 16))),
            TaggedExample("Paris", ((0, 5),)),
        ]
        assert (read.lines, read.description) == ([1, 3], "plain text, one text per line")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("U.S", "U.S"),
        ("The U.S. and AT&T, 1996-08-22.", "The|U.S.|and|AT&T|,|1996-08-22|."),
        ("12.5% of $1,000 at 10:30", "12.5|%|of|$|1,000|at|10:30"),
        ("John's O'Brien didn't, we'll", "John|'s|O'Brien|did|n't|,|we|'ll"),
        ("the U.S.'s John\u2019s", "the|U.S.|'s|John|\u2019s"),
        ('"Yes"--(no) ... and/or!?', '"|Yes|"|--|(|no|)|...|and|/|or|!|?'),
        (
            "e\u0301te\u0301 \u0939\u093f\u0928\u094d\u0926\u0940 a_b",
            "e\u0301te\u0301|\u0939\u093f\u0928\u094d\u0926\u0940|a_b",
        ),
        ("a@b.com\u2028x\u00a0y", "a@b.com|x|y"),
        ("", ""),
    ],
)
def test_words_of_a_text(text: str, words: str) -> None:
    assert [text[start:end] for start, end in split_words(text)] == [word for word in words.split("|") if word]


@given(st.text() | st.text(alphabet="aA0s'n t.,:-&\u2019/_#\n\u0301"))
def test_words_cover_everything_except_spaces(text: str) -> None:
    covered = 0
    for start, end in split_words(text):
        assert covered <= start < end
        assert not text[covered:start].strip()
        assert not any(letter.isspace() for letter in text[start:end])
        covered = end
    assert not text[covered:].strip()


def test_words_equal_those_of_conll(shared_data: Callable[[str], Path]) -> None:
    examples = read_tagged_examples(shared_data("conll2003/eng.testa")).examples
    same = sum(split_words(example.text) == example.words for example in examples)
    assert same / len(examples) > 0.85


def test_columns_option_selects_word_and_tag(write: Write, shared_data: Callable[[str], Path]) -> None:
    path = write("a.conll", "1 EU B-ORG NNP\n2 rejects O VBZ\n")
    read = read_tagged_examples(path, TableOptions(columns=("1", "2")), labeled=True)
    assert read.examples == [TaggedExample("EU rejects", ((0, 2), (3, 10)), ("B-ORG", "O"))]
    assert read.description == "IOB2, 4 columns, word = column 1, tag = column 2"
    assert read_tagged_examples(path, TableOptions(columns=("1",)), labeled=False).examples == [
        TaggedExample("EU rejects", ((0, 2), (3, 10)))
    ]
    chunks = read_tagged_examples(shared_data("conll2003/eng.testa"), TableOptions(columns=("0", "2")), labeled=True)
    assert chunks.examples[0].text == "CRICKET - LEICESTERSHIRE TAKE OVER AT TOP AFTER INNINGS VICTORY ."
    assert chunks.examples[0].tags is not None and chunks.examples[0].tags[0] == "B-NP"


def test_columns_option_selects_json_keys(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"tokens": ["no"], "w": ["EU"], "t": ["B-ORG"]}\n', encoding="utf-8")
    assert read_tagged_examples(path, TableOptions(columns=("w", "t")), labeled=True).examples == [
        TaggedExample("EU", ((0, 2),), ("B-ORG",))
    ]
    with pytest.raises(InputError, match=r"line 1: no 'x', which --columns names"):
        read_tagged_examples(path, TableOptions(columns=("w", "x")), labeled=True)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("0",), r"--columns for tag should be word, tag, such as 0,3; got 0"),
        (("0", "4"), r"no column '4'; expected a number from 0 to 1"),
        (("word", "tag"), r"no column 'word'; expected a number from 0 to 1"),
        (("1", "0"), r"line 1: expected a tag in column 0.*got 'EU'; fix the line"),
    ],
)
def test_columns_without_tags(write: Write, columns: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_tagged_examples(write("a.conll", "EU B-ORG\n"), TableOptions(columns=columns), labeled=True)


def test_a_line_with_only_a_byte_order_mark_is_blank(tmp_path: Path) -> None:
    """As between files that were joined; the mark is not part of a word either."""
    path = tmp_path / "a.conll"
    mark = "\ufeff"
    path.write_text(f"{mark}\nPeter B-PER\nlives O\n{mark}\nAnna B-PER\n{mark}\n\n{mark}Paul B-PER\n", encoding="utf-8")
    read = read_tagged_examples(path, labeled=True)
    assert [example.text for example in read.examples] == ["Peter lives", "Anna", "Paul"]
    assert holds_tagged_words(path)
