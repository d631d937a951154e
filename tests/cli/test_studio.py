"""`regard studio` on the command line."""

from __future__ import annotations

from typing import Any

import pytest

from regard.cli.app import run
from regard.known import builtin_names
from regard.server import serve as serving
from regard.server.serve import listen


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []
    monkeypatch.setattr(
        serving,
        "serve",
        lambda models, *, port, folder, data, on_message: bool(calls.append((models, port, folder, data))),
    )
    return calls


def test_it_serves_what_is_built_in_on_8080(served: list[Any]) -> None:
    assert run(["studio"]) == 0
    assert served == [(builtin_names(), 8080, "trained", [])]


def test_several_models_each_once_and_another_port(served: list[Any]) -> None:
    assert run(["studio", "--model", "b", "-m", "a", "--model", "b", "--port", "0"]) == 0
    assert served == [(["b", "a"], 0, "trained", [])]


def test_where_it_writes_and_what_it_may_read(served: list[Any]) -> None:
    assert run(["studio", "--output", "models", "--data", "a.tsv", "--data", "b"]) == 0
    assert served == [(builtin_names(), 8080, "models", ["a.tsv", "b"])]


def test_a_port_that_cannot_be_is_bad_input(served: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["studio", "--port", "65536"]) == 2
    assert "65535" in capsys.readouterr().err and served == []


def test_a_taken_port_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "check_built", lambda: None)
    with listen(0) as taken:
        assert run(["studio", "--port", str(taken.getsockname()[1])]) == 2
    said = capsys.readouterr()
    assert (
        said.out == "" and said.err.count("\n") == 1 and "is taken; this one is free: regard studio --port" in said.err
    )
