"""The shared options, parsed by a verb that uses all of them."""

from __future__ import annotations

import json

import pytest
import typer

from regard.cli.app import run
from regard.cli.commands import DeviceOption, JsonOption, SeedOption
from regard.cli.output import print_json


def register(app: typer.Typer) -> None:
    @app.command()
    def show(
        device: DeviceOption = "auto",
        seed: SeedOption = 0,
        as_json: JsonOption = False,
    ) -> None:
        print_json([device, seed, as_json])


Captured = pytest.CaptureFixture[str]


def test_defaults_and_values(capsys: Captured) -> None:
    assert run(["show"], registers=[register]) == 0
    assert json.loads(capsys.readouterr().out) == ["auto", 0, False]
    assert run(["show", "--device", "cuda", "--seed", "7", "--json"], registers=[register]) == 0
    assert json.loads(capsys.readouterr().out) == ["cuda", 7, True]


@pytest.mark.parametrize("arguments", [["--device", "tpu"], ["--seed", "-1"], ["--seed", "x"]])
def test_invalid_values_exit_with_2(arguments: list[str], capsys: Captured) -> None:
    assert run(["show", *arguments], registers=[register]) == 2
    error = capsys.readouterr().err
    assert arguments[0] in error
    assert error.count("\n") == 1
