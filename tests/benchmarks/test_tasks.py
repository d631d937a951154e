"""The task benchmarks: model selection and reported data are separate, and the table shows the saved figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import tasks, timing

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """SST-2 and SMS spam in their file layouts, 100 rows each, and an unreadable dev file."""
    texts = [f"{one} {two}" for one in WORDS for two in WORDS]
    (tmp_path / "sst2").mkdir()
    rows = "".join(f"{text} film\t{number % 2}\n" for number, text in enumerate(texts))
    (tmp_path / "sst2" / "train.tsv").write_text(rows)
    (tmp_path / "sst2" / "dev.tsv").write_text("not a row\n")
    (tmp_path / "sms-spam").mkdir()
    rows = "".join(f"{'spam' if number % 4 == 0 else 'ham'}\t{text} call\n" for number, text in enumerate(texts))
    (tmp_path / "sms-spam" / "SMSSpamCollection").write_text(rows)
    return tmp_path


def test_settings_are_chosen_on_a_tenth_of_the_training_data(folder: Path) -> None:
    train, tenth = tasks.read_data(tasks.BENCHMARKS["sst2"], folder, tuning=True)
    assert (len(train.examples), len(tenth.examples)) == (90, 10)
    assert not {one.text for one in train.examples} & {one.text for one in tenth.examples}


def test_a_single_file_is_evaluated_on_a_tenth_unused_for_selection(folder: Path) -> None:
    benchmark = tasks.BENCHMARKS["sms"]
    chosen = [{one.text for one in part.examples} for part in tasks.read_data(benchmark, folder, tuning=True)]
    train, test = ({one.text for one in part.examples} for part in tasks.read_data(benchmark, folder, tuning=False))
    assert chosen[0] | chosen[1] == train and len(test) == 10
    assert not train & test


def test_the_table_has_every_saved_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "RESULTS", tmp_path)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "mnist.json").write_text(json.dumps({"minutes": 12.3, "test": {"accuracy": 98.76}}))
    for name, score in (("sst2", "accuracy"), ("conll", "f1")):
        document = {"model": "regard-bert", "mean": {score: 81.26}, "deviation": {score: 0.54}}
        (tmp_path / "tasks" / f"{name}-regard-bert.json").write_text(json.dumps(document))
    (tmp_path / "tasks" / "student-other.json").write_text(json.dumps({"model": "other", "kept": 96.54}))
    lines = tasks.results_table().splitlines()
    assert "| data | metric | regard-bert | other | target |" in lines
    assert "| SST-2 dev | accuracy | 81.3 ± 0.5 |  | 87 |" in lines
    assert "| CoNLL-2003 dev | f1 | 81.3 ± 0.5 |  | 88 |" in lines
    assert "| SST-2 dev, 3 layers distilled | % of the teacher's accuracy |  | 96.5 | 97 |" in lines
    assert "| MNIST test, 12 minutes on 2 cores | accuracy | 98.8 | 98.5 |" in lines
    assert any(line.startswith("SQuAD v1.1 dev: trained on three other files") for line in lines)


def test_a_student_is_compared_with_its_teacher(
    folder: Path, tiny_bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(tasks, "LAYERS", 1)
    (folder / "sst2" / "dev.tsv").write_text("one film\t1\ntwo film\t0\nsix film\t1\nten film\t0\n")
    tasks.main(
        ["student", "--model", str(tiny_bert_folder), "--model-name", "tiny", "--data", str(folder), "--seeds", "1"]
    )
    found = json.loads((tmp_path / "results" / "tasks" / "student-tiny.json").read_text())
    assert found["layers"] == 1 and len(found["teacher"]) == len(found["student"]) == 1
    assert found["kept"] == pytest.approx(100 * found["student"][0] / found["teacher"][0])
