"""TypeScript types generated from pydantic models."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

FILE = Path(__file__).resolve().parents[2] / "web" / "generate_types.py"


class Point(BaseModel):
    at: tuple[int, float]
    label: str | None = None


class PlotResult(BaseModel):
    """A plot. With more."""

    kind: Literal["line", "bar"] = "line"
    points: list[Point]
    names: dict[str, list[list[int | None]]]


def test_types_of_a_result() -> None:
    spec = importlib.util.spec_from_file_location("generate_types", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = module.typescript({"plot": PlotResult})
    assert 'readonly kind: "line" | "bar";' in text
    assert "readonly at: readonly [number, number]; readonly label: string | null;" in text, "a result has all fields"
    assert "readonly names: Readonly<Record<string, readonly (readonly (number | null)[])[]>>;" in text
    assert "/** A plot. */\nexport interface PlotResult {" in text
    assert "readonly plot: PlotResult;" in text
