"""The notebooks in examples/ run from top to bottom, and results at the end of cells are displayed."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def test_there_are_two_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["engineers", "researchers"]


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page_built: None) -> None:
    shutil.copy(EXAMPLES / "reviews.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    document = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    displayed = 0
    for cell in document["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert not cell["outputs"]
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, path.name, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), path.name, "eval"), names)
            if hasattr(value, "_repr_html_"):
                assert "<" in value._repr_html_()
                displayed += 1
    assert displayed >= 3
