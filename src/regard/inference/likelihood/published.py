"""What the lectures report for larger models on the same benchmarks. Plain data, so that showing it needs no torch.

LAMBADA's figures are perplexities, the others percent. The lectures do not say whether a percentage is normalised by
the length of the endings.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["PUBLISHED", "published"]

_ORDER = ("lambada", "winogrande", "hellaswag", "piqa")

PUBLISHED: Mapping[str, Mapping[str, float]] = {
    name: dict(zip(_ORDER, figures, strict=True))
    for name, figures in {
        "GPT-Neo-2.7B": (5.626, 56.5, 55.8, 73.0),
        "GPT3-2.7B": (4.60, 62.3, 62.8, 75.6),
        "GPT-J-6B": (3.99, 65.3, 66.1, 76.5),
        "GPT3-6.7B": (4.00, 64.5, 67.4, 78.0),
        "Curie": (3.997, 65.6, 68.5, 77.9),
        "GPT3-175B": (3.00, 70.2, 78.9, 81.0),
        "Davinci": (2.95, 72.0, 78.0, 83.0),
    }.items()
}


def published(task: str) -> dict[str, float]:
    """The figures of one benchmark, by model."""
    return {name: figures[task] for name, figures in PUBLISHED.items()}
