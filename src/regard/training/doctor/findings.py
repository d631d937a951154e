"""What a check says. Knows the names of the ten mistakes; measures nothing and prints nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["CHECKS", "SIZES", "DoctorFinding", "Status", "problems", "skipped", "worst_first"]

Status = Literal["ok", "warning", "error", "skipped"]

CHECKS = (
    "missing mask",
    "wrong segment ids",
    "casing mismatch",
    "labels truncated away",
    "train/dev leakage",
    "dropout left on",
    "constant predictions",
    "class imbalance",
    "label noise by duplicates",
    "wrong columns",
)

SIZES = "wrong picture sizes"  # of pictures alone, which have it instead of columns

_ORDER: tuple[Status, ...] = ("error", "warning", "ok", "skipped")


@dataclass(frozen=True)
class DoctorFinding:
    """One check's result: `evidence` is what was measured, `remedy` what to do, empty where nothing is to be done.

    An error makes results wrong, a warning may explain them, and what was skipped could not be measured.
    """

    check: str
    status: Status
    evidence: str
    remedy: str = ""


def skipped(check: str, why: str) -> DoctorFinding:
    return DoctorFinding(check, "skipped", why)


def worst_first(findings: Iterable[DoctorFinding]) -> list[DoctorFinding]:
    return sorted(findings, key=lambda finding: _ORDER.index(finding.status))


def problems(findings: Iterable[DoctorFinding]) -> list[DoctorFinding]:
    """The errors and then the warnings."""
    return [finding for finding in worst_first(findings) if finding.status in ("error", "warning")]
