"""`Embedder`: texts to vectors from any layer of any text model, as a scikit-learn transformer.

The work is done by `regard.inference.embedding.engine`; this is the scikit-learn estimator around it.
scikit-learn itself is imported only where its protocol asks for its types.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from torch import nn

from regard.checkpoints.loaded_model import LoadedModel
from regard.checkpoints.loading import find_folder, load
from regard.checkpoints.sentence import SentenceSettings, read_sentence_settings
from regard.device import choose_device
from regard.errors import InputError
from regard.inference.embedding.engine import EmbeddingEngine
from regard.known import DEFAULT_MODEL
from regard.parameters import EstimatorParameters
from regard.text import Tokenizer


def load_engine(
    model: str | os.PathLike[str] | LoadedModel | tuple[nn.Module, Tokenizer | None] = DEFAULT_MODEL,
    *,
    pooling: str | None = None,
    max_length: int | None = None,
    device: str = "auto",
    **options: Any,
) -> EmbeddingEngine:
    """Load a model for embedding; a `LoadedModel` stays on its device.

    Pooling None: what a sentence-transformers folder states, or mean.
    """
    if isinstance(model, LoadedModel):
        folder, loaded, place = model.folder, model, next(model.model.parameters()).device
    elif isinstance(model, tuple):
        folder, loaded, place = None, LoadedModel("", *model), choose_device(device)
    else:
        folder, place = find_folder(model), choose_device(device)
        loaded = LoadedModel("", *load(folder))
    settings = SentenceSettings() if folder is None else read_sentence_settings(folder, pooling=pooling is None)
    if folder is not None and loaded.tokenizer is None and hasattr(loaded.model, "states"):
        Tokenizer.open(folder)  # says what the folder lacks
    pooling = pooling or settings.pooling or "mean"
    return EmbeddingEngine(
        *loaded, pooling=pooling, max_length=max_length, stated=settings.max_length, device=place, **options
    )


class Embedder(EstimatorParameters):
    """Embeddings of texts as a scikit-learn transformer: float32, one row per text, in order.

    `model`: a folder, a built-in name, a Hugging Face hub name, or a (model, tokenizer) pair.
    `layers`: counted as transformers' hidden states, 0 the embeddings' output, -1 the last with the final norm: a
    number, or `sum`, `mean` or `concat` of a slice, such as "concat(-4:)".
    `pooling`: "cls", "mean", "max", or "none" for a list of `TokenVectors`. The default is the mean, or what a
    sentence-transformers folder states.
    `max_length`: in tokens; by default what the folder states or the model's positions. Longer texts are cut.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | tuple[nn.Module, Tokenizer | None] = DEFAULT_MODEL,
        *,
        layers: int | str = -1,
        pooling: str | None = None,
        normalize: bool = False,
        max_length: int | None = None,
        device: str = "auto",
    ) -> None:
        self.model = model
        self.layers = layers
        self.pooling = pooling
        self.normalize = normalize
        self.max_length = max_length
        self.device = device

    def fit(self, X: Any = None, y: Any = None) -> Embedder:
        """Nothing is learned from X; the model is loaded, so that a mistake shows here."""
        self._engine()
        return self

    def transform(self, X: Iterable[str]) -> Any:
        """float32 (n, width); with pooling "none" a list of `TokenVectors`."""
        texts = _texts(X)
        ready = self._engine()
        return ready.embed_tokens(texts) if ready.pooling == "none" else ready.embed(texts)

    def fit_transform(self, X: Iterable[str], y: Any = None) -> Any:
        return self.fit().transform(X)

    def _engine(self) -> EmbeddingEngine:
        """The loaded model, kept until a parameter changes; never copied or pickled with the estimator."""
        wanted = self.get_params()
        held: tuple[Any, EmbeddingEngine] | None = self.__dict__.get("_held")
        if held is None or held[0] != wanted:
            held = wanted, load_engine(**wanted)
            self.__dict__["_held"] = held
        return held[1]

    def __getstate__(self) -> dict[str, Any]:
        return self.get_params()

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type="transformer",
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=[]),
            input_tags=InputTags(two_d_array=False, one_d_array=True, string=True),
            requires_fit=False,
        )


def _texts(X: Iterable[str]) -> list[str]:
    if isinstance(X, str) or not isinstance(X, Iterable):
        raise InputError(f"expected a list of texts, got one {type(X).__name__}; put it in a list")
    texts = list(X)
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"expected texts, got {type(text).__name__} at place {place}")
    return texts
