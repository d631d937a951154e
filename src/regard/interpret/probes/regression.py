"""How well labels can be read off vectors: scikit-learn's logistic regression on a split, and by cross-validation.

scikit-learn is imported where it is used: the rest of Regard does without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.errors import InputError

__all__ = ["FOLDS", "TEST", "Outcome", "judge", "require_sklearn"]

FOLDS = 5
TEST = 0.25


@dataclass(frozen=True)
class Outcome:
    """In percent: `accuracy` on the test quarter, `guess` what the commonest label of the rest gets there, `mean` and
    `deviation` of the accuracy over the folds. `train` and `test` are numbers of texts.
    """

    train: int
    test: int
    accuracy: float
    guess: float
    mean: float
    deviation: float


def judge(features: NDArray[np.float32], labels: Sequence[str], *, seed: int = 0) -> Outcome:
    """Split (each label in its share), fit and score; then cross-validate on all. Features are taken as they are."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score, train_test_split

    learned, held, right, wanted = train_test_split(
        features, list(labels), test_size=TEST, random_state=seed, stratify=list(labels)
    )
    common, _ = Counter(right).most_common(1)[0]
    folds = cross_val_score(LogisticRegression(max_iter=1000), features, list(labels), cv=FOLDS)
    return Outcome(
        train=len(right),
        test=len(wanted),
        accuracy=100 * float(LogisticRegression(max_iter=1000).fit(learned, right).score(held, wanted)),
        guess=100 * wanted.count(common) / len(wanted),
        mean=100 * float(folds.mean()),
        deviation=100 * float(folds.std()),
    )


def require_sklearn() -> None:
    """Say so before the work, not after it, where scikit-learn is missing."""
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise InputError(
            "logistic regression is scikit-learn's, which is not installed: pip install scikit-learn"
        ) from None
