"""The report of a corpus."""

from __future__ import annotations

import re

import pytest

from regard.data.corpus import CorpusCounts, CorpusReport


def report(counts: CorpusCounts, *, resumed: CorpusCounts | None = None, skipped: tuple[str, ...] = ()) -> CorpusReport:
    return CorpusReport(counts, 1, skipped, 1, 100, resumed or CorpusCounts(), 2.0)


def test_speed_is_that_of_this_run() -> None:
    made = report(CorpusCounts(documents=2, tokens=300, bytes=900), resumed=CorpusCounts(tokens=100, bytes=500))
    assert (made.json()["tokens_per_second"], made.json()["bytes_per_second"], made.notes) == (100, 200, [])


@pytest.mark.parametrize(
    ("made", "note"),
    [
        (report(CorpusCounts(documents=1, tokens=9)), "one document"),
        (report(CorpusCounts(documents=2, tokens=100, unknown=3)), "does not know 3.0%"),
        (report(CorpusCounts(documents=2, tokens=9), skipped=tuple("abcdefg")), "7 files .*: a, b, c, d, e and others"),
    ],
)
def test_notes(made: CorpusReport, note: str) -> None:
    (found,) = made.notes
    assert re.search(note, found)
