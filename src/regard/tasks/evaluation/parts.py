"""The parts of an evaluation. Scores, ECE, ROC AUC and average precision are in percent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Interval = tuple[float, float]  # 95%, by bootstrap over the examples


@dataclass(frozen=True)
class ClassScores:
    """The scores of one class, or of one type of entities; `support` is the number of true ones."""

    label: str
    precision: float
    recall: float
    f1: float
    support: int
    predicted: int


@dataclass(frozen=True)
class ConfusionMatrix:
    """Counts: true labels are rows, predicted ones columns."""

    rows: list[str]
    columns: list[str]
    counts: list[list[int]]


@dataclass(frozen=True)
class Confusion:
    """A label that was taken for another, and how often."""

    label: str
    predicted: str
    count: int


@dataclass(frozen=True)
class ReliabilityBin:
    """Predictions with a confidence in (low, high]: their mean confidence, and how many were right. None if empty."""

    low: float
    high: float
    count: int
    confidence: float | None
    accuracy: float | None


@dataclass(frozen=True)
class Calibration:
    """How well probabilities agree with frequencies; `of` says which probabilities. Brier and log loss are from 0."""

    of: str
    bins: list[ReliabilityBin]
    ece: float
    brier: float
    log_loss: float
    confidence: float  # mean, in percent
    accuracy: float  # in percent


@dataclass(frozen=True)
class ThresholdCurve:
    """Precision, recall and F1 of a label that is predicted where its probability is at least a threshold.

    `best` is the threshold with the highest F1 of all; the lists have at most 200 thresholds. ROC AUC needs examples
    with and without the label, average precision needs one with it; else they are None.
    """

    label: str
    n: int
    positives: int
    thresholds: list[float]
    true_positives: list[int]
    false_positives: list[int]
    precision: list[float]
    recall: list[float]
    f1: list[float]
    best_threshold: float
    best_f1: float
    roc_auc: float | None
    average_precision: float | None


@dataclass(frozen=True)
class NoAnswerCurve:
    """Scores where questions whose margin is at most a threshold get no answer; `threshold` is the one in use."""

    threshold: float
    best_threshold: float
    best_f1: float
    thresholds: list[float]
    exact_match: list[float]
    f1: list[float]
    unanswered: list[int]


@dataclass(frozen=True)
class SchemeScores:
    """Scores of entities by one of nervaluate's schemes."""

    scheme: str
    correct: int
    incorrect: int
    partial: int
    missed: int
    spurious: int
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class GroupScores:
    """Scores of a part of the questions: those of a kind, or with answers of a length."""

    by: str
    group: str
    n: int
    exact_match: float
    f1: float
    f1_interval: Interval


@dataclass(frozen=True)
class Residuals:
    """Differences, predicted minus true: their mean and quantiles, such as "0.05"."""

    mean: float
    quantiles: dict[str, float]


@dataclass(frozen=True)
class ErrorCase:
    """A wrong prediction for the example `index`. `confidence` is the probability of what was predicted, `probability`
    that of the true label. `kind` says what is wrong, and `score` how wrong, where a task distinguishes that."""

    index: int
    label: Any
    predicted: Any
    confidence: float | None = None
    probability: float | None = None
    kind: str = ""
    score: float | None = None


@dataclass(frozen=True, kw_only=True)
class TaskEvaluation:
    """What a task finds out about its predictions; what does not apply is empty. `errors` has the worst first."""

    metrics: dict[str, float]
    intervals: dict[str, Interval]
    finding: str
    remarks: list[str] = field(default_factory=list)
    positive: str | None = None  # the label whose F1 is the metric "f1"; None: an average
    classes: list[ClassScores] = field(default_factory=list)
    confusion_matrix: ConfusionMatrix | None = None
    confusions: list[Confusion] = field(default_factory=list)
    calibration: Calibration | None = None
    thresholds: list[ThresholdCurve] = field(default_factory=list)
    no_answer: NoAnswerCurve | None = None
    schemes: list[SchemeScores] = field(default_factory=list)
    groups: list[GroupScores] = field(default_factory=list)
    residuals: Residuals | None = None
    points: list[tuple[float, float]] = field(default_factory=list)  # true and predicted value
    errors: list[ErrorCase] = field(default_factory=list)


def with_interval(value: float, interval: Interval | None) -> str:
    """A score as it is printed: 87.2 [85.9, 88.4]."""
    return f"{value:.1f}" + (f" [{interval[0]:.1f}, {interval[1]:.1f}]" if interval else "")
