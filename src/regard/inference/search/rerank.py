"""Reranking: a model that reads query and text together scores the best candidates again."""

from __future__ import annotations

from collections.abc import Sequence

from regard.data.examples import TextExample
from regard.errors import InputError
from regard.tasks.fine_tuned_model import FineTunedModel, predict_stream


def check_reranker(model: FineTunedModel) -> None:
    """InputError unless the model scores a pair of texts with one number."""
    task = model.task
    if task.name == "regress" or (task.name == "pair" and _positive_label(model) is not None):
        return
    classes = f" with {len(task.labels)} classes" if task.name == "pair" else ""
    raise InputError(
        f"a model for {task.name}{classes} cannot rerank; expected one that `regard train pair` trained with two "
        "classes, or `regard train regress`"
    )


def rerank_scores(model: FineTunedModel, query: str, texts: Sequence[str]) -> list[float]:
    """A score for each text: the probability of the positive class, or the value that a regression predicts."""
    examples = [TextExample(query, text) for text in texts]
    device = next(model.model.parameters()).device
    label = _positive_label(model)
    return [
        float(one["value"] if label is None else one["probabilities"][label])
        for one in predict_stream(model, examples, device=device)
    ]


def _positive_label(model: FineTunedModel) -> str | None:
    """The class that says that a text fits: that of F1, or the last of two."""
    if model.task.name != "pair" or len(model.task.labels) != 2:
        return None
    return getattr(model.task, "positive_label", None) or str(model.task.labels[-1])
