"""What a build says: how far it is, and what came of it.

Knows numbers and words. Knows no file and no tokenizer.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from regard.data.corpus.shards import CorpusCounts

__all__ = ["REPORT", "CorpusProgress", "CorpusReport"]

REPORT = "report.json"


@dataclass(frozen=True)
class CorpusProgress:
    """`done` of `documents` are encoded, `resumed` of them by an earlier run; `tokens` so far."""

    done: int
    documents: int
    resumed: int
    tokens: int


@dataclass(frozen=True)
class CorpusReport:
    """What a corpus holds, and what this run did: `resumed` is what was there already, `seconds` those of the rest."""

    counts: CorpusCounts
    sources: int
    skipped: tuple[str, ...]
    shards: int
    vocabulary: int
    resumed: CorpusCounts
    seconds: float

    @property
    def one_document(self) -> bool:
        """Whether no pair of sentences from two documents can be made."""
        return self.counts.documents == 1

    @property
    def tokens_per_second(self) -> float:
        return (self.counts.tokens - self.resumed.tokens) / max(self.seconds, 1e-9)

    @property
    def bytes_per_second(self) -> float:
        return (self.counts.bytes - self.resumed.bytes) / max(self.seconds, 1e-9)

    @property
    def notes(self) -> list[str]:
        """What a reader should know, in sentences; empty where all is as it should be."""
        found = []
        if self.one_document:
            found.append(
                "The corpus is one document, so next-sentence pairs cannot be made: put a blank line between documents."
            )
        if self.skipped:
            names = ", ".join(self.skipped[:5]) + (" and others" if len(self.skipped) > 5 else "")
            found.append(f"Skipped {len(self.skipped)} files that are no text by their names: {names}.")
        if self.counts.unknown > self.counts.tokens // 100:
            share = 100 * self.counts.unknown / self.counts.tokens
            found.append(
                f"The tokenizer does not know {share:.1f}% of the tokens: it may be made for another language."
            )
        return found

    def json(self) -> dict[str, object]:
        speeds = {
            "tokens_per_second": round(self.tokens_per_second, 1),
            "bytes_per_second": round(self.bytes_per_second, 1),
        }
        return asdict(self) | speeds | {"notes": self.notes}
