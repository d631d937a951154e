"""Texts and pairs from tables: format detection and error messages."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.examples import TextExample
from regard.data.readers import TableOptions, read_text_examples
from regard.data.readers.roles import TextTask
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
    ("name", "task", "count", "description"),
    [
        ("sst2/train.tsv", "classify", 6920, "tab-separated, no header, text = column 0, label = column 1"),
        ("sst2/dev.tsv", "classify", 872, "tab-separated, no header, text = column 0, label = column 1"),
        ("cola/train.tsv", "classify", 7250, "tab-separated, no header, text = column 3, label = column 1"),
        ("cola/val.tsv", "classify", 1301, "tab-separated, no header, text = column 3, label = column 1"),
        ("cola/dev.tsv", "classify", 1043, "tab-separated, no header, text = column 3, label = column 1"),
        ("rte/train.tsv", "pair", 2127, "tab-separated, header, text = sentence1, second = sentence2, label = label"),
        ("rte/val.tsv", "pair", 363, "tab-separated, no header, text = column 1, second = column 2, label = column 3"),
        ("rte/dev.tsv", "pair", 277, "tab-separated, header, text = sentence1, second = sentence2, label = label"),
        (
            "mrpc/train.tsv",
            "pair",
            3668,
            "tab-separated, quoted, header, text = sentence1, second = sentence2, label = label",
        ),
        (
            "mrpc/validation.tsv",
            "pair",
            408,
            "tab-separated, quoted, header, text = sentence1, second = sentence2, label = label",
        ),
        (
            "stsb/sts-train.csv",
            "regress",
            5749,
            "tab-separated, no header, text = column 5, second = column 6, label = column 4",
        ),
        (
            "stsb/sts-dev.csv",
            "regress",
            1500,
            "tab-separated, no header, text = column 5, second = column 6, label = column 4",
        ),
        ("sms-spam/SMSSpamCollection", "classify", 5574, "tab-separated, no header, text = column 1, label = column 0"),
        ("toxic/test.csv", "classify", 12180, "comma-separated, quoted, no header, text = column 0, label = column 1"),
    ],
)
def test_common_datasets_need_no_options(
    shared_data: Callable[[str], Path], name: str, task: TextTask, count: int, description: str
) -> None:
    for labeled in (True, None):
        read = read_text_examples(shared_data(name), task=task, labeled=labeled)
        assert (len(read.examples), read.description, read.dropped) == (count, description, {})
        assert len(read.lines) == count
        assert all(isinstance(example.label, float if task == "regress" else str) for example in read.examples)
    without = read_text_examples(shared_data(name), task=task, labeled=False)
    assert [(e.text, e.text_pair, None) for e in read.examples] == [
        (e.text, e.text_pair, e.label) for e in without.examples
    ]


def test_values_of_real_files(shared_data: Callable[[str], Path]) -> None:
    sms = read_text_examples(shared_data("sms-spam/SMSSpamCollection"), task="classify")
    assert Counter(example.label for example in sms.examples) == {"ham": 4827, "spam": 747}
    assert sms.examples[1] == TextExample("Ok lar... Joking wif u oni...", None, "ham")  # without the carriage return
    mrpc = read_text_examples(shared_data("mrpc/train.tsv"), task="pair")
    assert mrpc.examples[0].text == (
        'Amrozi accused his brother , whom he called " the witness " , of deliberately distorting his evidence .'
    )
    stsb = read_text_examples(shared_data("stsb/sts-train.csv"), task="regress")
    assert stsb.examples[0] == TextExample("A plane is taking off.", "An air plane is taking off.", 5.0)
    assert (
        sum(example.text_pair is not None and '"' in example.text_pair for example in stsb.examples) > 50
    )  # unchanged
    toxic = read_text_examples(shared_data("toxic/test.csv"), task="classify")
    assert Counter(example.label for example in toxic.examples) == {"0": 6090, "1": 6090}
    assert toxic.examples[2].text.startswith('"   *What do you need help with?')


GLUE = {
    "MNLI": (
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
        "sentence2_parse\tsentence1\tsentence2\tlabel1\tlabel2\tgold_label\n"
        "0\t63735\t63735n\tslate\t( a )\t( b )\t(ROOT a)\t(ROOT b)\tThe new rights are nice\tEveryone likes them\t"
        "neutral\tentailment\tneutral\n"
        "1\t91383\t91383c\ttravel\t( a )\t( b )\t(ROOT a)\t(ROOT b)\tThis site is far\tIt is near\tneutral\t"
        "contradiction\t-\n",
        [TextExample("The new rights are nice", "Everyone likes them", "neutral")],
    ),
    "QQP": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
        '133273\t213221\t213222\tHow is "it" done?\tHow?\t1\n4\t1\t2\tWhy?\tWhen?\t0\n',
        [TextExample('How is "it" done?', "How?", "1"), TextExample("Why?", "When?", "0")],
    ),
    "QNLI": (
        "index\tquestion\tsentence\tlabel\n0\tWhen did it end?\tIt ended in 1918.\tentailment\n",
        [TextExample("When did it end?", "It ended in 1918.", "entailment")],
    ),
    "STS-B": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
        "0\tmain\tMSR\t2012\t0001\tnone\tnone\tA plane.\tAn air plane.\t5.000\n",
        [TextExample("A plane.", "An air plane.", "5.000")],
    ),
}


@pytest.mark.parametrize("name", GLUE)
def test_pairs_by_glue_column_names(write: Write, name: str) -> None:
    content, expected = GLUE[name]
    read = read_text_examples(write(f"{name}.tsv", content), task="pair", labeled=True)
    assert read.examples == expected
    assert read.lines == [2, 3][: len(expected)]
    assert read.dropped == ({"gold_label is -: the annotators did not agree": 1} if name == "MNLI" else {})


def test_files_of_a_test_set_have_no_labels(write: Write) -> None:
    path = write("test.tsv", "index\tgenre\tsentence1\tsentence2\n0\ta\tOne two.\tThree.\n1\ta\tFour.\tFive.\n")
    assert [example.label for example in read_text_examples(path, task="pair").examples] == [None, None]
    rows = "".join(f"{number}\tOne two {number}.\tThree {number}.\n" for number in range(30))
    with pytest.raises(InputError, match=r"column of labels.*0 '0', .*2 'Three 0\.'.*--columns"):
        read_text_examples(write("rows.tsv", rows), task="pair", labeled=True)


def test_labels_are_not_invented_from_row_numbers(write: Write) -> None:
    path = write("test.tsv", "".join(f"{number}\ta text of some words {number}\n" for number in range(30)))
    assert {example.label for example in read_text_examples(path, task="classify").examples} == {None}


def test_plain_text_lines_may_contain_commas(write: Write) -> None:
    path = write("in.txt", 'one, "two"\n\nthree\n\n')
    with pytest.raises(InputError, match=r"in\.txt line 2 is blank; .*--missing skip"):
        read_text_examples(path, task="classify")
    read = read_text_examples(path, TableOptions(missing="skip"), task="classify")
    assert read.dropped == {"is blank": 1}
    assert read.examples == [TextExample('one, "two"'), TextExample("three")]
    assert (read.lines, read.description) == ([1, 3], "one text per line")


def test_standard_input_and_compression(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b'label,text\r\n1,good\r\n0,"bad, very"\r\n'
    expected = [TextExample("good", None, "1"), TextExample("bad, very", None, "0")]
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + content))
    assert read_text_examples(packed, task="classify").examples == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))  # type: ignore[arg-type]
    read = read_text_examples("-", task="classify", labeled=True)
    assert (read.examples, read.path) == (expected, "standard input")


def test_quotes_may_span_lines_and_errors_count_them(write: Write) -> None:
    read = read_text_examples(write("a.csv", 'text,label\n"one\ntwo",1\nthree,0\n'), task="classify")
    assert read.examples == [TextExample("one\ntwo", None, "1"), TextExample("three", None, "0")]
    assert read.lines == [2, 4]
    with pytest.raises(InputError, match=r"a\.csv line 4: expected column 1, .* 1 of 2 columns"):
        read_text_examples(write("a.csv", 'text,label\n"one\ntwo",1\nthree\n'), task="classify")
    with pytest.raises(InputError, match=r"a\.csv line 3: not a valid quoted row"):
        read_text_examples(write("a.csv", 'text,label\none,1\n"never closed,0\n'), task="classify")


def test_unquoted_comma_is_reported(write: Write) -> None:
    with pytest.raises(InputError, match=r"line 3: expected 2 columns, .* has 3; .*quote"):
        read_text_examples(write("a.csv", "text,label\ngood,1\nbad, very,0\n"), task="classify")


@pytest.mark.parametrize(
    ("rows", "quoted"),
    [
        ('a\t"say ""hi"""\nb\tplain\n', True),
        ('a\t"one\ttwo"\nb\tplain\n', True),
        ('a\t"one\ntwo"\nb\tplain\n', True),
        ('"a"\t"one"\n"b"\t"two"\n', True),
        ('a\t"quoted" start\nb\tplain\n', False),
        ('a\t"a title"\nb\tplain\nb\tplain\nb\tplain\n', False),
        ('a\t"say ""hi"""\nb\tstray " here\n', False),
    ],
)
def test_quotes_in_files_with_tabs(write: Write, rows: str, quoted: bool) -> None:
    path = write("a.tsv", rows)
    assert (
        ", quoted" in read_text_examples(path, TableOptions(columns=("1", "0")), task="classify").description
    ) is quoted
    for quoting in (True, False):
        if quoting <= quoted:  # well-formed quotes can be read either way
            description = read_text_examples(
                path, TableOptions(columns=("0",), quoting=quoting), task="classify"
            ).description
            assert (", quoted" in description) is quoting


