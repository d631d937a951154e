"""`regard train distill`: a smaller student of a fine-tuned model."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

from regard.events import Event
from regard.verbs.base import Models, option, verb
from regard.verbs.train import FineTuningRequest

if TYPE_CHECKING:
    from regard.training.recipes.finetuning.report import FineTuningReport


class DistillRequest(FineTuningRequest):
    teacher: Path = option(help="A folder that `regard train` wrote.", metavar="DIR")
    layers: int = option(help="Layers of the student.", metavar="N", ge=1)


@verb(
    DistillRequest,
    result="regard.training.recipes.finetuning.report:FineTuningReport",
    http=False,
    command="train distill",
)
def distill(request: DistillRequest, models: Models) -> Generator[Event, None, FineTuningReport]:
    """Distill a fine-tuned model into a student with fewer layers: DistilBERT's recipe, for any task.

    The student starts with evenly chosen layers of the teacher. It learns the labels, the teacher's logits at
    temperature 2, and the direction of the teacher's hidden states.
    """
    from regard.training.recipes.finetuning.config import DISTILLATION_DEFAULTS
    from regard.training.recipes.finetuning.run import distill

    config = request.load_config(DISTILLATION_DEFAULTS)
    return (
        yield from distill(
            request.teacher, request.train, request.dev, layers=request.layers, config=config, **request.run_options()
        )
    )
