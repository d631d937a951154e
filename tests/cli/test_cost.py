"""`regard cost`, and the worked example of its documentation page."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import torch

from regard.cli.app import run
from regard.models import BertConfig, GptConfig
from regard.models.family import build

ROOT = Path(__file__).resolve().parents[2]
Captured = pytest.CaptureFixture[str]


def call(*arguments: str) -> int:
    return run(["cost", *arguments])


def test_text(capsys: Captured) -> None:
    assert call("gpt2", "--tokens", "10B", "--gpu", "h200", "--price", "2.5", "--utilization", "0.4") == 0
    out, error = capsys.readouterr()
    assert error == ""
    hours = 6 * 124_439_808 * 1e10 / (989e12 * 0.4) / 3600
    assert out.splitlines() == [
        "model                  openai-community/gpt2",
        "parameters             124,439,808",
        "tokens                 10,000,000,000",
        "operations             7.47e+18 (6 x parameters x tokens)",
        "  with attention       8.6e+18 (+15.2%, rows of 1,024 tokens)",
        f"H200 hours             {hours:,.4g} (0.000598 years; 40.0% of 989 teraflop/s)",
        f"money                  {hours * 2.5:,.0f} (at 2.5 an hour)",
    ]


def test_assumptions_are_printed(capsys: Captured) -> None:
    assert call("t5-small", "--tokens", "1B") == 0
    out, _ = capsys.readouterr()
    assert "30.0% of 125 teraflop/s, assumed" in out
    assert "give the price of an hour with --price" in out
    assert "a token passes" in out


@pytest.mark.parametrize(
    ("file", "config", "heads", "length"),
    [
        ("gpt2-small.toml", GptConfig(), None, 1024),
        ("bert-base.toml", BertConfig(), None, 512),
        (
            "bert-small-300s.toml",
            BertConfig(
                hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536, vocab_size=16384
            ),
            ("mlm_head",),
            128,
        ),
    ],
)
def test_settings_of_pretraining(
    file: str, config: GptConfig | BertConfig, heads: tuple[str, ...] | None, length: int, capsys: Captured
) -> None:
    path = str(ROOT / "configs" / file)
    assert call(path, "--tokens", "1e9", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    with torch.device("meta"):
        parameters = sum(parameter.numel() for parameter in build(config, output_heads=heads).parameters())
    assert (document["model"], document["parameters"], document["length"]) == (path, parameters, length)
    assert document["flops"] == 6 * parameters * 1e9
    assert document["money"] is None
    assert call(path, "--tokens", "1e9", "--length", "64", "--json") == 0
    assert json.loads(capsys.readouterr().out)["length"] == 64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gpt5", "--tokens", "1B"], "'gpt5' is not a model folder"),
        (["gpt2", "--tokens", "lots"], "'lots' is not a number of tokens"),
        (["gpt2", "--tokens", "1B", "--gpu", "k80"], "--gpu"),
        (["gpt2", "--tokens", "1B", "--utilization", "30"], "utilization is 30"),
        (["nowhere.toml", "--tokens", "1B"], "nowhere.toml: cannot be read"),
        (["gpt2"], "--tokens"),
    ],
)
def test_invalid_input_is_a_one_line_error(arguments: list[str], message: str, capsys: Captured) -> None:
    assert call(*arguments) == 2
    out, error = capsys.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    assert message in error


def test_the_examples_of_the_page_print_the_documented_output(capsys: Captured) -> None:
    page = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
    examples = re.findall(r"^    \$ (regard cost .*)\n((?:    (?!\$).*\n)+)", page, re.MULTILINE)
    assert len(examples) == 1
    for command, printed in examples:
        assert run(shlex.split(command)[1:]) == 0
        assert capsys.readouterr().out.splitlines() == [line[4:] for line in printed.splitlines()]


def test_the_rows_of_the_page_give_the_documented_cost(capsys: Captured) -> None:
    """Each row of the table: a price, the utilization that leads to 4.6 million, and the speed."""
    page = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d\.\d\d) \| ([\d.]+)% \| ([\d.]+) \|$", page, re.MULTILINE)
    assert len(rows) == 4
    for price, share, speed in rows:
        used = float(share) / 100
        assert call("gpt3", "--tokens", "300B", "--price", price, "--utilization", str(used), "--json") == 0
        document = json.loads(capsys.readouterr().out)
        assert document["money"] == pytest.approx(4.6e6, rel=4e-3)
        assert used * 125 == pytest.approx(float(speed), abs=0.06)
