"""Missing values, and labels that may be one class in two spellings."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real

_MISSING_LABELS = ("nan", "NaN", "<NA>")  # what pandas makes of a missing value as a string


def is_missing(cell: object) -> bool:
    """Return whether a cell holds nothing: None, NaN, a missing value of pandas, or blanks only."""
    if isinstance(cell, str):
        return not cell.strip()
    if isinstance(cell, Real):
        return bool(cell != cell)  # NaN
    return cell is None or type(cell).__name__ in ("NAType", "NaTType")


def is_missing_label(cell: object) -> bool:
    """Return whether a label is missing; the strings "nan" and "<NA>" are missing values, not classes."""
    return is_missing(cell) or (isinstance(cell, str) and cell.strip() in _MISSING_LABELS)


def similar_labels(counts: Mapping[str, int]) -> list[str]:
    """Describe the labels that differ only in case or spaces, with the number of examples of each."""
    groups: dict[str, list[str]] = {}
    for label in counts:
        groups.setdefault(" ".join(label.split()).casefold(), []).append(label)
    return [
        f"the labels {_listed(labels, counts)} differ only in case or spaces, and are different classes"
        for labels in groups.values()
        if len(labels) > 1
    ]


def _listed(labels: list[str], counts: Mapping[str, int]) -> str:
    *most, last = (f"{label!r} ({counts[label]:,})" for label in sorted(labels, key=lambda label: -counts[label]))
    return f"{', '.join(most)} and {last}"
