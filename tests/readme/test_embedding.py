"""The commands and the Python of docs/embedding.md run in order with a tiny model."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import regard
from regard.cli.app import run
from regard.engine.precision import supports_int8

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "embedding.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    (regard (?:.*\\\n)*.*)$", PAGE, re.MULTILINE)


@pytest.mark.long
def test_the_commands_and_the_python_run(
    tmp_path: Path, tiny_bert_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pairs.tsv").write_text("".join(f"what is {n}\tthis is {n}\n" for n in range(20)), encoding="utf-8")
    Path("scored.tsv").write_text("".join(f"what is {n}\tthis is 3\t{n / 7}\n" for n in range(20)), encoding="utf-8")
    Path("texts.txt").write_text("a film\na day\n", encoding="utf-8")
    Path("reviews.csv").write_text("text\na good film\na dull day\n", encoding="utf-8")
    published = re.compile(r" (Qwen/|naver/|\./splade )")
    here = [command for command in COMMANDS if not published.search(command)]
    assert len(here) == 6 == len(COMMANDS) - 3
    for number, command in enumerate(here):
        words = shlex.split(command.replace("\\\n", " "), comments=True)[1:]
        if "int8" in words and not supports_int8():
            continue
        if words[0] == "train":
            words = [
                word.replace("384,192,96", "32,16,8").replace("regard-bert", str(tiny_bert_folder)) for word in words
            ]
            words += ["--set", "training.max_steps=2", "--model", str(tiny_bert_folder)] if number == 0 else []
            words[words.index("--output") + 1] += str(number) if number else ""
        assert run(words) == 0, capsys.readouterr().err
    assert Path("vectors.npy").is_file()
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        block = block.replace('output="my-embedder"', f'output="mine", model="{tiny_bert_folder}"')
        exec(compile(block.replace('Embedder("my-embedder")', 'Embedder("mine")'), "embedding.md", "exec"), {})
    assert regard.Embedder("mine").transform(["what is number 3"]).shape == (1, 32)
