"""What every score begins with: as many predictions as there are truths, and at least one. Knows no score."""

from __future__ import annotations

from collections.abc import Sized

from regard.errors import InputError

__all__ = ["check_pairs"]


def check_pairs(truth: Sized, predicted: Sized) -> None:
    """Refuse lists that cannot be compared."""
    if len(truth) != len(predicted):
        raise InputError(
            f"expected one prediction for each of the {len(truth)} examples, got {len(predicted)}; "
            "compare predictions with the file they were made from"
        )
    if not len(truth):
        raise InputError("there are no examples to score; expected at least one")
