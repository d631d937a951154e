"""`regard classify`: labels for texts without training (zero-shot classification)."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.text_inputs import DataFrameSource
from regard.errors import InputError, suggest
from regard.events import Event, Note
from regard.known import DEFAULT_EMBEDDING_MODEL
from regard.verbs.base import (
    ModelName,
    Models,
    Precision,
    TextOrFile,
    argument,
    force_option,
    option,
    precision_option,
    seed_option,
    verb,
)
from regard.verbs.tables import RowsRequest, table_options

if TYPE_CHECKING:
    from regard.inference.zero_shot import ClassifyResult, ZeroShotClassifier
    from regard.tasks.evaluation.result import EvaluationResult
    from regard.tasks.prediction.inputs import PredictionInput

SHARD_SIZE = 512  # rows that a crash loses at most: a model of pairs reads each with every label


class ClassifyRequest(RowsRequest):
    source: TextOrFile = argument(
        help="Texts: a file, one per line, or a table; a text; - is standard input.", metavar="INPUT"
    )
    labels: list[str] = option(help="What a text may be about, in words.", metavar="A,B,C", positional=True)
    model: ModelName | None = option(
        None, "-m", help=f"An NLI model, or an embedding model. Default: {DEFAULT_EMBEDDING_MODEL}.", metavar="MODEL"
    )
    hypothesis_template: str | None = option(
        None, help='Text around a label, which is {}. Default: "This example is {}." for NLI, {} alone for vectors.'
    )
    multi_label: bool = option(False, help="A text may have several labels, or none; with an NLI model.")
    none: float | None = option(
        None, help="Answer none where labels fit no better than unrelated ones; RATE of these pass.", metavar="RATE"
    )
    label_column: str | None = option(
        None, help="Column with the right labels of a table: evaluate instead of printing.", metavar="COLUMN"
    )
    output: Path | None = option(
        None, "-o", help="File: .csv, .jsonl or .parquet. Default: print JSON lines.", metavar="FILE", writes=True
    )
    keep: list[str] = option([], help="Columns of the input to copy to the output, or all.", metavar="A,B|all")
    precision: Precision | None = precision_option()
    seed: int = seed_option()
    restart: bool = option(False, help="Classify all rows again, whatever an earlier run has finished.")
    force: bool = force_option()


@verb(ClassifyRequest, result="regard.inference.zero_shot:ClassifyResult", items="predictions")
def classify(request: ClassifyRequest, models: Models) -> Generator[Event, None, ClassifyResult]:
    """Give texts labels that no model was trained on (zero-shot classification).

    With an NLI model, the scores are those of transformers' zero-shot-classification pipeline: each text with each
    label is one pair, so the time grows with the number of labels. Without one, the built-in embedding model compares
    the vectors of text and label; its scores are cosines, which order the labels and are no probabilities.

    --none RATE answers "none" where no label fits: the threshold is chosen on labels that have nothing to do with the
    texts, and the share of them that passes is reported. --label-column evaluates: accuracy and macro F1 with
    intervals. A trained model is better where there are examples: `regard train classify`, then `regard predict`.
    For images: regard similarity IMAGE "a photo of a cat" "a photo of a dog".

    Example: regard classify reviews.csv --columns review --labels "delivery,quality,price" --output labels.csv
    """
    from regard.data.examples import TextExample
    from regard.inference.bulk.job import how_to_continue
    from regard.inference.bulk.parts import check_output
    from regard.inference.prediction import SUFFIXES, predict_file
    from regard.inference.zero_shot import TEXTS, ClassifyResult, ZeroShotClassifier, none_notes, sample_texts
    from regard.tasks.prediction.predict import prediction_events
    from regard.tasks.prediction.result import PredictResult

    name = request.model or DEFAULT_EMBEDDING_MODEL
    if request.none is not None and not 0 < request.none < 1:
        raise InputError(f"none is {request.none}; expected a share between 0 and 1, such as 0.05")
    if request.output is not None:  # what cannot be written is an error before the work
        check_output(request.output, SUFFIXES, force=request.force)
    if request.output is not None and request.label_column is not None:
        raise InputError("--label-column evaluates and writes no labels; leave --output out, or run the command twice")
    with ExitStack() as stack:
        loaded = stack.enter_context(models.use(name))
        classifier = ZeroShotClassifier.of(
            loaded, request.labels, template=request.hypothesis_template, multi_label=request.multi_label
        )
        inputs, none = _open(request, classifier), None
        yield Note(message=_method_note(classifier, name))
        if request.none is not None:
            if inputs.reopen is None:
                raise InputError("--none reads the texts twice, and standard input can be read once; give a file")
            texts = sample_texts(
                (row.example.text for row in inputs.reopen() if isinstance(row.example, TextExample)),
                TEXTS[classifier.method],
            )
            classifier, none = yield from classifier.with_none(texts, request.none)
            for note in none_notes(none):
                yield Note(message=note)
        model = classifier.model.with_precision(request.precision)
        about: dict[str, Any] = {
            "method": classifier.method,
            "labels": list(classifier.labels),
            "template": classifier.template,
            "none": none,
        }
        if request.label_column is not None:
            evaluation = yield from _evaluate(request, classifier, name)
            empty = PredictResult(model=name, task=model.task.name, rows=evaluation.n, predictions=[])
            return ClassifyResult.of(empty, **about, evaluation=evaluation)
        if request.output is None:
            result = yield from prediction_events(model, inputs, name=name)
        else:
            try:
                result = yield from predict_file(
                    loaded,
                    model,
                    inputs,
                    request.output,
                    settings={**about, "none": none and none.model_dump(), "precision": request.precision},
                    shard_size=SHARD_SIZE,
                    restart=request.restart,
                    force=request.force,
                    devices=[str(model.device)],  # other processes do not have the vectors of the labels
                )
            except (Exception, GeneratorExit):
                raise
            except BaseException:  # Ctrl-C, or a signal that ends the process
                yield Note(message=how_to_continue(request.output, request.source))
                raise
        if isinstance(request.source, DataFrameSource) and request.output is None:
            result._frame = request.source.frame
    for note in (*model.precision_notes(), *result.notes()):
        yield Note(message=note)
    return ClassifyResult.of(result, **about)


def _open(request: ClassifyRequest, classifier: ZeroShotClassifier) -> PredictionInput:
    from regard.tasks.prediction.inputs import open_input

    source = request.source.frame if isinstance(request.source, DataFrameSource) else request.source
    return open_input(classifier.model.task, source, table=table_options(request), keep=request.keep)


def _method_note(classifier: ZeroShotClassifier, name: str) -> str:
    if classifier.method == "entailment":
        return f"{name}: NLI with the template {classifier.template!r}; scores as in transformers' pipeline"
    return (
        f"{name}: no NLI model but vectors, with the template {classifier.template!r}; the scores are cosines of text "
        "and label, not probabilities"
    )


def _evaluate(
    request: ClassifyRequest, classifier: ZeroShotClassifier, name: str
) -> Generator[Event, None, EvaluationResult]:
    """The evaluation on the text column and the column of labels of a table."""
    from regard.data.readers import RecordList
    from regard.data.rows import open_rows
    from regard.tasks.evaluation.evaluate import evaluate_model
    from regard.tasks.registry import read_examples

    assert request.label_column is not None
    source: Any = request.source
    reader = open_rows(source, table_options(request), num_texts=1)
    if request.label_column not in reader.columns:
        hint = suggest(request.label_column, reader.columns) if reader.is_table else "give a table with a header"
        raise InputError(f"--label-column: {reader.name} has no column {request.label_column!r}; {hint}")
    if isinstance(source, DataFrameSource):
        source = RecordList.from_source(source.frame)
    columns = [*(reader.text_columns[:1]), request.label_column]
    if columns[0] == columns[1]:
        raise InputError(f"the texts are in the column {columns[0]!r}, too; name theirs with --columns")
    missing = "skip" if request.missing == "skip" else "error"
    table = table_options(request.model_copy(update={"columns": columns, "missing": missing}))
    read = read_examples("classify", source, table=table, labeled=True)
    model = classifier.model.with_precision(request.precision)
    return (yield from evaluate_model(model, read, name=name, seed=request.seed))
