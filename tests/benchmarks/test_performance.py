"""The benchmarks of speed and memory: their tables, charts and comparisons, at a tiny scale and without timing."""

from __future__ import annotations

import argparse
import json
import os
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import all as all_benchmarks
from benchmarks import embed, embed_memory, operations, scaling, timing
from benchmarks.all import Figure, describe_target, embedding_figures
from benchmarks.embed_engines import TOKENS_PER_BATCH, BatchedEngine, mean_pool, pad
from benchmarks.embed_process import TimedEngine
from benchmarks.line_chart import line_chart, linear_ticks, log_ticks
from benchmarks.performance_tables import DOCUMENT, update_document
from regard.text import Tokenizer


def engine_rows(**rates: float) -> dict[str, Any]:
    base = rates["sentence-transformers"]
    return {
        name: {"texts_per_second": rate, "ratio": rate / base, "worst_cosine": 0.9 if "int8" in name else 1.0}
        for name, rate in rates.items()
    }


RESULT: dict[str, Any] = {
    "date": "2026-01-01",
    "machine": "a machine",
    "path": "AVX2",
    "skipped": {"fastembed fp32": "not installed"},
    "workloads": {
        "sst2": {
            "texts": 4,
            "engines": engine_rows(
                **{
                    "sentence-transformers": 100.0,
                    "regard fp32": 180.0,
                    "regard int8": 300.0,
                    "CTranslate2 fp32": 150.0,
                    "CTranslate2 int8": 280.0,
                }
            ),
        }
    },
    "latency": {
        "calls": 2,
        "text": "a",
        "engines": {
            "sentence-transformers": {"p50_ms": 8.0, "p95_ms": 9.0, "ratio": 1.0},
            "regard fp32": {"p50_ms": 5.0, "p95_ms": 6.0, "ratio": 1.6},
            "CTranslate2 fp32": {"p50_ms": 4.0, "p95_ms": 5.0, "ratio": 2.0},
        },
    },
}


def test_a_ratio_above_one_is_better_whatever_the_unit() -> None:
    rate = Figure("", "work", "texts/s", 30.0, {"slow": 10.0, "fast": 20.0})
    assert (rate.best_peer, rate.ratio) == ("fast", 1.5)
    time = Figure("", "work", "ms", 4.0, {"slow": 10.0, "fast": 2.0}, lower_is_better=True)
    assert (time.best_peer, time.ratio) == ("fast", 0.5)
    alone = Figure("", "work", "MB", 4.0)
    assert (alone.best_peer, alone.ratio, alone.row()["reached"]) == ("", None, None)


def test_a_target_is_reached_if_all_its_conditions_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    conditions = {"regard": (">=", 105_000.0), "ratio": (">=", 1.0), "growth": ("<=", 1.2)}
    monkeypatch.setattr(all_benchmarks, "TARGETS", {"key": conditions})
    assert describe_target(conditions, "texts/s") == "at least 105,000 texts/s, at least 1 ratio, at most 1.2 growth"
    reached = Figure("key", "work", "texts/s", 106_000, {"peer": 100.0}, measures={"growth": 1.1}).row()
    assert reached["reached"] is True and reached["ratio"] == 1060
    for missed in (
        Figure("key", "work", "texts/s", 104_000, {"peer": 100.0}, measures={"growth": 1.1}),
        Figure("key", "work", "texts/s", 106_000, {"peer": 107_000.0}, measures={"growth": 1.1}),
        Figure("key", "work", "texts/s", 106_000, {"peer": 100.0}, measures={"growth": 1.3}),
    ):
        assert missed.row()["reached"] is False


def test_each_precision_is_compared_with_its_peers() -> None:
    figures = {figure.key: figure for figure in embedding_figures(RESULT)}
    assert list(figures) == ["embed sst2 fp32", "embed sst2 int8", "latency fp32"]
    assert set(figures["embed sst2 fp32"].peers) == {"sentence-transformers", "CTranslate2 fp32"}
    assert set(figures["embed sst2 int8"].peers) == {"CTranslate2 int8"}
    assert figures["embed sst2 fp32"].row()["reached"] is True
    assert figures["embed sst2 int8"].row()["reached"] is False  # its cosine is too low
    assert "CTranslate2 int8: cosine 0.900" in figures["embed sst2 int8"].note
    assert figures["latency fp32"].ratio == 0.8