def test_semicolons_and_a_given_delimiter(write: Write) -> None:
    path = write("a.csv", "text;label\ngood, yes;1\nbad, no;0\n")
    assert read_text_examples(path, task="classify").examples == [
        TextExample("good, yes", None, "1"),
        TextExample("bad, no", None, "0"),
    ]
    path = write("b.txt", "good|1\nbad|0\n")
    assert read_text_examples(path, TableOptions(delimiter="|"), task="classify").examples[1] == TextExample(
        "bad", None, "0"
    )
    with pytest.raises(InputError, match="one character"):
        read_text_examples(path, TableOptions(delimiter="||"), task="classify")


def test_columns_by_name_and_number(write: Write) -> None:
    path = write("a.tsv", "id\tx\ty\tz\n1\tsome text\tpos\tother\n2\tmore text\tneg\tother\n")
    expected = [TextExample("some text", None, "pos"), TextExample("more text", None, "neg")]
    assert read_text_examples(path, TableOptions(columns=("x", "y")), task="classify").examples == expected
    assert read_text_examples(path, TableOptions(columns=("1", "2")), task="classify").examples == expected
    assert read_text_examples(path, TableOptions(columns=("x",)), task="classify").examples == [
        TextExample("some text"),
        TextExample("more text"),
    ]
    assert read_text_examples(path, TableOptions(columns=("x", "z", "y")), task="pair").examples[0] == TextExample(
        "some text", "other", "pos"
    )
    with pytest.raises(InputError, match=r"no column 'zz'; did you mean 'z'\?.*or a number from 0 to 3"):
        read_text_examples(path, TableOptions(columns=("x", "zz")), task="classify")
    with pytest.raises(InputError, match="no column '7'"):
        read_text_examples(path, TableOptions(columns=("7",), header=False), task="classify")
    with pytest.raises(InputError, match="for pair should be text, second text, label; got x"):
        read_text_examples(path, TableOptions(columns=("x",)), task="pair")
    assert len(read_text_examples(path, TableOptions(columns=("1", "2"), header=False), task="classify").examples) == 3


