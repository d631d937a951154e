"""`Embedder`: texts to vectors from any layer of any text model, as a scikit-learn transformer.

scikit-learn is imported only where its protocol requires its types.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import nn

from regard.checkpoints.loaded_model import LoadedModel
from regard.checkpoints.loading import find_folder
from regard.checkpoints.reading import CountedModel
from regard.data.text_inputs import check_columns, read_texts, remember_columns
from regard.errors import InputError, check_choice
from regard.inference.embedding.engine import EmbeddingEngine, load_engine
from regard.known import DEFAULT_EMBEDDING_MODEL
from regard.parameters import EstimatorParameters
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.text import Tokenizer


class Embedder(EstimatorParameters):
    """Embeddings of texts as a scikit-learn transformer: float32, one row per text, in order.

    `model`: a folder, a built-in name, a Hugging Face hub name, or what `regard.load` returned.
    `layers`: counted as transformers' hidden states, 0 the embeddings' output, -1 the last with the final norm: a
    number, or `sum`, `mean` or `concat` of a slice, such as "concat(-4:)".
    `pooling`: "cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", several joined by "+", or
    "none" for a list of `TokenVectors`. The default is the mean, or what a sentence-transformers folder states with the
    modules that follow there.
    `normalize`: scale each vector to length 1; by default what such a folder states.
    `prompt` is put before every text, or the prompt with the name `prompt_name` in such a folder; by default the one
    that is the folder's default, if there is one. "" is no prompt.
    `max_length`: in tokens; by default what the folder states or the model's positions. Longer texts are cut.
    `precision`: "fp32", "bf16" (on a GPU), "int8" (on a CPU), or "auto" for the fastest with a cosine of at least 0.98
    to fp32 on a sample of the first texts. The default is fp32 on a CPU, and bf16 on a GPU that has it.

    X is a list, tuple or generator of texts, a Series, an array (n) or (n, 1), or a DataFrame with one column. A
    missing text (None, NaN) is an error that names its row. `set_output(transform="pandas")` returns DataFrames.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | tuple[nn.Module, Tokenizer | None] | FineTunedModel = DEFAULT_EMBEDDING_MODEL,
        *,
        layers: int | str = -1,
        pooling: str | None = None,
        normalize: bool | None = None,
        max_length: int | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        device: str = "auto",
        precision: str | None = None,
    ) -> None:
        self.model = model
        self.layers = layers
        self.pooling = pooling
        self.normalize = normalize
        self.max_length = max_length
        self.prompt = prompt
        self.prompt_name = prompt_name
        self.device = device
        self.precision = precision

    def fit(self, X: Any = None, y: Any = None) -> Embedder:
        """Nothing is learned from X but the name of its column; the model is loaded, so that a mistake shows here."""
        self._engine()
        if hasattr(X, "columns"):
            remember_columns(self, read_texts(X, estimator="Embedder"))
        return self

    def transform(self, X: Any) -> Any:
        """float32 (n, width); with pooling "none" a list of `TokenVectors`."""
        inputs = read_texts(X, estimator="Embedder")
        check_columns(self, inputs)
        texts = [str(text) for text in inputs.present()]
        ready = self._engine()
        vectors: Any = ready.embed_tokens(texts) if ready.pooling == "none" else ready.embed(texts)
        self.__dict__["_counted"].warn(str(self.model) if isinstance(self.model, str) else "the model")
        return vectors if ready.pooling == "none" else self._as_output(vectors, inputs.index)

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        return self.fit(X).transform(X)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The names of the dimensions: embedder0, embedder1, and so on."""
        engine = self._engine()
        if engine.pooling == "none":
            raise InputError('pooling "none" gives a vector per token, which are no columns; choose another pooling')
        return np.array([f"embedder{index}" for index in range(engine.width)], dtype=object)

    def set_output(self, *, transform: Literal["default", "pandas", "polars"] | None = None) -> Embedder:
        """Choose what `transform` returns: an array ("default"), or a DataFrame of pandas or polars."""
        if transform is not None:
            check_choice("output", transform, ("default", "pandas", "polars"))
            self._sklearn_output_config = {"transform": transform}  # the name that scikit-learn's clone copies
        return self

    def _as_output(self, vectors: NDArray[np.float32], index: Any) -> Any:
        chosen = getattr(self, "_sklearn_output_config", {}).get("transform")
        if chosen is None and "sklearn" in sys.modules:
            chosen = sys.modules["sklearn"].get_config()["transform_output"]
        if chosen not in ("pandas", "polars"):
            return vectors
        names = list(self.get_feature_names_out())
        library: Any = import_module(chosen)
        if chosen == "pandas":
            return library.DataFrame(vectors, columns=names, index=index)
        return library.DataFrame(vectors, schema=names)

    def _engine(self) -> EmbeddingEngine:
        """The loaded model, kept until a parameter changes; never copied or pickled with the estimator."""
        wanted = self.get_params()
        held: tuple[Any, EmbeddingEngine] | None = self.__dict__.get("_held")
        if held is None or held[0] != wanted:
            held = wanted, load_engine(**wanted)
            counted = CountedModel(LoadedModel("", held[1].model, held[1].tokenizer, folder=_folder(self.model)))
            held[1].tokenizer = counted.loaded.tokenizer
            self.__dict__.update(_held=held, _counted=counted)
        return held[1]

    def __getstate__(self) -> dict[str, Any]:
        learned = ("_sklearn_output_config", "feature_names_in_", "n_features_in_")
        return self.get_params() | {name: getattr(self, name) for name in learned if hasattr(self, name)}

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


def _folder(model: object) -> Path | None:
    return find_folder(model) if isinstance(model, str | os.PathLike) else getattr(model, "folder", None)
