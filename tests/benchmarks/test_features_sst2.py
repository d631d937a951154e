"""The feature-based SST-2 benchmark: both poolings are evaluated on the same splits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import features_sst2
from benchmarks.features_sst2 import main, split_accuracy
from regard import Embedder


def test_accuracy_is_measured_on_held_out_rows() -> None:
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, 200)
    noise = draw.normal(size=(200, 50))  # wide enough to be memorized
    assert 0.4 < split_accuracy(noise, labels) < 0.6
    assert split_accuracy(noise + 5 * labels[:, None], labels) == 1.0


def test_accuracy_does_not_depend_on_the_scale_of_the_vectors() -> None:
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, 200)
    vectors = draw.normal(size=(200, 20)) + 0.3 * labels[:, None]
    sizes = [split_accuracy(size * vectors, labels, scaled=True) for size in (1e-3, 1.0, 1e3)]
    assert sizes[0] == sizes[1] == sizes[2]
    assert split_accuracy(1e-3 * vectors, labels) != sizes[0]


def test_prints_both_poolings(
    tiny_bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [f"the {word} film number {number}" for number in range(20) for word in ("good", "bad")]
    lines = [f"{text}\t{int('good' in text)}\n" for text in texts]
    (tmp_path / "train.tsv").write_text("".join([*lines, "past the last row\t1\n"]), encoding="utf-8")
    monkeypatch.setattr(features_sst2, "ROWS", 40)
    monkeypatch.setattr(features_sst2, "SPLITS", 3)
    arguments = [str(tiny_bert_folder), "--data", str(tmp_path), "--device", "cpu"]
    main([*arguments, "--json"])
    figures = json.loads(capsys.readouterr().out)
    labels = np.array([1, 0] * 20)
    expected = {}
    for pooling in ("mean", "cls"):
        vectors = Embedder(tiny_bert_folder, pooling=pooling, device="cpu").fit_transform(texts)
        expected[pooling] = split_accuracy(vectors, labels)
        expected[f"{pooling} scaled"] = split_accuracy(vectors, labels, scaled=True)
    assert figures["rows"] == 40
    assert figures["accuracy"] == pytest.approx(expected, abs=1e-4)
    main(arguments)
    lines = capsys.readouterr().out.splitlines()
    assert [line.rsplit(maxsplit=1) for line in lines[1:]] == [
        [name, f"{value:.4f}"] for name, value in expected.items()
    ]
