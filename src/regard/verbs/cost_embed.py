"""`regard cost embed`: the cost of embedding many texts, from measured rates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from regard.verbs.base import Models, Request, argument, option, verb

if TYPE_CHECKING:
    from regard.inference.embedding.cost import EmbedCost


class CostEmbedRequest(Request):
    model: str = argument("bert-base-uncased", help="A model folder or a known name.", metavar="NAME")
    texts: str = option(help="Texts to embed: 10B, 1.5e9.", metavar="N")
    length: float = option(128, help="Mean number of tokens per text.", metavar="L")
    gpu: Literal["v100", "a100", "h100", "h200"] = option("h200", help="GPU whose hours are counted.")
    gpus: int = option(1, help="GPUs that compute at the same time.", metavar="N", ge=1, le=1_000_000)
    rate: float | None = option(
        None, help="Texts per second on one GPU that you measured. Default: that of an H200.", metavar="R"
    )
    price: float | None = option(None, help="Price of an hour of one GPU, in any currency.", metavar="P", ge=0)
    shard_size: int = option(65_536, help="Texts per shard.", metavar="N", ge=1)


@verb(CostEmbedRequest, result="regard.inference.embedding.cost:EmbedCost", command="cost embed", http=False)
def cost_embed(request: CostEmbedRequest, models: Models) -> EmbedCost:
    """Estimate what embedding many texts takes: GPU hours, money, shards, bytes, and requests to an object store.

    The rate was measured with BERT-base on one H200, for texts of 21 and of 157 tokens on average; other lengths lie on
    a line, and other models take as much longer as they need more FLOPs. No model is built, downloaded or measured.
    """
    from regard.inference.embedding.cost import estimate_embedding
    from regard.inference.embedding.sentence_transformers import read_sentence_settings
    from regard.training.cost import find_shape, parse_count

    shape = find_shape(request.model)
    options = request.model_dump(exclude={"model", "texts"})
    folder = Path(request.model).expanduser()
    options["settings"] = read_sentence_settings(folder) if folder.is_dir() else None
    return estimate_embedding(shape.config, name=shape.name, texts=parse_count(request.texts, unit="texts"), **options)
