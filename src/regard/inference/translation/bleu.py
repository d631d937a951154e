"""BLEU of detokenized text with sacrebleu, including its signature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from regard.errors import InputError


@dataclass(frozen=True)
class Bleu:
    """The score of the texts, cased and lowercased (`sacrebleu -lc`), each with sacrebleu's signature."""

    bleu: float
    bleu_lowercase: float
    signature: str
    signature_lowercase: str

    @property
    def scores(self) -> dict[str, float]:
        return {"bleu": self.bleu, "bleu_lowercase": self.bleu_lowercase}

    def document(self) -> dict[str, float | str]:
        return asdict(self)


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Bleu:
    """Corpus BLEU against one reference per translation, with sacrebleu's default settings."""
    from sacrebleu.metrics.bleu import BLEU

    if len(hypotheses) != len(references):
        raise InputError(f"{len(hypotheses):,} translations and {len(references):,} references; expected one for each")
    metrics = BLEU(), BLEU(lowercase=True)
    scores = (metric.corpus_score(list(hypotheses), [list(references)]).score for metric in metrics)
    return Bleu(*scores, *(str(metric.get_signature()) for metric in metrics))
