"""`regard train embed`: train a sentence-embedding model on pairs of texts, or on a teacher's vectors."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import InputError
from regard.events import Event
from regard.verbs.base import ModelName, Models, model_option, option, verb
from regard.verbs.tables import TableRequest, table_options
from regard.verbs.train import RunRequest, Settings, assignments, settings_option

if TYPE_CHECKING:
    from regard.training.recipes.embedding.config import EmbeddingConfig
    from regard.training.recipes.embedding.recipe import EmbeddingReport


class TrainEmbedderRequest(RunRequest, TableRequest):
    train: Path = option(
        help="Pairs, triplets (anchor, positive, negative) or scored pairs of texts; texts with --teacher.",
        metavar="FILE",
    )
    dev: Path | None = option(
        None,
        help="Scored pairs (Spearman correlation) or pairs (recall@1, MRR) to evaluate on. Default: a tenth of scored "
        "pairs.",
        metavar="FILE",
    )
    model: ModelName | None = model_option(
        None, help="Model to start from: a BERT or the like. Default: regard-embed; regard-bert with --teacher."
    )
    teacher: str | None = option(None, help="Embedding model whose vectors are the targets.", metavar="MODEL")
    settings: Settings = settings_option("training.batch_size=128")
    budget: str | None = option(None, help="Length of the run in time, such as 20min.", metavar="TIME")
    temperature: float | None = option(
        None, help="Temperature of the softmax over the batch. Default: 0.05.", metavar="T", gt=0
    )
    matryoshka: list[int] | None = option(
        None, help="Sizes of truncated vectors to train too, such as 384,192,96.", metavar="N,N"
    )


@verb(
    TrainEmbedderRequest,
    result="regard.training.recipes.embedding.recipe:EmbeddingReport",
    http=False,
    command="train embed",
)
def train_embedder(request: TrainEmbedderRequest, models: Models) -> Generator[Event, None, EmbeddingReport]:
    """Train a sentence-embedding model that sentence-transformers loads too.

    Pairs and triplets are trained with in-batch negatives: the other rows of a batch are wrong answers. Scored pairs
    are trained with CoSENT, which learns their order. With --teacher, FILE has one text per line, and the model learns
    the teacher's vectors of them.
    """
    from regard.training.recipes.embedding.data import read_text_rows, read_texts
    from regard.training.recipes.embedding.recipe import train_embedder

    config = _load_config(request)
    table = table_options(request)

    if request.teacher is not None and request.columns is not None and len(request.columns) > 1:
        raise InputError("--teacher needs one column of texts; name it with --columns, or leave that out")
    train = read_text_rows(request.train, table) if request.teacher is None else read_texts(request.train, table)
    return (
        yield from train_embedder(
            train,
            None if request.dev is None else read_text_rows(request.dev, table),
            model=request.model,
            teacher=request.teacher,
            config=config,
            **request.run_options(),
        )
    )


def _load_config(request: TrainEmbedderRequest) -> EmbeddingConfig:
    from regard.training.recipes.embedding.config import EmbeddingConfig

    given = {
        "training.budget": request.budget,
        "objective.temperature": request.temperature,
        "objective.matryoshka": request.matryoshka,
    }
    return EmbeddingConfig.load(request.config_file(), overrides=[*assignments(given), *request.settings])
