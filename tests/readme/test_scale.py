"""The commands of docs/scale.md that need no cluster run in order; the recipe for Spark runs if it is installed."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet as pq
import pytest

import regard
from regard.cli.app import run

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    (?:\$ )?(regard (?:.*\\\n)*.*)$", PAGE, re.MULTILINE)
TEXTS = [f"the film was {'so ' * (number % 5)}long" for number in range(40)]


@pytest.mark.long
def test_the_commands_without_a_cluster_run(
    tmp_path: Path, tiny_bert_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts").mkdir()
    for name, part in (("a.txt", TEXTS[:25]), ("b.txt", TEXTS[25:])):
        Path("texts", name).write_text("\n".join(part))
    ran = 0
    for command in COMMANDS:
        words = shlex.split(command.replace("\\\n", " "), comments=True)[1:]
        if "ray" in words or any("://" in word for word in words):
            continue
        words += ["--model", str(tiny_bert_folder)] if words[0] == "embed" else []
        assert run(words) == 0, capsys.readouterr().err
        ran += 1
    assert ran >= 2
    assert pq.read_table("vectors").num_rows == 40


def test_the_figures_are_those_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The output that the page shows is what the command prints."""
    shown = re.findall(r"^    \$ (regard cost embed .*)\n((?:    .+\n)+)", PAGE, re.MULTILINE)
    assert len(shown) == 2
    for command, output in shown:
        assert run(shlex.split(command)[1:]) == 0
        lines = [line.removeprefix("    ") for line in output.splitlines()]
        assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pyspark is not installed")
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
def test_the_recipe_for_spark_runs(tmp_path: Path, tiny_bert_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(from collections.*?)```", PAGE, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    Path("texts").mkdir()
    pq.write_table(pyarrow.table({"id": list(range(40)), "text": TEXTS}), "texts/part.parquet")
    exec(compile(code.replace('"my-embedder"', repr(str(tiny_bert_folder))), "scale.md", "exec"), {})
    found = pq.read_table("vectors").sort_by("id")
    assert found["id"].to_pylist() == list(range(40))
    expected = regard.Embedder(tiny_bert_folder).transform(TEXTS)
    assert abs(expected - found["vector"].to_pylist()).max() < 1e-5
