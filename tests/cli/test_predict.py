"""`regard predict`: JSON lines, tables that join back to the input, interrupted runs, and a page that opens offline."""

from __future__ import annotations

import csv
import io
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pyarrow.parquet
import pytest
import torch

import regard
from regard.cli.app import run, verb_commands
from regard.render.bundle import is_built
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel, save_fine_tuned
from regard.tasks.text_classification import TextClassification
from tests.tasks.prediction.models import LINES, MESSY

Captured = pytest.CaptureFixture[str]
Call = Callable[..., int]


@pytest.fixture
def call(one_thread: None, tmp_path: Path, tiny_bert_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs `regard predict` in a folder with the fine-tuned model `model`."""
    monkeypatch.chdir(tmp_path)
    encoder, tokenizer = regard.load(tiny_bert_folder)
    task = TextClassification(["bad", "good"])
    torch.manual_seed(0)
    with_head = EncoderWithHead.from_encoder(encoder, task).eval()
    save_fine_tuned(FineTunedModel(task, with_head, tokenizer, 32), tmp_path / "model")
    return lambda *arguments: run(["predict", *map(str, arguments), "--device", "cpu"], registers=verb_commands())


def page_data(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="regard">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)
    assert found
    payload: dict[str, Any] = json.loads(found[1])
    return payload


def test_the_page_contains_the_printed_predictions(
    call: Call, tmp_path: Path, capsys: Captured, page_built: None
) -> None:
    lines = [f"the film is <b>so</b> long, number {number}\n" for number in range(53)]
    (tmp_path / "texts.txt").write_text("".join(lines), encoding="utf-8")
    assert call("model", "texts.txt", "--page", "page.html", "--evidence") == 0
    printed = capsys.readouterr()
    predictions = [json.loads(line) for line in printed.out.splitlines()]
    assert len(predictions) == 53
    payload = page_data(tmp_path / "page.html")
    assert [{**one["prediction"], "row": n, "line": n + 1} for n, one in enumerate(payload["predictions"])] == (
        predictions[:50]
    )
    assert len(payload["notes"]) == 1 and "50 of 53" in payload["notes"][0]
    assert payload["model"]["task"] == "classify"
    assert payload["cli"] == "regard predict --page page.html --evidence model texts.txt"
    assert all(one["evidence"] for one in payload["predictions"])
    assert "page.html: 50 of 53 examples" in printed.err
    assert "</b>" not in (tmp_path / "page.html").read_text("utf-8").split('id="regard"')[1].split("</script>")[0]


def test_the_page_of_piped_lines(
    call: Call, tmp_path: Path, capsys: Captured, page_built: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "good film"}\n{"text": "bad"}\n')))
    assert call("model", "-", "--page", "page.html") == 0
    predictions = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    payload = page_data(tmp_path / "page.html")
    assert [one["prediction"]["label"] for one in payload["predictions"]] == [one["label"] for one in predictions]
    assert [one["texts"] for one in payload["predictions"]] == [["good film"], ["bad"]]
    assert payload["notes"] == []


def test_invalid_output_is_rejected_before_any_work(call: Call, tmp_path: Path, capsys: Captured) -> None:
    assert call("model", "the film", "--page", "page.pdf") == 2
    assert "expected a name that ends in .html" in capsys.readouterr().err
    if is_built():
        assert call("model", "the film", "--page", "nowhere/page.html") == 2
        printed = capsys.readouterr()
        assert "there is no folder" in printed.err
        assert printed.out == ""


def test_the_error_for_a_missing_build_names_the_command(
    call: Call, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    from regard.render import bundle

    monkeypatch.setattr(bundle, "is_built", lambda static=None: False)
    assert call("model", "the film", "--page", "page.html") != 0
    printed = capsys.readouterr()
    assert "python web/build.py" in printed.err
    assert printed.out == ""


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_predictions_join_back_to_a_messy_file(call: Call, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "messy.csv").write_bytes(MESSY)
    assert call("model", "messy.csv") == 0
    captured = capsys.readouterr()
    printed = [json.loads(line) for line in captured.out.splitlines()]
    assert [one["row"] for one in printed] == [0, 1, 2, 3, 4]
    assert [one["line"] for one in printed] == LINES
    assert "messy.csv: semicolon-separated" in captured.err
    assert "text = review; 5 rows" in captured.err
    assert call("model", "messy.csv", "--output", "out.csv", "--keep", "id,date") == 0
    assert capsys.readouterr().out == "out.csv: 5 rows\n"
    rows = read_csv(tmp_path / "out.csv")
    assert list(rows[0]) == ["row", "line", "id", "date", "label", "probability", "p_bad", "p_good"]
    assert [row["id"] for row in rows] == ["7", "8", "9", "", "7"]
    for row, one in zip(rows, printed, strict=True):
        assert row["label"] == (one["label"] or "")
        if one["label"]:
            assert float(row["p_good"]) == pytest.approx(one["probabilities"]["good"], rel=1e-4)
            assert float(row["probability"]) == max(float(row["p_good"]), float(row["p_bad"]))
        else:
            assert row["p_good"] == row["probability"] == ""
    table = pandas.read_csv(tmp_path / "messy.csv", sep=";", skip_blank_lines=False)
    joined = table.join(pandas.read_csv(tmp_path / "out.csv").set_index("row")["label"])
    assert list(joined["review"].notna()) == list(joined["label"].notna())


def test_all_formats_have_the_same_rows(call: Call, tmp_path: Path) -> None:
    (tmp_path / "messy.csv").write_bytes(MESSY)
    for suffix in ("csv", "jsonl", "parquet"):
        assert call("model", "messy.csv", "--output", f"out.{suffix}", "--keep", "all") == 0
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert table.column_names == list(lines[0])
    assert table.to_pylist() == lines
    assert lines[0]["review"] == 'a fine; "good" film'
    assert lines[2]["review"] == "so\nlong \N{GRINNING FACE}"
    for row, line in zip(read_csv(tmp_path / "out.csv"), lines, strict=True):
        assert row == {name: "" if value is None else str(value) for name, value in line.items()}


def test_a_finished_output_is_not_repeated(call: Call, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "in.txt").write_text("a film\nbad\n", encoding="utf-8")
    assert call("model", "in.txt", "--output", "out.jsonl") == 0
    written = (tmp_path / "out.jsonl").stat().st_mtime_ns
    assert call("model", "in.txt", "--output", "out.jsonl") == 0
    assert "out.jsonl is finished and intact: nothing was predicted" in capsys.readouterr().err
    assert (tmp_path / "out.jsonl").stat().st_mtime_ns == written
    assert not (tmp_path / "out.jsonl.partial").exists()
    assert call("model", "in.txt", "--output", "out.jsonl", "--restart", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["rows"], document["output"], "predictions" in document) == (2, "out.jsonl", False)


# Prints a line when it has written a shard, so that the test can send a signal while it works.
TELLING = """
import sys, time
from regard.cli.app import run
from regard.inference.bulk.shards import ShardFolder

finish = ShardFolder.finish

def telling(self, number):
    finish(self, number)
    print(number, flush=True)
    if number == 40:  # however late the signal comes, the job has not ended
        time.sleep(200)

ShardFolder.finish = telling
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("number", "code", "message"),
    [
        (signal.SIGKILL, -9, ""),
        (signal.SIGINT, 130, "the finished part is kept in out.csv.partial: the same command continues\ninterrupted\n"),
    ],
    ids=["SIGKILL", "SIGINT"],
)
@pytest.mark.usefixtures("default_sigint")
def test_an_interrupted_run_continues(
    number: signal.Signals, code: int, message: str, call: Call, tmp_path: Path, capsys: Captured
) -> None:
    texts = [f"the film was {'so ' * (n % 9)}long, {n}" for n in range(600)]
    (tmp_path / "in.txt").write_text("\n".join(texts), encoding="utf-8")
    arguments = ["predict", "model", "in.txt", "--output", "out.csv", "--shard-size", "10"]
    process = subprocess.Popen(
        [sys.executable, "-c", TELLING, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for shard in range(4):
        assert process.stdout.readline() == f"{shard}\n"
    process.send_signal(number)
    _, error = process.communicate(timeout=200)
    assert process.returncode == code
    assert error.endswith(message)
    assert not (tmp_path / "out.csv").exists()
    finished = len(list((tmp_path / "out.csv.partial").glob("[0-9]*.npz")))
    assert 4 <= finished <= 41
    assert call("model", "in.txt", "--output", "out.csv", "--shard-size", "10", "--json") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["resumed"] == 10 * finished
    assert f"continuing behind {10 * finished:,} of 600 rows" in captured.err
    assert call("model", "in.txt", "--output", "undisturbed.csv") == 0
    continued, undisturbed = read_csv(tmp_path / "out.csv"), read_csv(tmp_path / "undisturbed.csv")
    assert [row["row"] for row in continued] == [str(n) for n in range(600)]
    assert [row["label"] for row in continued] == [row["label"] for row in undisturbed]
    assert not (tmp_path / "out.csv.partial").exists()


def test_another_job_does_not_continue_unfinished_work(call: Call, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "in.csv").write_text("id,text\n1,a film\n2,bad\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.inference.prediction.WritePredictions.__call__", lambda *_: 1 // 0)
        assert call("model", "in.csv", "--output", "out.csv") == 1
    assert (tmp_path / "out.csv.partial").is_dir()
    assert call("model", "in.csv", "--output", "out.csv", "--keep", "id") == 2
    assert "another unfinished bulk job: the input changed" in capsys.readouterr().err
    assert call("model", "in.csv", "--output", "out.csv", "--keep", "id", "--restart") == 0
    assert [row["id"] for row in read_csv(tmp_path / "out.csv")] == ["1", "2"]


def test_standard_input_to_a_file(
    call: Call, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a film\n\nbad\n")))
    assert call("model", "-", "--output", "out.csv") == 0
    assert "standard input is read once" in capsys.readouterr().err
    assert [row["label"] != "" for row in read_csv(tmp_path / "out.csv")] == [True, False, True]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.csv"], "absent.csv: no such file"),
        (["folder/absent"], "folder/absent: no such file"),
        (["a film", "--output", "out.xls"], "is none; "),
        (["a film", "--output", "absent/out.csv"], "there is no folder absent"),
        (["a film", "--keep", "id"], "has no column 'id'"),
        (["first", "second"], "reads one text"),
    ],
)
def test_invalid_arguments(arguments: list[str], message: str, call: Call, tmp_path: Path, capsys: Captured) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    assert call("model", *arguments) == 2
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_page_is_quick_unless_evidence_is_asked_for(
    call: Call, tmp_path: Path, page_built: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("regard.interpret.attribution.predictions.gather_evidence", pytest.fail)
        assert call("model", "the film is long", "--page", "page.html") == 0
    assert page_data(tmp_path / "page.html")["predictions"][0]["evidence"] == []
    (tmp_path / "in.txt").write_text("a film\n\nbad\n", encoding="utf-8")
    assert call("model", "in.txt", "--output", "out.csv", "--page", "page.html", "--evidence") == 0
    shown = page_data(tmp_path / "page.html")["predictions"]
    assert [one["texts"] for one in shown] == [["a film"], ["bad"]]
    assert all(one["evidence"] for one in shown)
