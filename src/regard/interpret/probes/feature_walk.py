"""The feature-extraction walkthrough of the lecture: tokens, ids, padding, hidden states, a slice, logistic regression.

Texts go through the model in batches: the tensor of all hidden states, whose shape is reported, is never in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, computed_field
from torch import Tensor

from regard.checkpoints.loaded_model import LoadedModel
from regard.data.batch import collate
from regard.data.examples import TextExample
from regard.engine.tuning import DEFAULT_TOKENS
from regard.errors import InputError
from regard.events import Progress
from regard.inference.embedding.engine import EmbeddingEngine, load_engine
from regard.interpret.embeddings import sample_indices, sampling_note
from regard.interpret.probes.layers import text_labels
from regard.nn.masks import Padded
from regard.render.result import Result
from regard.render.terminal import token_columns
from regard.wording import excerpt, truncation_note

ROWS = 5  # of each table
CHUNK_SIZE = 512  # texts between two progress events
FOLDS = 5
TEST_SHARE = 0.25

Vectors = NDArray[np.float32]


class RegressionScore(BaseModel):
    """In percent: `folds` has the accuracy on each fold of a cross-validation, `mean` and `deviation` are over them;
    `accuracy` is that on a test quarter, `guess` the accuracy of the most frequent label there. `train` and `test` are
    numbers of texts."""

    train: int
    test: int
    accuracy: float
    guess: float
    mean: float
    deviation: float
    folds: list[float]


class FeatureWalk(Result):
    """The output of each stage; the first rows of tables. `hidden` is (texts, longest, width), `slice` (texts, width).

    `padding` is the percentage of padding in the padded matrix. `unmasked` is the score when padding is attended to, as
    on the slides; `similarity` is then the mean cosine, in percent, of the two vectors of each text. `cut` texts were
    longer than the model reads; `total` texts were given.
    """

    page_view: ClassVar[str] = "features"

    model: str
    layer: int | str
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
    masked: RegressionScore
    unmasked: RegressionScore | None = None
    similarity: float | None = None
    examples: list[tuple[str, str]]
    total: int
    seed: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def notes(self) -> list[str]:
        notes = sampling_note(self.total, len(self.examples), self.seed)
        return [*notes, *([truncation_note(self.cut)] if self.cut else [])]

    def view_data(self) -> dict[str, Any]:
        if self.unmasked is None:
            raise InputError("the page compares the walk with and without a mask; leave out --no-as-in-deck")
        return self.to_dict()

    def to_text(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        count, longest = self.matrix
        counts = ", ".join(f"{label}: {number:,}" for label, number in self.counts.items())
        yield f"1. {count:,} texts with labels ({counts})"
        for text, label in zip(self.texts, self.labels, strict=True):
            yield f"   {label:>4}  {excerpt(text, 90)}"
        yield "\n2. Tokens of the first text, with their ids"
        yield from token_columns(self.tokens[0], self.ids[0])
        yield "\n3. Every text as ids"
        yield from (f"   {_row(one)}" for one in self.ids)
        yield f"\n4. Padded to the longest text: {count:,} x {longest}, {self.padding:.0f}% of it padding"
        yield from (f"   {_row(one)}" for one in self.padded)
        yield f"\n5. Attention mask, {count:,} x {longest}: 1 is a token, 0 is padding and not attended to"
        yield from (f"   {_row(one)}" for one in self.mask)
        yield f"\n6. Hidden states: {_shape(self.hidden)} (texts x tokens x width), computed in batches"
        cls = self.pooling == "cls"
        how = "the slice [:, 0, :], each text's first token" if cls else "the mean of each text's tokens"
        yield f"\n7. Features: {how}: {_shape(self.slice)}"
        for vector, label in zip(self.features, self.labels, strict=True):
            yield f"   {'  '.join(f'{value:8.4f}' for value in vector[:4])}  ...  {vector[-1]:8.4f}   label {label}"
        yield f"\n8. Logistic regression, cross-validated: each fifth of the {count:,} texts is scored once"
        yield from _score_lines(self.masked, self.unmasked)
        if self.similarity is not None:
            yield f"   cosine of a text's vectors with and without mask, on average {self.similarity / 100:.3f}"


def feature_walk(
    loaded: LoadedModel,
    examples: Sequence[TextExample],
    *,
    pooling: str = "cls",
    layer: int | str = -1,
    as_in_deck: bool = False,
    limit: int | None = None,
    seed: int = 0,
) -> Generator[Progress, None, FeatureWalk]:
    """Embed texts with a frozen model, fit logistic regression on three quarters of them and score it on the rest.

    `as_in_deck` repeats it without an attention mask. Above `limit`, texts are sampled at random.
    """
    _require_sklearn()
    given = [example for example in examples if not isinstance(example, TextExample) or example.text.strip()]
    used = given if limit is None else [given[index] for index in sample_indices(len(given), limit, seed)]
    texts, labels = _texts_and_labels(used)
    engine = load_engine(LoadedModel("", *loaded), layers=layer, pooling=pooling)
    ids, _ = engine.tokenizer.ids_batch(texts, max_length=engine.max_length)
    longest = max(map(len, ids))
    pad = engine.tokenizer.pad_token_id or 0
    total = len(texts) * (2 if as_in_deck else 1)
    chunks = []
    for start in range(0, len(texts), CHUNK_SIZE):
        chunks.append(engine.embed(texts[start : start + CHUNK_SIZE]))
        done = min(start + CHUNK_SIZE, len(texts))
        yield Progress(stage="embedding", done=done, total=total)
    features = np.concatenate(chunks)
    unmasked = None
    if as_in_deck:
        unmasked = np.empty_like(features)
        for start, vectors in _embed_unmasked(engine, ids, pad):
            unmasked[start : start + len(vectors)] = vectors
            yield Progress(stage="embedding", done=len(texts) + start + len(vectors), total=total)
    first = ids[:ROWS]
    return FeatureWalk(
        model=loaded.name,
        layer=layer,
        texts=texts[:ROWS],
        tokens=[[engine.tokenizer.token(number) for number in one] for one in first],
        ids=first,
        padded=[one + [pad] * (longest - len(one)) for one in first],
        mask=[[1] * len(one) + [0] * (longest - len(one)) for one in first],
        matrix=(len(texts), longest),
        padding=100 * (1 - sum(map(len, ids)) / (len(texts) * longest)),
        hidden=(len(texts), longest, engine.width),
        slice=(len(texts), engine.width),
        features=features[:ROWS].tolist(),
        labels=labels[:ROWS],
        counts=dict(Counter(labels).most_common()),
        pooling=pooling,
        cut=engine.truncated,
        masked=score_regression(features, labels, seed=seed),
        unmasked=None if unmasked is None else score_regression(unmasked, labels, seed=seed),
        similarity=None if unmasked is None else _mean_cosine(features, unmasked),
        examples=list(zip(texts, labels, strict=True)),
        total=len(given),
        seed=seed,
    )


def score_regression(features: Vectors, labels: Sequence[str], *, seed: int = 0) -> RegressionScore:
    """Fit scikit-learn's logistic regression on a stratified split and score it; then cross-validate on all texts."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score, train_test_split

    train_features, test_features, train_labels, test_labels = train_test_split(
        features, list(labels), test_size=TEST_SHARE, random_state=seed, stratify=list(labels)
    )
    most_frequent, _ = Counter(train_labels).most_common(1)[0]
    folds = cross_val_score(LogisticRegression(max_iter=1000), features, list(labels), cv=FOLDS)
    model = LogisticRegression(max_iter=1000).fit(train_features, train_labels)
    return RegressionScore(
        train=len(train_labels),
        test=len(test_labels),
        accuracy=100 * float(model.score(test_features, test_labels)),
        guess=100 * test_labels.count(most_frequent) / len(test_labels),
        mean=100 * float(folds.mean()),
        deviation=100 * float(folds.std()),
        folds=[100 * float(fold) for fold in folds],
    )