def test_several_labels(write: Write) -> None:
    path = write("a.csv", "id,comment_text,toxic,insult\n1,you,1,1\n2,me,0,0\n3,they,0,1\n")
    named = ["comment_text", "toxic", "insult"]
    labels = [
        example.label for example in read_text_examples(path, TableOptions(columns=named), task="classify").examples
    ]
    assert labels == [("toxic", "insult"), (), ("insult",)]
    with pytest.raises(InputError, match=r"may be any of the columns 2, 3.*--columns"):
        read_text_examples(path, task="classify", labeled=True)
    with pytest.raises(InputError, match=r"b\.csv line 3: insult should be 0 or 1, got '2'"):
        read_text_examples(
            write("b.csv", "text,toxic,insult\nyou,1,1\nme,0,2\n"),
            TableOptions(columns=("text", *named[1:])),
            task="classify",
        )
    with pytest.raises(InputError, match="need a header"):
        read_text_examples(
            write("c.tsv", "you\t1\t1\nme\t0\t0\n"), TableOptions(columns=("0", "1", "2")), task="classify"
        )


def test_json_lines(write: Write) -> None:
    rows = [{"text": "one", "label": 1}, {"text": "two", "label": ["a", "b"]}, {"text": "three", "label": []}]
    path = write("a.jsonl", "\n".join(map(json.dumps, rows)) + "\n\n")
    read = read_text_examples(path, task="classify", labeled=True)
    assert [example.label for example in read.examples] == ["1", ("a", "b"), ()]
    assert read.description == "JSON lines, text = text, label = label"
    path = write("b", '{"text_a": "one", "text_b": "two"}\n')
    assert read_text_examples(path, task="pair").examples == [TextExample("one", "two")]
    path = write("c.json", '[\n{"text": "one", "label": null}]')
    assert read_text_examples(path, task="classify").examples == [TextExample("one")]
    path = write("d.jsonl", '{"text": "one", "score": 2}\n{"text": "two", "score": 0.5}\n')
    assert [example.label for example in read_text_examples(path, task="regress").examples] == [2.0, 0.5]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{'text': 1}", "line 2: not JSON"),
        ("[1]", "line 2: expected a JSON object, got a list"),
        ('{"text": 3, "label": "a"}', "line 2: text should be a text, got a number"),
        ('{"label": "a"}', r"line 2 has no text \(text\); .*--missing skip"),
        ('{"text": "\\ud800", "label": "a"}', "lone surrogate"),
        ('{"text": "a", "label": {"b": 1}}', "line 2: label should be a label, got an object"),
        ('{"text": "a", "label": " "}', r"line 2 has no label \(label\); .*--missing skip"),
    ],
)
def test_invalid_json_is_reported(write: Write, line: str, message: str) -> None:
    path = write("a.jsonl", '{"text": "one", "label": "x"}\n' + line + "\n")
    with pytest.raises(InputError, match=message):
        read_text_examples(path, task="classify", labeled=True)


