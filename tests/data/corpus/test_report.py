"""The report: what it says of a corpus."""

from __future__ import annotations

import re

import pytest

from regard.data.corpus import Counts, Report


def report(counts: Counts, *, resumed: Counts | None = None, skipped: tuple[str, ...] = ()) -> Report:
    return Report(counts, 1, skipped, 1, 100, resumed or Counts(), 2.0)


def test_speed_is_that_of_this_run() -> None:
    made = report(Counts(documents=2, tokens=300, bytes=900), resumed=Counts(tokens=100, bytes=500))
    assert made.tokens_per_second == 100 and made.bytes_per_second == 200
    assert made.json()["tokens_per_second"] == 100 and made.notes == []


@pytest.mark.parametrize(
    ("made", "note"),
    [
        (report(Counts(documents=1, tokens=9)), "one document"),
        (report(Counts(documents=2, tokens=100, unknown=3)), "does not know 3.0%"),
        (report(Counts(documents=2, tokens=9), skipped=tuple("abcdefg")), "7 files .*: a, b, c, d, e and others"),
    ],
)
def test_notes(made: Report, note: str) -> None:
    (found,) = made.notes
    assert re.search(note, found)
