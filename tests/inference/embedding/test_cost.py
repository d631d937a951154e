"""`regard cost embed`: the rates are the measured ones, and the rest is arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from regard.cli.app import run
from regard.errors import InputError
from regard.inference.embedding.cost import LONG, SHORT, estimate_embedding, text_flops
from regard.models import BertConfig

MEASURED = json.loads((Path(__file__).parents[3] / "benchmarks" / "results" / "embed_gpu.json").read_text())
BASE = BertConfig()
RATE = MEASURED["short texts"]["engines"]["regard"]["texts_per_second"]


def estimate(config: Any = BASE, **options: Any) -> Any:
    return estimate_embedding(config, name="x", **{"texts": 10**10, "length": SHORT, **options})


@pytest.mark.parametrize("workload", ["short texts", "paragraphs"])
def test_the_rates_are_those_of_the_benchmark(workload: str) -> None:
    measured = MEASURED[workload]
    length = measured["tokens"] / measured["texts"]
    found = estimate(length=length)
    assert found.texts_per_second == pytest.approx(measured["engines"]["regard"]["texts_per_second"])
    tiny = BertConfig(hidden_size=32, intermediate_size=64, num_attention_heads=2, num_hidden_layers=2)
    limited = estimate(tiny, length=length)
    assert limited.texts_per_second == pytest.approx(measured["engines"]["tokenizing alone"]["texts_per_second"])
    assert "limited by tokenizing" in limited.source


def test_hours_money_and_files() -> None:
    found = estimate(gpus=64, price=2.5, shard_size=65_536)
    assert found.gpu_hours == pytest.approx(1e10 / RATE / 3600) and found.hours == found.gpu_hours / 64
    assert found.money == pytest.approx(found.gpu_hours * 2.5)
    assert (found.shards, found.gigabytes) == (152_588, 30_720)
    assert found.put_requests == 152_588 * (20 + 2) + 6  # parts of 192 MiB in pieces of 10 MiB
    assert estimate(shard_size=1000).put_requests == 3 * 10**7 + 6
    assert estimate(price=None).money is None and "--price" in estimate(price=None).to_text()
    assert LONG > 7 * SHORT and estimate(length=LONG).gpu_hours > 4 * found.gpu_hours


def test_other_models_take_as_much_longer_as_they_need_more_flops() -> None:
    large = BertConfig(hidden_size=1024, intermediate_size=4096, num_attention_heads=16, num_hidden_layers=24)
    ratio = text_flops(large, SHORT) / text_flops(BASE, SHORT)
    assert 3.5 < ratio < 3.6
    assert estimate(large).texts_per_second == pytest.approx(RATE / ratio)
    assert "scaled by FLOPs (3.5" in estimate(large).source
    assert estimate(large, rate=100, gpu="a100").gpu_hours == pytest.approx(1e8 / 3600)


def test_invalid_requests() -> None:
    with pytest.raises(InputError, match="measured on an H200 only; give that of the A100 with --rate"):
        estimate(gpu="a100")
    with pytest.raises(InputError, match="length is 0"):
        estimate(length=0)
    with pytest.raises(InputError, match="rate is -1"):
        estimate(rate=-1)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "embed", "--texts", "10B", "--length", "22", "--price", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["texts"] == 10**10
    assert run(["cost", "embed", "--texts", "many"]) == 2
    assert "'many' is not a number of texts" in capsys.readouterr().err
    assert run(["cost", "gpt3", "--tokens", "300B"]) == 0
    assert run(["cost", "embed", "gpt9", "--texts", "10B"]) == 2
