"""What a run that learned to translate came to, as JSON. Knows numbers; trains nothing and reads no file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from regard.training.translation.trainer import TranslationOutcome

__all__ = ["TranslationReport"]


@dataclass(frozen=True)
class TranslationReport:
    """`data` says what was read, `signature` how BLEU was computed; `outcome` is judged on dev."""

    model: str
    parameters: int
    device: str
    data: dict[str, dict[str, Any]]
    settings: dict[str, dict[str, Any]]
    signature: dict[str, str]
    outcome: TranslationOutcome
    test: dict[str, Any] = field(default_factory=dict)  # BLEU of what was set aside

    def document(self) -> dict[str, Any]:
        return {"task": "translate", **asdict(self)}

    @classmethod
    def restore(cls, document: Mapping[str, Any]) -> TranslationReport:
        """The report that `document` was made of."""
        found = {name: value for name, value in document.items() if name not in ("task", "outcome")}
        return cls(**found, outcome=TranslationOutcome(**document["outcome"]))