def _require_sklearn() -> None:
    """Raise before the work, not after it, when scikit-learn is missing."""
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise InputError("logistic regression needs scikit-learn: pip install scikit-learn") from None


def _texts_and_labels(examples: Sequence[TextExample]) -> tuple[list[str], list[str]]:
    labels = text_labels(examples)
    label, count = min(Counter(labels).items(), key=lambda one: one[1], default=("", 0))
    if len({*labels}) < 2:
        raise InputError(f"all {len(labels)} examples have the same label; expected two labels or more")
    if count < FOLDS:
        raise InputError(
            f"only {count} of {len(labels)} examples have the label {label!r}; {FOLDS} folds need {FOLDS}; add rows"
        )
    return [example.text for example in examples], labels


def _embed_unmasked(
    engine: EmbeddingEngine, ids: Sequence[Sequence[int]], pad: int
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """The vectors of rows padded to the longest text, without an attention mask: the index of the first, and a
    batch."""
    longest = max(map(len, ids))
    size = max(1, DEFAULT_TOKENS // longest)
    for start in range(0, len(ids), size):
        rows = [[*one, *[pad] * (longest - len(one))] for one in ids[start : start + size]]
        batch = collate(rows, packed=False).to(engine.device)
        assert isinstance(batch.layout, Padded)
        assert batch.layout.mask is None
        states = cast("Callable[..., Iterator[Tensor]]", engine.model.states)
        with torch.inference_mode():
            hidden = engine.layers.join(list(engine.layers.select(states(batch.ids, batch.layout))))
            vectors = hidden[:, 0] if engine.pooling == "cls" else hidden.mean(1)
        yield start, vectors.float().cpu().numpy()


def _mean_cosine(one: Vectors, other: Vectors) -> float:
    """In percent, over pairs of rows."""
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return 100 * float(((one * other).sum(1) / np.maximum(norms, 1e-30)).mean())


def _score_lines(masked: RegressionScore, unmasked: RegressionScore | None) -> Iterator[str]:
    scores = [masked] if unmasked is None else [masked, unmasked]
    if unmasked is not None:
        yield f"   {'':42}{'with mask':>18}{'as in the deck':>18}"

    def line(name: str, cells: Sequence[str]) -> str:
        return f"   {name:42}" + "".join(f"{cell:>18}" for cell in cells)

    yield line("accuracy, mean and spread of 5 folds", [f"{one.mean:.2f} +- {one.deviation:.2f}%" for one in scores])
    yield line("lowest and highest fold", [f"{min(one.folds):.1f} to {max(one.folds):.1f}%" for one in scores])
    split = f"one split: {masked.train:,} to train, {masked.test:,} to test"
    yield line(split, [f"{one.accuracy:.2f}%" for one in scores])
    yield line("always guessing the larger class", [f"{one.guess:.2f}%" for one in scores])


def _row(numbers: Sequence[int]) -> str:
    """The start and the end of a row."""
    if len(numbers) <= 12:
        return f"[{', '.join(map(str, numbers))}]"
    return f"[{', '.join(map(str, numbers[:8]))}, ..., {', '.join(map(str, numbers[-3:]))}]"


def _shape(shape: Sequence[int]) -> str:
    return " x ".join(f"{size:,}" for size in shape)
