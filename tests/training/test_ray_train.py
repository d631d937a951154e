"""The recipe for Ray Train in docs/distributed-training.md, with two CPU workers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard.data.corpus import build_corpus, train_tokenizer
from tests.training.recipes.pretraining.runs import SMALL, story

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "distributed-training.md"


@pytest.mark.slow
def test_the_recipe_for_ray_train(tmp_path: Path) -> None:
    pytest.importorskip("ray.train.torch")
    (tmp_path / "story.txt").write_text(story(), encoding="utf-8")
    tokenizer = train_tokenizer((tmp_path / "story.txt").read_text().splitlines(), size=120, max_length=32)
    build_corpus(tmp_path / "story.txt", tmp_path / "corpus", tokenizer=tokenizer)
    (recipe,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    settings = {**SMALL, "data.tokens_per_micro_batch": 128, "run.parallel": "fsdp", "schedule.max_steps": 6}
    for name, folder in {"/shared/corpus": "corpus", "/shared/run": "run", "/shared/ray": "ray"}.items():
        assert recipe.count(f'"{name}"') == 1
        recipe = recipe.replace(name, str(tmp_path / folder))
    recipe = recipe.replace("WORKERS, GPU = 8, True", "WORKERS, GPU = 2, False")
    recipe = re.sub(r"SETTINGS = \{.*\}", f"SETTINGS = {settings!r}", recipe)
    start = "import ray\nray.init(address='local', num_cpus=2, include_dashboard=False)\n"
    (tmp_path / "recipe.py").write_text(f"{start}{recipe}\nray.shutdown()\n", encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "recipe.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    model, _ = regard.load(tmp_path / "run")
    assert model.config.hidden_size == 32
    first = json.loads((tmp_path / "run" / "events.jsonl").read_text().splitlines()[0])
    assert first["message"].startswith("2 processes, each has a part of the model (fsdp)")
