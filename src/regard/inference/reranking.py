"""`Reranker`: scores of texts for a query, by a model that reads both together (a cross-encoder).

Every door uses it: `regard rerank`, `regard search --rerank`, and the servers' /rerank and /v1/rerank. The order and
the scores are those of sentence-transformers' `CrossEncoder.rank`. A multi-vector model takes its place there as a
`search.maxsim.MaxSimReranker`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from pydantic import BaseModel, ConfigDict, PrivateAttr
from torch import Tensor

from regard.checkpoints.cross_encoder import read_cross_encoder
from regard.data.batch import group_by_size
from regard.data.examples import TextExample
from regard.data.readers.tables import Missing
from regard.data.rows import Row, RowReader
from regard.engine.batches import check_finite
from regard.errors import InputError
from regard.events import Event, Progress, map_events
from regard.inference.search.results import kept_columns, one_line, with_columns
from regard.render.result import Result, Table
from regard.tasks.encoder_with_head import EncoderWithHead, compute_logits
from regard.tasks.fine_tuned_model import CHUNK_SIZE, STEP, FineTunedModel
from regard.tasks.prediction.inputs import chosen_columns
from regard.tasks.sequence_classification import ACTIVATIONS
from regard.tasks.task import TaskInput
from regard.wording import count_of, were

if TYPE_CHECKING:
    from regard.inference.search.index import AnyReranker

# Names of the class of two that says that a text fits, in any case.
RELEVANT = ("1", "true", "yes", "positive", "relevant", "entailment", "duplicate", "paraphrase", "equivalent")
EXPECTED = "expected a model of pairs of texts with one output, such as a published reranker or what `regard train "
EXPECTED += "regress` wrote, or with two classes, such as what `regard train pair` wrote"


@dataclass(frozen=True, slots=True)
class Relevance:
    """How well a text fits a query. Texts are ordered by `logit`: the output of the model, or the log-odds of the
    positive one of two classes. `score` is what `CrossEncoder` returns: the logit after the model's activation."""

    score: float
    logit: float
    truncated: bool = False


class Reranker:
    """A model that scores pairs of a query and a text with one number; InputError for any other model."""

    def __init__(self, model: FineTunedModel) -> None:
        task = model.task
        what = f"a model for {task.name} cannot rerank"
        if not isinstance(model.model, EncoderWithHead) or not task.pooled or task.num_texts not in (2, None):
            raise InputError(f"{what}; {EXPECTED}")
        self.positive: int | None = None
        if task.num_outputs == 2 and task.problem_type == "single_label_classification":
            self.positive = _positive(model)
        elif task.num_outputs != 1:
            raise InputError(f"a model for {task.name} with {task.num_outputs} classes cannot rerank; {EXPECTED}")
        published = model.folder if model.published is not None else None
        self.model, self.task = model, task
        self.prompt = "" if published is None else read_cross_encoder(published).prompt
        activation = getattr(task, "activation", "identity") if self.positive is None else "sigmoid"
        self.activation = ACTIVATIONS[activation]

    def precision_notes(self) -> list[str]:
        """What precision auto was and why, once it is known."""
        return self.model.precision_notes()

    def preprocess(self, pairs: Sequence[tuple[str, str]]) -> list[TaskInput]:
        """The inputs of pairs of a query and a text, truncated as sentence-transformers does it."""
        examples = [TextExample(self.prompt + query, text) for query, text in pairs]
        return self.task.preprocess(examples, self.model.input_builder)

    def relevance(self, inputs: Sequence[TaskInput], logits: Sequence[Tensor]) -> list[Relevance]:
        """The scores of inputs; `logits` has the (positions, outputs) of each."""
        rows = torch.stack([row.double().mean(0) for row in logits])  # a decoder reads a pair in both orders
        values = rows[:, 0] if self.positive is None else rows[:, self.positive] - rows[:, 1 - self.positive]
        check_finite([values], self.model.name)
        scores = self.activation(values).tolist()
        return [
            Relevance(score, logit, any(sequence.num_truncated for sequence in one.sequences))
            for one, score, logit in zip(inputs, scores, values.tolist(), strict=True)
        ]

    def steps(self, query: str, texts: Sequence[str]) -> Generator[int, None, list[Relevance]]:
        """The relevance of each text, in order; yields the number of finished texts from time to time."""
        if not texts:
            return []
        inputs = self.preprocess([(query, text) for text in texts])
        device = self.model.device
        precision = self.model.computing_precision(device)
        if precision == "auto":
            precision = self.model.choose_precision(inputs)
        logits: list[Tensor] = [torch.empty(0)] * len(inputs)
        outputs = compute_logits(self.model.model, inputs, device, precision=precision)
        for finished, (index, part) in enumerate(outputs, start=1):
            logits[index] = part
            if finished % STEP == 0:
                yield finished
        return self.relevance(inputs, logits)


