"""Multiple choice: six lines per example, HellaSwag's JSON and SWAG's CSV."""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.data.examples import ChoiceExample
from regard.data.readers import TableOptions, read_choice_examples
from regard.errors import InputError

SWAG = (
    ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
    '0,anet_1,3416,"Members walk, slowly. They",Members walk, slowly.,They,gold,sit.,"run, fast.",fly.,swim.,1\n'
)


def test_hellaswag_as_text(shared_data: Callable[[str], Path]) -> None:
    read = read_choice_examples(shared_data("hellaswag/hellaswag_val_full.txt.bz2"), labeled=True)
    assert (len(read.examples), read.description) == (10042, "six lines per example, 4 endings")
    assert read.examples[0] == ChoiceExample(
        "Roof shingle removal: A man is sitting on a roof. he",
        (
            "is using wrap to wrap a pair of skis.",
            "is ripping level tiles off.",
            "is holding a rubik's cube.",
            "starts pulling up roofing on a roof.",
        ),
        3,
    )
    assert (read.lines[0], read.lines[-1]) == (1, 60247)
    assert set(Counter(example.label for example in read.examples)) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text\n4\na\nb\nc\nd\n", r"a\.txt line 2: expected the number of the correct ending, 0 to 3, got '4'"),
        ("text\n0\na\nb\nc\nd\ntext\nx\na\nb\nc\nd\n", r"a\.txt line 8: .*got 'x'"),
        ("text\n0\na\nb\nc\nd\ntext\n1\na\n\n\n", r"a\.txt line 9: the file ends inside an example"),
        ("text\n\na\nb\nc\nd\n", r"a\.txt line 2: .*got 'nothing'"),
        ("", "is empty"),
    ],
)
def test_invalid_text_is_reported(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_choice_examples(path)


def test_hellaswag_as_json(tmp_path: Path) -> None:
    row = {"ind": 4, "activity_label": "Roof", "ctx_a": "A man", "ctx": "A man. he", "endings": ["a", "b", "c"]}
    path = tmp_path / "a.jsonl"
    rows = [{**row, "label": 2}, {**row, "label": "1"}, {**row, "label": ""}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    read = read_choice_examples(path)
    assert [example.label for example in read.examples] == [2, 1, None]
    assert read.examples[0] == ChoiceExample("A man. he", ("a", "b", "c"), 2)
    assert read.description == "JSON lines, text = ctx, 3 endings"
    assert {example.label for example in read_choice_examples(path, labeled=False).examples} == {None}
    with pytest.raises(InputError, match=r"a\.jsonl line 3: no label"):
        read_choice_examples(path, labeled=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": 3}, r"0 to 2, got 3"),
        ({"label": -1}, r"0 to 2, got -1"),
        ({"label": True}, r"0 to 2, got True"),
        ({"endings": ["a"]}, "at least two endings"),
        ({"endings": None}, "'endings' should be a list of strings, got null"),
        ({"ctx": None}, "'ctx' should be a string, got null"),
    ],
)
def test_invalid_json_is_reported(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"ctx": "A man", "endings": ["a", "b", "c"], "label": 0, **change}), encoding="utf-8")
    with pytest.raises(InputError, match=r"a\.jsonl line 1: .*" + message):
        read_choice_examples(path)


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"sent1,sent2,ending0,ending1,label\nA man.,He,sits.,runs.,1\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))  # type: ignore[arg-type]
    assert read_choice_examples("-").examples == [ChoiceExample("A man. He", ("sits.", "runs."), 1)]


def test_swag(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(SWAG.replace("Members walk, slowly.,They", '"Members walk, slowly.",They'), encoding="utf-8")
    expected = [ChoiceExample("Members walk, slowly. They", ("sit.", "run, fast.", "fly.", "swim."), 1)]
    read = read_choice_examples(path, labeled=True)
    assert (read.examples, read.lines, read.description) == (
        expected,
        [2],
        "SWAG table, text = sent1 + sent2, 4 endings",
    )
    path.write_text(SWAG, encoding="utf-8")
    with pytest.raises(InputError, match=r"a\.csv line 2: expected 12 columns, got 13"):
        read_choice_examples(path)
    path.write_text("text,label\na,1\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"line 1: .*header with sent1.*got text, label"):
        read_choice_examples(path)
    row = {"startphrase": "They", "ending0": "a", "ending1": "b", "label": 0}
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    assert read_choice_examples(path).examples == [ChoiceExample("They", ("a", "b"), 0)]


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        (
            "a.jsonl",
            '{"goal": "Sit", "sol1": "down.", "sol2": "up.", "y": 0, "sent1": "x", "sent2": "y"}',
            "goal,sol1,sol2,y",
        ),
        ("a.jsonl", '{"goal": "Sit", "sols": ["down.", "up."], "y": 0, "ctx": "x"}', "goal,sols,y"),
        ("a.csv", "sol1,goal,sol2,y\ndown.,Sit,up.,0\n", "goal,sol1,sol2,y"),
        ("a.tsv", "down.\tSit\tup.\t0\n", "1,0,2,3"),
    ],
)
def test_missing_columns_are_reported(tmp_path: Path, name: str, content: str, columns: str) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    named = columns.split(",")
    read = read_choice_examples(path, TableOptions(columns=named), labeled=True)
    assert read.examples == [ChoiceExample("Sit", ("down.", "up."), 0)]
    assert f"text = {named[0]}, 2 endings" in read.description
    assert read_choice_examples(path, TableOptions(columns=named[:-1]), labeled=False).examples == [
        ChoiceExample("Sit", ("down.", "up."))
    ]


def test_invalid_columns_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"goal": "Sit", "sols": ["down.", "up."], "y": 0}', encoding="utf-8")
    with pytest.raises(InputError, match=r"text, endings .*, label; got goal, sols"):
        read_choice_examples(path, TableOptions(columns=("goal", "sols")), labeled=True)
    with pytest.raises(InputError, match="no 'gaol', which --columns names; did you mean 'goal'"):
        read_choice_examples(path, TableOptions(columns=("gaol", "sols", "y")), labeled=True)
    with pytest.raises(InputError, match=r"line 1: no endings, .* goal, sols, y; name the text"):
        read_choice_examples(path, labeled=True)
    path = tmp_path / "six.txt"
    path.write_text("Sit\n0\na\nb\nc\nd\n", encoding="utf-8")
    with pytest.raises(InputError, match="six lines per example has no columns"):
        read_choice_examples(path, TableOptions(columns=("0", "1")))


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("sent1,sent2,ending0,ending0,label\na,b,c,d,0\n", encoding="utf-8")
    with pytest.raises(InputError, match="two columns named 'ending0'; rename one"):
        read_choice_examples(path)
