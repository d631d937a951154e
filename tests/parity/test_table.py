"""docs/families.md lists every family that transformers has too, and each has a reference to compare with."""

from __future__ import annotations

from pathlib import Path

from tests.parity import table
from tests.parity.references import REFERENCES, reference_family

ROOT = Path(__file__).parents[2]


def test_every_family_is_compared_and_listed() -> None:
    compared = table.compared_families()
    assert {reference_family(name) for name in REFERENCES} == {family.name for family in compared}
    document = (ROOT / table.FILE).read_text(encoding="utf-8")
    assert table.listed_files(document) == [*map(table.file_name, compared)], "run python -m tests.parity.table"