def _positive(model: FineTunedModel) -> int:
    """The index of the class that says that a text fits; InputError if nothing tells which of the two it is."""
    labels = [str(label) for label in model.task.labels]
    stated = getattr(model.task, "positive_label", None)
    if stated is not None:
        return labels.index(stated)
    found = [index for index, label in enumerate(labels) if label.casefold() in RELEVANT]
    if len(found) != 1:
        raise InputError(
            f"{model.name} has the classes {labels[0]!r} and {labels[1]!r}, and nothing tells which one says that a "
            f"text fits; name that one in id2label and label2id of its config.json, such as {RELEVANT[4]!r}"
        )
    return found[0]


class RerankedText(BaseModel):
    """A text, ranked from 1, with its number in the input from 0 and the columns that are kept. A row without a text
    has no scores and comes last."""

    model_config = ConfigDict(frozen=True)

    rank: int
    row: int
    score: float | None
    logit: float | None
    text: str
    columns: dict[str, Any]


class RerankResult(Result):
    """Texts in the order of their relevance to a query. `rows` is the number of rows that were read; `blank` ones have
    no text, and `truncated` texts were cut together with the query."""

    query: str
    model: str
    rows: int
    blank: int
    truncated: int
    results: list[RerankedText]
    _notes: list[str] = PrivateAttr(default_factory=list)

    def to_text(self) -> str:
        lines = [one_line(self.query)]
        for one in self.results:
            score = " " * 17 if one.score is None else f"{one.score:8.4f} {one.logit:8.4f}"
            lines.append(f"{score}  {one.row:>6}  {one_line(one.text)}{kept_columns(one.columns)}")
        return "\n".join(lines)

    def to_table(self) -> Table:
        rows = [([one.rank, one.row, one.score, one.logit, one.text], one.columns) for one in self.results]
        return with_columns(["rank", "row", "score", "logit", "text"], rows)

    def notes(self) -> list[str]:
        """What happened to rows that are blank, skipped or too long."""
        pairs = f"{count_of(self.truncated, 'pair')} of query and text"
        cut = f"{pairs} had too many tokens and {were(self.truncated)} cut"
        return [*self._notes, *([cut] if self.truncated else [])]


def rerank_rows(
    reranker: AnyReranker,
    query: str,
    rows: RowReader,
    *,
    top: int | None = None,
    keep: Sequence[str] = (),
    missing: Missing = "keep",
    name: str = "",
) -> Generator[Event, None, RerankResult]:
    """Rank the rows of a table; with `top`, only the best ones are ever in memory. `keep` as for predictions."""
    kept = chosen_columns(keep, rows.columns, rows.name)
    best: list[tuple[Row, Relevance]] = []
    blank: list[Row] = []
    count = num_blank = truncated = 0
    for group in group_by_size(rows.read(missing), lambda row: len(row.texts[0] or ""), most=CHUNK_SIZE):
        present = [row for row in group if row.texts[0] is not None]
        missed = [row for row in group if row.texts[0] is None]
        steps = reranker.steps(query, [row.texts[0] or "" for row in present])
        progress = partial(_progress, before=count)
        found: list[Relevance] = yield from map_events(steps, progress)
        count += len(group)
        num_blank += len(missed)
        truncated += sum(one.truncated for one in found)
        best = sorted([*best, *zip(present, found, strict=True)], key=lambda pair: -pair[1].logit)[:top]
        blank = [*blank, *missed][:top]
        yield _progress(count)
    if not count:
        raise InputError(f"{rows.name} is empty; expected at least one row")
    scored: list[tuple[Row, Relevance | None]] = [*best, *((row, None) for row in blank)]
    result = RerankResult(
        query=query,
        model=name,
        rows=count,
        blank=num_blank,
        truncated=truncated,
        results=[
            RerankedText(
                rank=rank,
                row=row.number,
                score=None if found is None else found.score,
                logit=None if found is None else found.logit,
                text=row.texts[0] or "",
                columns={column: row.values.get(column) for column in kept},
            )
            for rank, (row, found) in enumerate(scored[:top], 1)
        ],
    )
    if note := rows.missing_note(missing):
        result._notes.append(note)
    return result


def _progress(done: int, before: int = 0) -> Progress:
    return Progress(stage="scoring", done=before + done, unit="rows")
