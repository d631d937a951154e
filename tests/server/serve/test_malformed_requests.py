"""Malformed requests in a cut-down form; `python -m benchmarks.serve --only fuzz` sends 10,000."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks.serve_fuzz import fuzz
from benchmarks.serve_process import ServerProcess, start_server
from tests.server.coroutines import run_coroutine
from tests.server.serve.conftest import EMBED, KEY

FIRST, SECOND = 200, 300


def check(found: dict[str, Any], *, growth_mb: float = 50) -> None:
    assert found["wrong"] == []  # no 5xx, no reset, no connection without an answer
    assert {"400", "401", "404", "413", "422"} <= set(found["statuses"])
    assert found["growth MB"] < growth_mb, (found["memory MB"], found["growth MB by process"])


@pytest.mark.long
def test_every_malformed_request_gets_an_answer(server: ServerProcess, model_folders: dict[str, Path]) -> None:
    """The first requests bring every process to the memory that it keeps; a leak would show in the second round.

    The bound is wider than that of 10,000 requests: the five processes still warm up, each by some 10 MB.
    """
    assert run_coroutine(fuzz(server, [*model_folders], FIRST, seed=1))["wrong"] == []
    check(run_coroutine(fuzz(server, [*model_folders], SECOND)), growth_mb=150)
    assert server.ask("/health")[0] == 200


@pytest.mark.long
def test_a_studio_answers_every_malformed_request(model_folders: dict[str, Path], page_built: None) -> None:
    folders = [str(model_folders[EMBED])]
    with start_server(folders, door="studio", token=KEY) as studio:
        # No bound for memory: verbs that name no model start processes of built-in ones.
        check(run_coroutine(fuzz(studio, folders, FIRST, seed=1)), growth_mb=math.inf)
        assert studio.ask("/health")[0] == 200


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_thousand_malformed_requests(server: ServerProcess, model_folders: dict[str, Path]) -> None:
    check(run_coroutine(fuzz(server, [*model_folders], 10_000, seed=1)))