def test_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"idx": [4, 5], "sentence": ["one", "two"], "label": [1, 0]}), path)
    read = read_text_examples(path, task="classify", labeled=True)
    assert read.examples == [TextExample("one", None, "1"), TextExample("two", None, "0")]
    assert read.description == "Parquet, text = sentence, label = label"
    path.write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match="not a Parquet file or is damaged"):
        read_text_examples(path, task="classify")


@pytest.mark.parametrize("value", ["high", "nan", "inf", ""])
def test_a_score_must_be_a_number(write: Write, value: str) -> None:
    path = write("a.tsv", f"sentence1\tsentence2\tscore\na\tb\t1.5\na\tb\t{value}\n")
    with pytest.raises(InputError, match=r"a\.tsv line 3(: score .*number| has no label \(score\))"):
        read_text_examples(path, task="regress", labeled=True)


MISSING = "text,label\ngood,pos\n,neg\nbad,\n  ,\nfine,nan\n,,\nwell,NaN\nok,<NA>\nlast,neg\n"


def test_rows_without_a_text_or_label(write: Write) -> None:
    path = write("a.csv", MISSING.replace(",,", ""))
    with pytest.raises(InputError, match=r"a\.csv line 5 is blank; .*--missing skip"):
        read_text_examples(path, task="classify", labeled=True)
    path = write("a.csv", MISSING)
    with pytest.raises(InputError, match=r"a\.csv line 5 is blank"):
        read_text_examples(path, task="classify", labeled=True)
    read = read_text_examples(path, TableOptions(missing="skip"), task="classify", labeled=True)
    assert read.examples == [TextExample("good", None, "pos"), TextExample("last", None, "neg")]
    assert read.lines == [2, 10]
    assert read.dropped == {"is blank": 2, "has no text (text)": 1, "has no label (label)": 4}
    assert read.text_columns == ("text",)
    unlabeled = read_text_examples(path, TableOptions(missing="skip"), task="classify")
    assert [example.label for example in unlabeled.examples] == ["pos", None, None, None, None, "neg"]
    with pytest.raises(InputError, match=r"has no examples: 1 has no label"):
        read_text_examples(
            write("b.csv", "text,label\ngood,\n"),
            TableOptions(columns=("text", "label"), missing="skip"),
            task="classify",
            labeled=True,
        )


