"""The findings of the checks, and their text and table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from regard.render.result import Result, Table

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

SIZES = "wrong image sizes"  # an additional check for images

_ORDER: tuple[Status, ...] = ("error", "warning", "ok", "skipped")


@dataclass(frozen=True)
class DoctorFinding:
    """The result of one check: `evidence` is what was measured, `remedy` what to do about it, or empty.

    An error makes results wrong, a warning may explain poor results, and a skipped check could not be measured.
    """

    check: str
    status: Status
    evidence: str
    remedy: str = ""


class DoctorResult(Result):
    """One finding per check."""

    findings: list[DoctorFinding]

    @property
    def exit_code(self) -> int:
        return int(any(finding.status == "error" for finding in self.findings))

    def to_text(self) -> str:
        width = max(len(finding.check) for finding in self.findings)
        lines = []
        for finding in worst_first(self.findings):
            remedy = f". Remedy: {finding.remedy}" if finding.remedy else ""
            lines.append(f"{finding.status:<7}  {finding.check:<{width}}  {finding.evidence}{remedy}")
        if not problems(self.findings):
            measured = sum(finding.status != "skipped" for finding in self.findings)
            lines.append(f"no problem found in {measured} checks")
        return "\n".join(lines)

    def to_table(self) -> Table:
        rows = [(finding.check, finding.status, finding.evidence, finding.remedy) for finding in self.findings]
        return ("check", "status", "evidence", "remedy"), rows


def skipped(check: str, why: str) -> DoctorFinding:
    return DoctorFinding(check, "skipped", why)


def worst_first(findings: Iterable[DoctorFinding]) -> list[DoctorFinding]:
    return sorted(findings, key=lambda finding: _ORDER.index(finding.status))


def problems(findings: Iterable[DoctorFinding]) -> list[DoctorFinding]:
    """The errors and then the warnings."""
    return [finding for finding in worst_first(findings) if finding.status in ("error", "warning")]
