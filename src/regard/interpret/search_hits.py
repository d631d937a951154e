"""Why a text was found, where a model computes the score: integrated gradients over the tokens of the text.

Dense search compares vectors: the tokens of a text are given what they add to the product of its vector with that of
the query. A reranker reads query and text together: all tokens are given what they add to its logit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import InputError
from regard.inference.embedding.engine import EmbeddingEngine
from regard.inference.reranking import Reranker
from regard.inference.search.explain import Explainer, Explanation, ScorePart
from regard.interpret.attention.maps import display_token
from regard.interpret.attribution.attributions import integrated_gradients
from regard.interpret.attribution.probe import TextProbe, special_ids, task_probe
from regard.models.family import can, family_name
from regard.nn.masks import Packed
from regard.nn.pooling import pool


def dense_explainer(engine: EmbeddingEngine, prompt: str) -> Explainer:
    """Explain the cosines, or products, of dense search; `prompt` is put before the texts of the index."""
    last = engine.model.config.num_hidden_layers  # type: ignore[union-attr]
    model: Any = engine.model
    if engine.long == "windows":
        raise InputError("the vectors of long texts are those of several windows, which cannot be explained")
    if not (can(model, "text-encoder") or can(model, "causal-lm")) or engine.layers.chosen != (last,):
        raise InputError(
            f"hits of this {family_name(model)} model cannot be explained: expected vectors of the last layer of an "
            "encoder or a decoder; use the method bm25 or splade"
        )
    skip = engine.prompt_length(prompt) if prompt else 0

    def explain(query: str, texts: Sequence[str]) -> list[Explanation]:
        wanted = torch.from_numpy(engine.embed([query])[0]).to(engine.device)

        def read(hidden: Tensor) -> Tensor:
            layout = Packed.from_lengths([hidden.shape[1]] * len(hidden), device=hidden.device)
            vectors = engine.finished(pool(hidden.flatten(0, 1), layout, engine.pooling, skip=skip))
            vectors = F.normalize(vectors, dim=-1) if engine.normalize else vectors
            return (vectors @ wanted)[:, None, None]

        return [_explained("dense", _text_probe(engine, model, prompt, text, read)) for text in texts]

    return explain


def rerank_explainer(reranker: Reranker) -> Explainer:
    """Explain the logits of a reranker."""

    def explain(query: str, texts: Sequence[str]) -> list[Explanation]:
        found = []
        for text in texts:
            try:
                probe = task_probe(reranker.model, reranker.prompt + query, text)
            except InputError as error:  # the pair is cut
                found.append(Explanation(method="reranker", value=0.0, parts=[], note=str(error)))
                continue
            read, positive = probe.read, reranker.positive

            def logit(hidden: Tensor, read: Any = read, positive: int | None = positive) -> Tensor:
                logits: Tensor = read(hidden)
                return logits if positive is None else (logits[..., positive] - logits[..., 1 - positive])[..., None]

            found.append(_explained("reranker", replace(probe, read=logit, outputs=("relevance",))))
        return found

    return explain


def _text_probe(engine: EmbeddingEngine, model: Any, prompt: str, text: str, read: Any) -> TextProbe:
    ids = engine.tokenize([text], prompt=prompt).ids.astype(np.int64)
    special = special_ids(engine.tokenizer)
    return TextProbe(
        task="search",
        texts=(text,),
        model=model,
        encoder=model,
        tokenizer=engine.tokenizer,
        ids=torch.from_numpy(ids).to(engine.device),
        tokens=tuple(map(engine.tokenizer.token, ids.tolist())),
        token_texts=tuple(display_token(engine.tokenizer, number) for number in ids.tolist()),
        special=tuple(number in special for number in ids.tolist()),
        targets=("the score",),
        outputs=("score",),
        read=read,
    )


def _explained(method: str, probe: TextProbe) -> Explanation:
    found = integrated_gradients(probe, output=probe.outputs[0])
    parts = [
        ScorePart(name=name.strip() or name, contribution=score)
        for name, score, special in zip(probe.token_texts, found.scores, probe.special, strict=True)
        if not special or score
    ]
    return Explanation(
        method=method,
        value=found.value,
        parts=parts,
        baseline_value=found.baseline_value or 0.0,
        completeness_error=found.completeness_error or 0.0,
    )
