"""The examples of docs/python.md run in order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.verbs import FUNCTIONS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "python.md").read_text(encoding="utf-8")


@pytest.mark.long
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "python.md", "exec"), names)
    assert names["vectors"].shape[0] == 2
    assert names["classifier"].predict(["a bad film"]).shape == (1,)


def test_every_function_is_on_the_page_and_documented() -> None:
    for name in FUNCTIONS:
        assert f"regard.{name}(" in PAGE, name
        assert len(getattr(regard, name).__doc__) > 100
