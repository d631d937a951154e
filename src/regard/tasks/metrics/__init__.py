"""How good predictions are: labels, values, entities, answers, and how far a score would move with other examples.

Knows lists of what is right and what was predicted, in plain Python and numpy; no tensors, models or files. Scores are
in percent. Reading order: labels, values, spans, text, interval.
"""

from __future__ import annotations

from regard.tasks.metrics.interval import interval, mean_interval
from regard.tasks.metrics.labels import label_scores, multilabel_scores
from regard.tasks.metrics.spans import Entity, entities, entity_counts, entity_scores, scores_of_counts
from regard.tasks.metrics.text import answer_scores, best_threshold
from regard.tasks.metrics.values import value_scores

__all__ = [
    "Entity",
    "answer_scores",
    "best_threshold",
    "entities",
    "entity_counts",
    "entity_scores",
    "interval",
    "label_scores",
    "mean_interval",
    "multilabel_scores",
    "scores_of_counts",
    "value_scores",
]
