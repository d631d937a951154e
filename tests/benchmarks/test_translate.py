"""The translation benchmark: training, selection on the validation set, and one evaluation on the test set."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from benchmarks.translate import main

pytestmark = pytest.mark.usefixtures("one_thread")
WORDS = {"the": "der", "dog": "Hund", "cat": "Katze", "sees": "sieht", "eats": "isst"}
QUICK = (
    "vocabulary.vocab_size=270 model.hidden_size=16 model.num_hidden_layers=1 model.num_attention_heads=2 "
    "model.intermediate_size=16 training.num_epochs=2 training.tokens_per_batch=100 "
    "training.warmup_steps=4"
)


def test_reports_dev_and_test_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    english = [f"the {a} {b}" for a in ("dog", "cat") for b in ("sees", "eats")] * 3
    german = [" ".join(WORDS[word] for word in text.split()) for text in english]
    for name in ("train", "val", "test_2016_flickr"):
        for side, texts in (("en", english), ("de", german)):
            (tmp_path / f"{name}.{side}.gz").write_bytes(gzip.compress("".join(f"{t}\n" for t in texts).encode()))
    main(["--data", str(tmp_path), "--set", *QUICK.split(), "--device", "cpu", "--beam", "2"])
    figures = json.loads(capsys.readouterr().out)
    assert figures["pair"] == "en-de" and figures["epochs"] == 2 and figures["kept"] == [1, 2]
    assert figures["test"]["sentences"] == 12 and "case:lc" in figures["test"]["signature_lowercase"]
    assert 0 <= figures["dev"]["bleu"] <= 100 and figures["set"] == QUICK.split()
