"""The program limits the kernels that oneDNN keeps, unless the user has."""

from __future__ import annotations

import os

import pytest

from regard import cli
from regard.engine.memory import CAPACITY, VARIABLES


def test_the_program_limits_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLES[0], "7")
    monkeypatch.setenv(VARIABLES[1], "")
    monkeypatch.delenv(VARIABLES[1])
    monkeypatch.setattr("regard.cli.app.run", lambda arguments: 0)
    with pytest.raises(SystemExit):
        cli.main()
    assert [os.environ[name] for name in VARIABLES] == ["7", str(CAPACITY)]
