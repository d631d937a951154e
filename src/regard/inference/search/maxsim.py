"""Multi-vector models (ColBERT, Khattab and Zaharia, 2020): a vector for each token, compared by MaxSim.

score(q, d) = sum over the tokens i of q of  max over the tokens j of d of  q_i . d_j

The folders are those of sentence-transformers' MultiVectorEncoder. Such a model scores the best texts of a search
again.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.checkpoints.loaded_model import LoadedModel
from regard.checkpoints.module_folders import (
    HARMLESS_MODEL,
    HARMLESS_TRANSFORMER,
    MODEL_CONFIG,
    MODULES,
    ConfigKeys,
    Module,
    model_type,
    read_modules,
)
from regard.errors import InputError, RegardError
from regard.events import drain
from regard.inference.embedding.engine import EmbeddingEngine
from regard.inference.embedding.modules import READERS, TOKENS, VectorModule, read_module
from regard.inference.embedding.sentence_transformers import TASK_PROMPTS, SentenceSettings
from regard.inference.reranking import Relevance
from regard.inference.search.explain import Explanation, ScorePart
from regard.nn.masks import Padded
from regard.text import TokenIds

MULTI_VECTOR = "MultiVectorEncoder"
SIMILARITIES = ("maxsim", "meanmaxsim")
BLOCK = 64  # texts whose vectors are in memory at once
EXPANSION = ("strategy", "attend", "token", "length")
Vectors = NDArray[np.float64]


def is_multi_vector(folder: Path) -> bool:
    """Whether a folder is that of a multi-vector model."""
    return model_type(folder) == MULTI_VECTOR


class MaxSimReranker:
    """A multi-vector model as a reranker; InputError names what its folder says that Regard does not follow."""

    def __init__(self, loaded: LoadedModel, *, precision: str | None = None) -> None:
        folder = loaded.folder
        if folder is None or not is_multi_vector(folder):
            raise InputError(f"{loaded.name} is no multi-vector model; expected a folder of {MULTI_VECTOR}")
        model = ConfigKeys(folder / MODEL_CONFIG)
        model.expect("model_type", MULTI_VECTOR)
        prompts, _ = model.take_prompts(*TASK_PROMPTS)
        self.similarity = model.take("similarity_fn_name") or "maxsim"
        model.finish(HARMLESS_MODEL)
        if self.similarity not in SIMILARITIES:
            raise InputError(
                f"{folder}: similarity_fn_name is {self.similarity!r}; expected {' or '.join(SIMILARITIES)}"
            )
        modules = read_modules(folder)
        if not modules or modules[0].kind != "Transformer":
            raise InputError(f"{folder / MODULES}: expected a Transformer first, and then Dense and others")
        self.name, (transformer, *others) = loaded.name, modules
        keys = transformer.keys()
        keys.expect("transformer_task", "feature-extraction")
        keys.expect("do_lower_case", False)
        sizes = ("max_seq_length", "document_length", "query_length")
        max_length, document_length, query_length = (keys.take_count(name) for name in sizes)
        self.expansion = _expansion(keys)
        keys.finish(HARMLESS_TRANSFORMER)
        self.skipped: dict[str, set[int]] = {"query": set(), "document": set()}
        self.modules: list[VectorModule] = []
        for module in others:
            if module.kind == "MultiVectorMask":
                self._read_mask(module, loaded.tokenizer)
            elif module.kind in READERS:
                found = read_module(module, of=TOKENS)
                self.modules += [] if found is None else [found]
            else:
                raise InputError(
                    f"{folder / MODULES}: unsupported module: {module.kind}; expected Transformer, and then any "
                    f"of {', '.join(READERS)} and MultiVectorMask"
                )
        device = next(loaded.model.parameters()).device

        def engine(task: Any, length: int | None) -> EmbeddingEngine:
            settings = SentenceSettings(max_length=length or max_length, prompts=prompts)
            return EmbeddingEngine(
                loaded.model,
                loaded.tokenizer,
                pooling="none",
                prompt=settings.find_prompt(task=task),
                settings=settings,
                device=device,
                precision=precision,
            )

        self.documents = engine("document", document_length)
        if self.expansion is not None:
            floor = self.expansion["length"]
            query_length = floor if self.expansion["strategy"] == "fixed" else query_length and max(query_length, floor)
        self.queries = engine("query", query_length)

    def _read_mask(self, module: Module, tokenizer: Any) -> None:
        keys = module.keys()
        tasks, words = keys.take("skiplist_tasks") or ["document"], keys.take("skiplist_words") or []
        keys.finish()
        unknown = set([tasks] if isinstance(tasks, str) else tasks) - set(self.skipped)
        if unknown or not isinstance(words, list):
            raise InputError(f"{keys.path}: skiplist_tasks is {tasks!r}; expected query, document or both")
        vocabulary = tokenizer.vocabulary
        ids = {vocabulary[word] for word in words if word in vocabulary}  # others are no tokens
        for task in [tasks] if isinstance(tasks, str) else tasks:
            self.skipped[task] |= ids

    def encode_query(self, query: str) -> tuple[Vectors, list[str], bool]:
        """The vectors of a query, the tokens that they are of, and whether the query was cut."""
        tokens = self.queries.tokenize([query])
        ids, cut = tokens.ids.tolist(), bool(tokens.num_truncated[0])
        missing = 0 if self.expansion is None else max(0, int(self.expansion["length"]) - len(ids))
        if not missing:
            (hidden,) = self.queries.embed_token_ids(tokens)
        elif self.expansion is not None and self.expansion["attend"]:
            ids += [self._expansion_id()] * missing
            (hidden,) = self.queries.embed_token_ids(TokenIds.from_lists([ids]))
        else:  # the tokens that expand the query read the others, and are not read
            mask = torch.tensor([[True] * len(ids) + [False] * missing], device=self.queries.device)
            ids += [self._expansion_id()] * missing
            with torch.inference_mode():
                rows = torch.tensor([ids], device=self.queries.device)
                hidden = self.queries.model(rows, Padded(mask))[0].float().cpu().numpy()
        kept = [position for position, number in enumerate(ids) if number not in self.skipped["query"]]
        return self._finished(hidden)[kept], [self.queries.tokenizer.token(ids[position]) for position in kept], cut

    def encode_documents(self, texts: Sequence[str]) -> list[tuple[Vectors, list[int], bool]]:
        """For each text its vectors, the ids of their tokens, and whether it was cut."""
        return self.encode_ids(self.documents.tokenize(texts), characters=sum(map(len, texts)))

    def encode_ids(self, tokens: TokenIds, *, characters: int = 0) -> list[tuple[Vectors, list[int], bool]]:
        """`encode_documents` of texts that `documents` tokenized."""
        hidden = self.documents.embed_token_ids(tokens, characters=characters)
        found = []
        rows = np.split(tokens.ids, np.cumsum(tokens.lengths)[:-1])
        for ids, vectors, cut in zip(rows, hidden, tokens.num_truncated.tolist(), strict=True):
            kept = [position for position, number in enumerate(ids.tolist()) if number not in self.skipped["document"]]
            found.append((self._finished(vectors)[kept], ids[kept].tolist(), bool(cut)))
        return found

    def steps(self, query: str, texts: Sequence[str]) -> Generator[int, None, list[Relevance]]:
        """The relevance of each text, in order; yields the number of finished texts from time to time."""
        if not texts:
            return []
        self.choose_precision(texts)
        vectors, _, _ = self.encode_query(query)
        found: list[Relevance] = []
        for start in range(0, len(texts), BLOCK):
            found += self.relevance(vectors, self.encode_documents(texts[start : start + BLOCK]))
            yield len(found)
        return found

    def choose_precision(self, texts: Sequence[str]) -> None:
        """Decide what precision auto is, if that is not decided: that of the texts, and then of queries."""
        if self.documents.precision == "auto":
            self.documents.choose_precision(texts)
            self.queries.precision = self.documents.precision

    def precision_notes(self) -> list[str]:
        """What precision auto was and why, once it is known."""
        return [self.documents.choice] if self.documents.choice else []

    def relevance(self, query: Vectors, documents: Sequence[tuple[Vectors, list[int], bool]]) -> list[Relevance]:
        """The MaxSim of each text, which is both score and logit; RegardError if one is not finite."""
        scores = [sum_of(self._maxima(query, vectors)[0]) for vectors, _, _ in documents]
        if not np.isfinite(scores).all():
            raise RegardError(f"{self.name} computed NaN or infinity; its checkpoint may be damaged")
        return [Relevance(score, score, cut) for score, (_, _, cut) in zip(scores, documents, strict=True)]

    def relevance_of(self, query: str, texts: Sequence[str]) -> list[Relevance]:
        """The relevance of each text, in order."""
        return drain(self.steps(query, texts))

    def explain(self, query: str, texts: Sequence[str]) -> list[Explanation]:
        """For each token of the query the token of the text that it is most similar to; these sum to the score."""
        vectors, names, _ = self.encode_query(query)
        found = []
        for document, ids, _ in self.encode_documents(texts):
            values, nearest = self._maxima(vectors, document)
            pairs = [
                f"{name} ~ {self.documents.tokenizer.token(ids[position])}"
                for name, position in zip(names, nearest, strict=False)  # a text without tokens has none
            ]
            parts = [ScorePart(name=pair, contribution=value) for pair, value in zip(pairs, values, strict=True)]
            found.append(Explanation(method="maxsim", value=sum_of(values), parts=parts))
        return found

    def _maxima(self, query: Vectors, document: Vectors) -> tuple[list[float], list[int]]:
        """What each token of a query adds to the score, and the token of the text that it is most similar to."""
        if not len(query) or not len(document):
            return [], []
        products = query @ document.T
        values = products.max(axis=1) / (len(query) if self.similarity == "meanmaxsim" else 1)
        return values.tolist(), products.argmax(axis=1).tolist()

    def _finished(self, hidden: NDArray[np.float32]) -> Vectors:
        with torch.inference_mode():
            vectors = torch.from_numpy(hidden)
            for module in self.modules:
                vectors = module(vectors)
        return vectors.double().numpy()

    def _expansion_id(self) -> int:
        tokenizer, token = self.queries.tokenizer, (self.expansion or {}).get("token")
        if token is not None:
            return int(tokenizer.id(token))
        found = tokenizer.mask_token_id if tokenizer.mask_token_id is not None else tokenizer.eos_token_id
        if found is None:
            raise InputError(f"{self.name}: query_expansion needs a mask token, and the tokenizer has none")
        return int(found)


def sum_of(values: Sequence[float]) -> float:
    """The sum from left to right."""
    total = 0.0
    for value in values:
        total += value
    return total


def _expansion(keys: ConfigKeys) -> dict[str, Any] | None:
    """How queries are expanded; None if they are not."""
    stated = keys.take("query_expansion")
    if stated is None:
        return None
    length = stated.get("length") if isinstance(stated, dict) else None
    if not isinstance(length, int) or length < 1 or stated.get("strategy") not in ("fixed", "min"):
        raise InputError(f"{keys.path}: query_expansion is {stated!r}; expected a strategy and a length")
    if unknown := set(stated) - set(EXPANSION):
        raise InputError(f"{keys.path}: query_expansion has {', '.join(sorted(unknown))}; expected none of this")
    return {"attend": False, "token": None, **stated}