def test_a_part_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(options: argparse.Namespace, missing: dict[str, str]) -> Iterator[Figure]:
        raise RuntimeError("out of memory")

    def works(options: argparse.Namespace, missing: dict[str, str]) -> Iterator[Figure]:
        missing["other"] = "not installed"
        yield Figure("startup MiniLM", "some work", "ms", 5.0, {"peer": 6.0}, lower_is_better=True)

    monkeypatch.setattr(all_benchmarks, "PARTS", {"cpu": {"broken": broken, "works": works}})
    monkeypatch.setattr(timing, "RESULTS", tmp_path)
    all_benchmarks.main(["--quick"])
    saved = json.loads((tmp_path / "all-cpu-quick.json").read_text())
    assert saved["missing"] == {"broken": "RuntimeError: out of memory", "other": "not installed"}
    assert [row["reached"] for row in saved["figures"]] == [True]
    printed = capsys.readouterr().out
    assert "some work, ms" in printed and "not measured: other (not installed)" in printed
    all_benchmarks.main(["--only", "works"])
    assert json.loads((tmp_path / "all-cpu.json").read_text())["missing"] == {"other": "not installed"}


def test_every_table_of_the_document_is_generated(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text(DOCUMENT.read_text(encoding="utf-8"), encoding="utf-8")
    update_document(document, tmp_path)
    assert document.read_text(encoding="utf-8").count("Not measured yet.") == 5
    for name in ("embed", "embed-avx2"):
        (tmp_path / f"{name}.json").write_text(json.dumps(RESULT))
    rows = [figure.row() for figure in embedding_figures(RESULT)]
    stored = {"date": "2026-01-01", "machine": "a machine", "figures": rows, "missing": {"fastembed": "absent"}}
    for device in ("cpu", "cuda"):
        (tmp_path / f"all-{device}.json").write_text(json.dumps(stored))
    shares = {"fp32": {"milliseconds": 12.0, "shares": {"attention": 0.25}}}
    (tmp_path / "operations.json").write_text(json.dumps({**stored, "precisions": shares}))
    update_document(document, tmp_path)
    text = document.read_text(encoding="utf-8")
    assert "Not measured yet." not in text
    assert "| embed SST-2 sentences, fp32 | 180 texts/s | 150 (CTranslate2 fp32) | 1.20 |" in text
    assert "| attention | 25% |" in text and "Not measured: fastembed (absent)." in text
    update_document(document, tmp_path)
    assert document.read_text(encoding="utf-8") == text


def test_the_document_shows_every_chart() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for name in ("length", "batch", "size", "texts"):
        assert f"(performance-{name}.svg)" in text
    for path in DOCUMENT.parent.glob("performance-*.svg"):
        ElementTree.parse(path)


def test_batches_are_sorted_and_limited_and_vectors_keep_their_order(tiny_bert_folder: Path) -> None:
    seen: list[list[int]] = []

    def encode(ids: list[list[int]]) -> np.ndarray:
        seen.append([len(row) for row in ids])
        return np.array([[len(row), 1.0] for row in ids], dtype=np.float32)

    engine = BatchedEngine(encode, Tokenizer.open(tiny_bert_folder))
    engine.tokens_per_batch = 14
    vectors = engine(["a", "a film was", "a film was good", "day"])
    lengths = vectors[:, 0] / vectors[:, 1]
    np.testing.assert_allclose(lengths, [3, 5, 6, 3], rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
    assert seen == [[6, 5], [3, 3]]
    engine.choose_batch_size(["a film", "day"])
    assert engine.tokens_per_batch in TOKENS_PER_BATCH


def test_padding_does_not_count_in_the_mean() -> None:
    padded, mask = pad([[5, 6], [7]])
    assert padded.tolist() == [[5, 6], [7, 0]] and mask.tolist() == [[1, 1], [1, 0]]
    hidden = np.array([[[1.0], [3.0]], [[5.0], [9.0]]], dtype=np.float32)
    assert mean_pool(hidden, mask).tolist() == [[2.0], [5.0]]


def test_engines_are_compared_with_the_baseline(capsys: pytest.CaptureFixture[str]) -> None:
    def exact(texts: Sequence[str]) -> np.ndarray:
        return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)

    def wrong(texts: Sequence[str]) -> np.ndarray:
        return np.array([[1.0, len(text)] for text in texts], dtype=np.float32)

    functions = {embed.BASELINE: exact, "regard fp32": exact, "other": wrong}
    engines = {name: TimedEngine(function) for name, function in functions.items()}
    found = embed.measure_throughput("some", ["a", "bbb"], engines, rounds=1)["engines"]
    assert found[embed.BASELINE]["ratio"] == 1.0
    assert found["regard fp32"]["worst_cosine"] == pytest.approx(1.0)
    assert found["other"]["worst_cosine"] == pytest.approx(0.6)
    latency = embed.measure_latency(engines, calls=3)
    assert latency["calls"] == 3 and all(row["p50_ms"] <= row["p95_ms"] for row in latency["engines"].values())
    assert "worst cosine" in capsys.readouterr().out


def test_limiting_the_instructions_starts_the_process_again(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda path, command, environment: started.append((command, environment)))
    for name in embed.ISA["avx2"]:
        monkeypatch.delenv(name, raising=False)
    embed.restart_with(embed.ISA["avx2"], ["--isa", "avx2"])
    command, environment = started.pop()
    assert command == [sys.executable, "-m", "benchmarks.embed", "--isa", "avx2"]
    assert environment["ATEN_CPU_CAPABILITY"] == "avx2" and environment["PATH"] == os.environ["PATH"]
    for name, value in embed.ISA["avx2"].items():
        monkeypatch.setenv(name, value)
    embed.restart_with(embed.ISA["avx2"], ["--isa", "avx2"])
    assert not started
    assert embed.path_note("onnxruntime fp32") and not embed.path_note("regard fp32")


def test_peak_memory_is_that_of_the_process() -> None:
    small = embed_memory.peak_memory([sys.executable, "-c", "pass"])
    large = embed_memory.peak_memory([sys.executable, "-c", "x = bytearray(100_000_000)"])
    assert 90e6 < large - small < 120e6
    with pytest.raises(RuntimeError, match="no such thing"):
        embed_memory.peak_memory([sys.executable, "-c", "raise SystemExit('no such thing')"])


def test_memory_is_measured_for_each_count(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[int] = []

    def peak(command: Sequence[str]) -> int:
        source, output = Path(command[4]), Path(command[command.index("--output") + 1])
        lines.append(len(source.read_text().splitlines()))
        output.touch()
        return 1_000_000 * len(lines)

    monkeypatch.setattr(embed_memory, "peak_memory", peak)
    found = embed_memory.measure([3, 5])
    assert lines == [3, 5] and found["ratio"] == 2.0 and found["counts"]["5"]["peak_mb"] == 2.0


def test_operations_are_grouped_by_kind() -> None:
    times = {"aten::bmm": 1.0, "mkldnn::_linear_pointwise": 2.0, "aten::_softmax": 0.5, "aten::view": 0.5}
    found = operations.shares(times)
    assert found == {"matrix products with weights": 0.5, "attention": 0.375, operations.OTHER: 0.125}


def test_scaling_measures_four_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "HIDDEN_SIZES", (32, 64))
    monkeypatch.setattr(scaling, "LENGTHS", (4, 8))
    monkeypatch.setattr(scaling, "BATCH_SIZES", (32, 64))
    monkeypatch.setattr(scaling, "COUNTS", (1, 2))
    full = scaling.create_model
    monkeypatch.setattr(scaling, "create_model", lambda hidden_size: full(min(hidden_size, 64)))
    found = scaling.measure(32, rounds=1)
    assert list(found) == ["length", "batch", "size", "texts"]
    for series in found.values():
        assert all(len(points) == 2 and min(y for _, y in points) > 0 for points in series.values())
    for chart in scaling.charts(found).values():
        ElementTree.fromstring(chart)


def test_a_line_chart_has_a_point_for_each_value() -> None:
    chart = line_chart("a < b", "x", "y", {"one": [(1, 5.0), (10, 50.0)], "two": [(1, 0.1), (10, 0.2)]}, log_y=True)
    root = ElementTree.fromstring(chart)
    space = "{http://www.w3.org/2000/svg}"
    circles = root.findall(f"{space}circle")
    assert len(circles) == 4 and root.findtext(f"{space}title") == "a < b"
    assert float(circles[0].attrib["cy"]) > float(circles[1].attrib["cy"])
    assert linear_ticks(47) == [0, 10, 20, 30, 40, 50] and log_ticks(0.2, 70) == [0.1, 1, 10, 100]
