"""The lecture's way from sentences to a classifier: tokens, ids, padding, hidden states, a slice, logistic regression.

Texts go through the model in batches, so that the tensor of all hidden states, whose shape is told, is never held at
once. Knows examples; knows nothing of files or of how a stage is printed. The classifier is in `regression`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.batch import collate
from regard.data.examples import TextExample
from regard.errors import InputError, check_choice
from regard.inference.embedding.embedder import load_engine
from regard.inference.embedding.engine import BUDGET, EmbeddingEngine
from regard.interpret.probes.regression import FOLDS, Outcome, judge, require_sklearn
from regard.nn.masks import Padded
from regard.text import Tokenizer

__all__ = ["SHOWN", "Walk", "walk"]

SHOWN = 5  # rows of each table

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Walk:
    """What each stage gives; of tables the first rows. `hidden` is (texts, longest, width), `slice` (texts, width).

    `padding` is the percentage of the padded matrix that is no token. `unmasked` is what comes of letting padding be
    attended to, as the slides do, if that was asked for; `similarity` is then the mean cosine, in percent, of each
    text's two vectors. `cut` texts were longer than the model reads.
    """

    texts: list[str]
    tokens: list[list[str]]
    ids: list[list[int]]
    padded: list[list[int]]
    mask: list[list[int]]
    matrix: tuple[int, int]
    padding: float
    hidden: tuple[int, int, int]
    slice: tuple[int, int]
    features: list[list[float]]
    labels: list[str]
    counts: dict[str, int]
    pooling: str
    cut: int
    masked: Outcome
    unmasked: Outcome | None = None
    similarity: float | None = None


def walk(
    model: str | os.PathLike[str] | tuple[nn.Module, Tokenizer | None],
    examples: Sequence[TextExample],
    *,
    pooling: str = "cls",
    layer: int | str = -1,
    as_in_deck: bool = False,
    seed: int = 0,
    device: str = "auto",
    on_progress: Callable[[int, int], None] | None = None,
) -> Walk:
    """Embed texts with a frozen model, learn their labels by logistic regression from three quarters of them, and
    score the rest. `as_in_deck` does it a second time without an attention mask.
    """
    check_choice("pooling", pooling, ("cls", "mean"))
    require_sklearn()
    texts, labels = _labelled(examples)
    ready = load_engine(model, layers=layer, pooling=pooling, device=device)
    ids, _ = ready.tokenizer.ids_batch(texts, max_length=ready.max_length)
    longest = max(map(len, ids))
    pad = ready.tokenizer.pad or 0
    total = len(texts) * (2 if as_in_deck else 1)
    tell = on_progress or (lambda done, total: None)
    features = ready.embed(texts, on_progress=lambda count: tell(count, total))
    without = _unmasked(ready, ids, pad, lambda count: tell(len(texts) + count, total)) if as_in_deck else None
    shown = ids[:SHOWN]
    return Walk(
        texts=texts[:SHOWN],
        tokens=[[ready.tokenizer.token(number) for number in one] for one in shown],
        ids=shown,
        padded=[one + [pad] * (longest - len(one)) for one in shown],
        mask=[[1] * len(one) + [0] * (longest - len(one)) for one in shown],
        matrix=(len(texts), longest),
        padding=100 * (1 - sum(map(len, ids)) / (len(texts) * longest)),
        hidden=(len(texts), longest, ready.width),
        slice=(len(texts), ready.width),
        features=features[:SHOWN].tolist(),
        labels=labels[:SHOWN],
        counts=dict(Counter(labels).most_common()),
        pooling=pooling,
        cut=ready.truncated,
        masked=judge(features, labels, seed=seed),
        unmasked=None if without is None else judge(without, labels, seed=seed),
        similarity=None if without is None else _similarity(features, without),
    )


def _labelled(examples: Sequence[TextExample]) -> tuple[list[str], list[str]]:
    for place, example in enumerate(examples, start=1):
        if not isinstance(example, TextExample):
            raise InputError(f"example {place} is a {type(example).__name__}; expected a text with a label")
        if not isinstance(example.label, str):
            raise InputError(
                f"example {place} has the label {example.label!r}; expected one label, as a word or number"
            )
        if example.second is not None:
            raise InputError(f"example {place} has two texts; expected one")
    labels = [cast(str, example.label) for example in examples]
    rarest = min(Counter(labels).items(), key=lambda one: one[1], default=("", 0))
    if len({*labels}) < 2:
        raise InputError(f"all {len(labels)} examples have the same label; expected two labels or more")
    if rarest[1] < FOLDS:
        raise InputError(
            f"only {rarest[1]} of {len(labels)} examples have the label {rarest[0]!r}; {FOLDS} folds need {FOLDS}: "
            "take more rows"
        )
    return [example.text for example in examples], labels


def _unmasked(ready: EmbeddingEngine, ids: Sequence[Sequence[int]], pad: int, done: Callable[[int], None]) -> Vectors:
    """The vectors of rows padded to the longest text, when the model is not told what is padding."""
    longest = max(map(len, ids))
    vectors = np.empty((len(ids), ready.width), dtype=np.float32)
    size = max(1, BUDGET[ready.device.type] // longest)
    for start in range(0, len(ids), size):
        rows = [[*one, *[pad] * (longest - len(one))] for one in ids[start : start + size]]
        batch = collate(rows, packed=False).to(ready.device)
        assert isinstance(batch.layout, Padded)
        assert batch.layout.mask is None
        states = cast("Callable[..., Iterator[Tensor]]", ready.model.states)
        with torch.inference_mode():
            hidden = ready.layers.join(states(batch.ids, batch.layout))
            found = hidden[:, 0] if ready.pooling == "cls" else hidden.mean(1)
        vectors[start : start + len(rows)] = found.float().cpu().numpy()
        done(start + len(rows))
    return vectors


def _similarity(one: Vectors, other: Vectors) -> float:
    sizes = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return 100 * float(((one * other).sum(1) / np.maximum(sizes, 1e-30)).mean())