def test_regression_accepts_one_or_two_texts(write: Write) -> None:
    one = write("one.tsv", "a film of great length\t4.5\nnot so good, this one\t1.0\n")
    assert read_text_examples(one, task="regress").examples[0] == TextExample("a film of great length", None, 4.5)
    whole = write("stars.tsv", "".join(f"a film of {n} stars and more\t{n % 5}\n" for n in range(40)))
    assert read_text_examples(whole, task="regress", labeled=True).examples[3].label == 3.0
    columns = ["0", "1"]
    two = write("two.tsv", "a b c\td e f\n")
    assert read_text_examples(two, TableOptions(columns=columns), task="regress", labeled=False).examples == [
        TextExample("a b c", "d e f")
    ]


def test_headers_with_unknown_names(write: Write) -> None:
    rows = "".join(f"this is tweet {number}, of many\t{'ab'[number % 2]}\n" for number in range(40))
    read = read_text_examples(write("a.tsv", "wording\tstance\n" + rows), task="classify", labeled=True)
    assert (len(read.examples), read.description) == (40, "tab-separated, header, text = wording, label = stance")
    assert len(read_text_examples(write("b.tsv", rows), task="classify").examples) == 40
    kaggle = "v1,v2,,,\n" + "".join(f"{'ham' if n % 3 else 'spam'},message number {n},,,\n" for n in range(30))
    assert read_text_examples(write("d.csv", kaggle), task="classify").description.endswith(
        "header, text = v2, label = v1"
    )
    # A one-word text that is also a known column name is not a header if its row has a number.
    assert len(read_text_examples(write("c.tsv", "text\t1\nother\t0\n"), task="classify").examples) == 2


def test_classify_does_not_choose_between_two_texts(write: Write) -> None:
    with pytest.raises(InputError, match=r"two texts, premise and hypothesis.*task for pairs"):
        read_text_examples(write("a.tsv", "premise\thypothesis\tlabel\na b\tc d\t1\n"), task="classify")
    rows = "".join(f"one text of words {n}\tother text of words {n}\t{n % 2}\n" for n in range(20))
    with pytest.raises(InputError, match=r"which columns hold the text; .* 0 'one text.*--columns"):
        read_text_examples(write("b.tsv", rows), task="classify")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n \r\n", "is empty"),
        (b"text\tlabel\n", "a header and no row"),
        (b"\x89PNG\r\n\x1a\n", "not UTF-8"),
        (b"text\tlabel\nab\0c\t1\n", "line 2: contains a zero byte"),
        (b"good\t1\nbad\n", r"line 2: expected column 1, but this row has 1 of 2 columns"),
        (b"good\t1\nbad\t\n", r"no column of labels|line 2: column 1 should be a label"),
    ],
)
def test_invalid_files_are_reported(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_text_examples(path, task="classify", labeled=True)


def test_an_empty_archive_and_an_unknown_task(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(b"")
    with pytest.raises(InputError, match=r"is empty, so not a \.gz file"):
        read_text_examples(path, task="classify")
    with pytest.raises(InputError, match="unknown task 'clasify'; did you mean 'classify'"):
        read_text_examples(path, task="clasify")  # type: ignore[arg-type]


_CELL = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(lambda text: text.strip())


@given(st.lists(st.tuples(_CELL, st.sampled_from(["pos", "neg"])), min_size=1))
def test_quoted_fields_round_trip(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]) -> None:
    import csv

    path = tmp_path_factory.mktemp("csv") / "a.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    assert read_text_examples(path, task="classify", labeled=True).examples == [
        TextExample(text, None, label) for text, label in rows
    ]
