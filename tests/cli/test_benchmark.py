"""`regard benchmark`: files, labels, the JSON document, the lectures' table and Ctrl-C."""

from __future__ import annotations

import json
import typing
from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from regard.cli.app import run
from regard.inference.benchmark import TASKS, published, read_items
from regard.verbs.benchmark import BenchmarkRequest
from regard.wording import count_of
from tests.inference.folders import tiny_gpt
from tests.inference.measure import run_benchmark

SIX = "Roof: the film\n1\nwas good.\nwas dull\nday\nthe day\nof it\n3\nday\nfilm\ngood the\ndull\n"
PIQA = '{"goal": "the day", "sol1": "good", "sol2": "the film"}\n' * 2
WINOGRANDE = '{"sentence": "the film and day: _ was", "option1": "film", "option2": "day", "answer": "1"}\n'
Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def gpt_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gpt(tmp_path_factory.mktemp("gpt"), positions=40)


@pytest.fixture
def call(gpt_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.chdir(tmp_path)
    contents = {
        "lambada.txt": "the film was good\n" + "the day of " * 9 + "film\n",
        "hellaswag.txt": SIX,
        "piqa.jsonl": PIQA,
        "labels.lst": "1\n0\n",
        "winogrande.jsonl": WINOGRANDE,
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content, encoding="utf-8")

    def regard_benchmark(*arguments: str, model: Path = gpt_folder) -> int:
        return run(["benchmark", *arguments, "--model", str(model)])

    return regard_benchmark


@pytest.mark.parametrize(
    ("task", "data", "labels", "n"),
    [
        ("lambada", "lambada.txt", None, 2),
        ("hellaswag", "hellaswag.txt", None, 2),
        ("piqa", "piqa.jsonl", "labels.lst", 2),
        ("winogrande", "winogrande.jsonl", None, 1),
    ],
)
def test_one_document(
    task: str, data: str, labels: str | None, n: int, call: Callable[..., int], gpt_folder: Path, capsys: Captured
) -> None:
    assert call(task, "--data", data, *(["--labels", labels] if labels else []), "--json") == 0
    out, error = capsys.readouterr()
    document = json.loads(out)
    expected = run_benchmark(*regard.load(gpt_folder), task, read_items(task, data, labels=labels))
    assert (document["task"], document["n"], document["model"]) == (task, n, str(gpt_folder))
    for key in ("accuracy", "accuracy_normalised", "perplexity", "chance", "cut"):
        value = getattr(expected, key)
        assert document[key] == (value if value is None else pytest.approx(value))
    assert (document["perplexity"] is None) == (task != "lambada")
    assert (document["accuracy_normalised"] is None) == (task in ("lambada", "winogrande"))
    assert f"scoring: {count_of(n, 'example')} in" in error
    assert ("1 of 2 examples are too long for this model" in error) == (task == "lambada")


def test_results_are_printed_beside_the_lectures_table(call: Callable[..., int], capsys: Captured) -> None:
    assert call("hellaswag", "--data", "hellaswag.txt", "--limit", "1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("hellaswag: 1 example, ")
    assert lines[1].startswith("accuracy")
    assert lines[2].startswith("normalised by bytes")
    assert lines[3].split() == ["chance", "25.00", "%"]
    assert "table" in lines[5]
    assert [line.split() for line in lines[6:]] == [[n, f"{x:g}"] for n, x in published("hellaswag").items()]
    assert call("lambada", "--data", "lambada.txt") == 0
    out = capsys.readouterr().out
    assert "perplexity of a word" in out
    assert "table (perplexity)" in out
    assert "GPT3-175B          3" in out
    assert "chance" not in out


def test_the_task_choices_equal_the_tasks_that_can_be_read() -> None:
    hints = typing.get_type_hints(BenchmarkRequest)
    assert set(typing.get_args(hints["task"])) == set(TASKS)


def test_ctrl_c(call: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("regard.inference.causal_lm.CausalScorer._score_batch", interrupted)
    assert call("lambada", "--data", "lambada.txt", "--json") == 130
    assert capsys.readouterr() == ("", "interrupted\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["piqa", "--data", "piqa.jsonl"], "piqa.jsonl line 1: no label"),
        (["piqa", "--data", "piqa.jsonl", "--labels", "lambada.txt"], "lambada.txt line 1: expected the number"),
        (["piqa", "--data", "winogrande.jsonl", "--labels", "labels.lst"], "winogrande.jsonl line 1: no key 'goal'"),
        (["hellaswag", "--data", "lambada.txt"], "lambada.txt line 2: expected the number of the correct ending"),
        (["hellaswag", "--data", "piqa.jsonl"], "no endings, got the keys goal, sol1, sol2; expected HellaSwag's"),
        (["lambada", "--data", "nothing.txt"], "there is no file nothing.txt"),
        (["lambada", "--data", "lambada.txt", "--limit", "0"], "limit is 0"),
        (["chess", "--data", "lambada.txt"], "chess"),
    ],
)
def test_invalid_input_is_a_one_line_error(
    arguments: list[str], message: str, call: Callable[..., int], capsys: Captured
) -> None:
    assert call(*arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert message in error
    assert error.count("\n") == 1
    assert "--columns" not in error  # an option of other verbs


def test_a_bert_is_rejected(call: Callable[..., int], tiny_bert_folder: Path, capsys: Captured) -> None:
    assert call("lambada", "--data", "lambada.txt", model=tiny_bert_folder) == 2
    assert "a benchmark needs a model that predicts the next token, and this is a BERT model" in capsys.readouterr().err
