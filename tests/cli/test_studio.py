"""`regard studio` on the command line."""

from __future__ import annotations

from typing import Any

import pytest

from regard.checkpoints.packages import packaged_names
from regard.cli.app import run
from regard.known import builtin_names
from regard.server import run as serving
from regard.server.run import listen


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []
    monkeypatch.setattr(
        serving,
        "run_studio",
        lambda models, *, port, folder, data, **_: calls.append((models, port, folder, data)),
    )
    return calls


def test_the_default_is_the_built_in_models_on_port_8080(served: list[Any]) -> None:
    assert run(["studio"]) == 0
    assert served == [([*builtin_names(), *packaged_names()], 8080, "trained", [])]


def test_duplicate_models_are_removed_and_the_port_can_be_set(served: list[Any]) -> None:
    assert run(["studio", "--model", "b", "-m", "a", "--model", "b", "--port", "0"]) == 0
    assert served == [(["b", "a"], 0, "trained", [])]


def test_the_output_folder_and_the_data_files(served: list[Any]) -> None:
    assert run(["studio", "--output", "models", "--data", "a.tsv", "--data", "b"]) == 0
    assert served == [([*builtin_names(), *packaged_names()], 8080, "models", ["a.tsv", "b"])]


def test_an_invalid_port_is_an_error(served: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["studio", "--port", "65536"]) == 2
    assert "65535" in capsys.readouterr().err and served == []


def test_a_port_in_use_is_a_one_line_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "check_built", lambda: None)
    with listen(0) as taken:
        assert run(["studio", "--port", str(taken.getsockname()[1])]) == 2
    captured = capsys.readouterr()
    assert (
        captured.out == ""
        and captured.err.count("\n") == 1
        and "is taken; this one is free: regard studio --port" in captured.err
    )
