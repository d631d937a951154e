"""`regard senses`: the vectors of one word in several texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from regard.known import DEFAULT_MODEL
from regard.verbs.base import PAGE, ModelName, Models, Request, argument, option, seed_option, verb

if TYPE_CHECKING:
    from regard.interpret.embeddings import SensesResult


class SensesRequest(Request):
    word: str = argument(help="A word that occurs in all texts.")
    texts: list[str] = argument(help="Texts in which the word may have different meanings.", metavar="TEXT")
    model: list[ModelName] = option(
        [DEFAULT_MODEL], "-m", help="A model folder, a hub name or a built-in name; may be repeated.", metavar="MODEL"
    )
    static: Path | None = option(
        None, help="Static vectors to compare with, in the text format of word2vec or GloVe.", metavar="FILE"
    )
    limit: int = option(60, help="Maximum number of texts; more are sampled at random.", metavar="N", ge=2, le=1000)
    seed: int = seed_option()


@verb(
    SensesRequest,
    result="regard.interpret.embeddings:SensesResult",
    formats=(*PAGE, ".csv", ".json"),
    notes=True,
    max_characters=300_000,
)
def senses(request: SensesRequest, models: Models) -> SensesResult:
    """Compare the vectors of one word in several texts: does a model give it another meaning there?

    The table has the cosine similarity of the word's vectors in each pair of texts, for every layer of a BERT, GPT, T5
    or ELMo. Static vectors do not depend on the text. The first occurrence of the whole word counts, and the vectors of
    its pieces are averaged. A page (.html) shows one model.

    Example: regard senses train "He took a train." "He likes to train in the mornings."
    """
    from regard.interpret.embeddings import compare_senses

    return compare_senses(
        request.word,
        request.texts,
        use=models.use,
        models=list(dict.fromkeys(request.model)),
        static=request.static,
        limit=request.limit,
        seed=request.seed,
    )
