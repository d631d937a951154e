"""`regard predict`: the predictions of a fine-tuned model for new input."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import field_validator

from regard.data.files import STANDARD_INPUT
from regard.errors import InputError
from regard.events import Event, Note
from regard.verbs.base import ModelName, Models, TextPairsOrFile, argument, option, verb
from regard.verbs.tables import TableRequest, table_options

if TYPE_CHECKING:
    from regard.data.examples import Example
    from regard.interpret.attribution.predictions import PredictResult
    from regard.tasks.fine_tuned_model import FineTunedModel


class PredictRequest(TableRequest):
    model: ModelName = argument(help="A model folder that `regard train` wrote.", metavar="DIR")
    source: TextPairsOrFile = argument(
        help="A file, - for standard input, or a text of several words. In Python also a list of texts or pairs.",
        metavar="INPUT",
    )
    threshold: float | None = option(
        None, help="answer: minimum margin of the best answer over no answer.", metavar="X"
    )
    page: Path | None = option(
        None,
        help="Also write a page with the first 50 examples, with attention and attributions.",
        metavar="FILE.html",
    )
    evidence: bool = option(
        False, help="Compute attention and attributions of the first 50 examples, which the page shows."
    )

    @field_validator("page")
    @classmethod
    def _check_page(cls, value: Path | None) -> Path | None:
        if value is not None and value.suffix.lower() not in (".html", ".htm"):
            raise ValueError("expected a name that ends in .html")
        return value

    def table_flags(self) -> list[str]:
        pairs = any(not isinstance(item, str) for item in self.source)
        return ["--columns", "0,1"] if pairs and self.columns is None else []


@verb(
    PredictRequest,
    result="regard.interpret.attribution.predictions:PredictResult",
    formats=(".html", ".csv", ".json"),
    items="predictions",
)
def predict(request: PredictRequest, models: Models) -> Generator[Event, None, PredictResult]:
    """Predict labels, entities or answers with a fine-tuned model; prints one JSON object per line.

    classify and tag read one text per line, or TSV, CSV and JSONL. pair reads two columns, or the keys text_a and
    text_b. answer reads the columns or keys question and context, or SQuAD's JSON. choose reads what
    `regard train choose` reads, with or without labels. --columns selects other columns or keys, without that of the
    label. --page writes an HTML file that works offline.
    """
    from regard.files.disk import replace_file
    from regard.interpret.attribution.predictions import PAGE_EXAMPLES, prediction_events
    from regard.render.bundle import check_built
    from regard.tasks.fine_tuned_model import CHUNK_SIZE, describe_compute, fine_tuned_of, require_fine_tuned

    with ExitStack() as stack:
        page = None
        if request.page is not None:  # what cannot be written is an error before the work
            check_built()
            page = stack.enter_context(replace_file(request.page))
        loaded = stack.enter_context(models.use(request.model, require_fine_tuned))
        fine_tuned = fine_tuned_of(loaded).with_threshold(request.threshold)
        yield Note(message=describe_compute(fine_tuned, next(fine_tuned.model.parameters()).device))
        result = yield from prediction_events(
            request.model,
            fine_tuned,
            _examples(request, fine_tuned),
            # Who writes to standard input may wait for a prediction before sending the next line.
            chunk_size=1 if request.source == STANDARD_INPUT else CHUNK_SIZE,
            evidence=request.evidence or page is not None,
        )
        if page is not None:
            result.with_reproduction(predict.command_line(request), predict.python_code(request))
            page.write_text(result.to_html(), encoding="utf-8")
    if request.page is not None:
        count = min(result._count, PAGE_EXAMPLES)
        yield Note(message=f"{request.page}: {count:,} of {result._count:,} examples")
    return result


def _examples(request: PredictRequest, fine_tuned: FineTunedModel) -> Iterator[Example]:
    from regard.interpret.attribution.predictions import parse_example
    from regard.tasks.registry import new_examples

    if isinstance(request.source, str):
        yield from new_examples(fine_tuned.task.name, request.source, table=table_options(request))
        return
    if fine_tuned.task.reads_images:
        raise InputError("this model reads images; give the name of an image file or of a folder")
    if not request.source:
        raise InputError("there are no texts; expected at least one")
    for item in request.source:
        yield parse_example(fine_tuned, *([item] if isinstance(item, str) else item))
