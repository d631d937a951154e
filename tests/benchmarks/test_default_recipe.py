"""The benchmark of default settings: what is held out, the order of the runs, and the summary of their scores."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import default_recipe
from benchmarks.default_recipe import NAMES, RECIPES, Job, examples, jobs, settings_for, summarize, unpack
from benchmarks.tasks import BENCHMARKS


def test_every_recipe_and_task_has_its_first_seed_before_the_second() -> None:
    planned = jobs("tune", NAMES, ["tuned", *RECIPES], 2)
    seeds = [job.seed for job in planned]
    assert seeds == sorted(seeds) and len({*planned}) == len(planned)
    for recipe in ("tuned", *RECIPES):
        for name in NAMES:
            assert Job("tune", name, tuple(settings_for(name, recipe).items()), 1) in planned


def test_the_settings_of_a_task_take_precedence() -> None:
    assert settings_for("stsb", "adamw-2e-4")["num_epochs"] == 5
    assert settings_for("squad", "adamw-2e-4")["num_epochs"] == 2
    assert settings_for("sst2", "adamw-2e-4")["num_epochs"] == 3


def test_a_tenth_of_the_documents_is_held_out(tmp_path: Path) -> None:
    (tmp_path / "squad").mkdir()
    benchmark = BENCHMARKS["squad"]
    for number, file in enumerate((*benchmark.train, benchmark.dev)):
        documents = [{"title": "", "paragraphs": [_paragraph(number, i, j) for j in range(3)]} for i in range(10)]
        (tmp_path / file).write_bytes(gzip.compress(json.dumps({"version": "1.1", "data": documents}).encode()))
    train, tenth = examples("tune", "squad", 0, tmp_path, 0)
    assert (len(train), len(tenth)) == (81, 9)
    held_out = {example.id.rsplit("-", 1)[0] for example in tenth}
    assert len(held_out) == 3 and not held_out & {example.id.rsplit("-", 1)[0] for example in train}
    assert {one.id for one in examples("tune", "squad", 1, tmp_path, 0)[1]} != {one.id for one in tenth}


def _paragraph(file: int, document: int, number: int) -> dict[str, Any]:
    name = f"{file}-{document}-{number}"
    answers = [{"text": "long", "answer_start": 12}]
    return {
        "context": f"the day was long in {name}",
        "qas": [{"id": name, "question": "how was the day?", "answers": answers}],
    }


def test_packed_data_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {name for one in BENCHMARKS.values() for name in (*one.train, one.dev) if name}:
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_text(f"{name}\n")
    monkeypatch.setattr(default_recipe, "DATA", tmp_path / "data")
    default_recipe.main(["pack", "--output", str(tmp_path / "packed")])
    (tmp_path / "unpacked").mkdir()
    folder = unpack(tmp_path / "packed", tmp_path / "unpacked")
    found = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert found and all(text == f"{name}\n" for name, text in found.items())
    assert len(found) == len({name for one in BENCHMARKS.values() for name in (*one.train, one.dev) if name})
    assert unpack(tmp_path / "data", tmp_path) == tmp_path / "data"


def test_a_recipe_is_compared_with_the_tuned_settings_on_the_same_seeds() -> None:
    def record(name: str, recipe: str, seed: int, score: float) -> dict[str, Any]:
        settings = settings_for(name, recipe)
        return {"part": "tune", "name": name, "settings": settings, "seed": seed, "score": score, "seconds": 1.0}

    records = [
        record("sst2", "tuned", 0, 87.0),
        record("sst2", "tuned", 1, 89.0),
        record("sst2", "adamw-2e-4", 1, 88.5),
    ]
    records += [record("squad", "tuned", 0, 70.0)]
    summary = summarize(records, "tune")
    rows = summary["tasks"]["sst2"]["recipes"]
    assert rows["tuned"]["mean"] == 88.0 and rows["tuned"]["deviation"] == pytest.approx(1.41)
    assert rows["adamw-2e-4"]["against_tuned"] == -0.5 and rows["adamw-2e-4"]["scores"] == [88.5]
    # For SQuAD this recipe is the tuned one, so it shares its run.
    assert summary["recipes"]["adamw-2e-4"] == {
        "tasks": 2,
        "mean_against_tuned": -0.25,
        "worst_against_tuned": -0.5,
        "mean_shortfall": 0.25,
    }
