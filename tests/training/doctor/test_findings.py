"""Names and order of findings."""

from __future__ import annotations

from regard.training.doctor import CHECKS, DoctorFinding, problems, worst_first
from regard.training.doctor.findings import Status


def test_the_worst_comes_first_and_ties_stay_in_order() -> None:
    statuses: tuple[Status, ...] = ("ok", "skipped", "warning", "error", "ok")
    found = [DoctorFinding(check, status, "") for check, status in zip("abcde", statuses, strict=True)]
    assert [finding.check for finding in worst_first(found)] == ["d", "c", "a", "e", "b"]
    assert [finding.check for finding in problems(found)] == ["d", "c"]


def test_there_are_ten_checks() -> None:
    assert len(set(CHECKS)) == 10
