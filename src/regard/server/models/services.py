"""What a served model computes in batches: vectors of texts, and outputs of its task head. Runs in the model's process.

A service converts the arguments of a request to parts (`prepare`, in the thread that reads requests), computes the
parts of many requests together (`compute`), and makes the reply of a request of the results of its parts (`finish`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from regard.checkpoints.loaded_model import LoadedModel
from regard.checkpoints.reading import reading_count
from regard.data.examples import TextExample
from regard.engine.batches import check_finite
from regard.errors import InputError, suggest
from regard.inference.embedding.engine import EmbeddingEngine, load_engine
from regard.inference.embedding.sparse import SparseEngine, SparseVectors
from regard.inference.reranking import Relevance, Reranker
from regard.inference.search.maxsim import MaxSimReranker
from regard.server.errors import RequestError, invalid, too_long
from regard.tasks.encoder_with_head import EncoderWithHead, compute_logits
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.tasks.task import TaskInput
from regard.text import TokenIds, Tokenizer
from regard.text.reading import ReadingCount

PART_TOKENS = 256  # of a request with many texts that are computed at once, so that others get their turn
MAX_TOKEN_NUMBERS = 5_000_000  # of an answer with the vectors of tokens: about 60 MB of JSON
LABEL_TASKS = ("classify", "pair")


@dataclass(frozen=True)
class PreparedRequest:
    """A request that is ready to be computed: parts with their numbers of tokens, and how to make the reply.

    `warning` tells the client what the model cannot read.
    """

    parts: list[tuple[int, Any]]
    finish: Callable[[list[Any]], Any]
    tokens: int
    warning: str = ""


class BatchService(Protocol):
    """`kind` names what shares a batch of at most `max_tokens` tokens."""

    kind: str
    max_tokens: int

    def prepare(self, arguments: Mapping[str, Any]) -> PreparedRequest: ...

    def compute(self, contents: Sequence[Any]) -> list[Any]: ...


class EmbeddingService:
    """Vectors of texts or of token ids.

    Arguments: `inputs` (strings, or lists of ids without special tokens), `truncate`, `normalize`, `dimensions`,
    `prompt_name` (by default the model's own prompt is put before texts), and `param`, the field that errors name. The
    reply is the bytes of a float32 array, and its number of columns.
    """

    kind = "embed"

    def __init__(self, loaded: LoadedModel, *, precision: str | None = None, max_tokens: int = 0) -> None:
        self.engine: EmbeddingEngine = self._load(loaded, precision)
        self.engine.choose_precision(["The quick brown fox jumps over the lazy dog."])
        self.max_tokens = max_tokens or (1024 if self.engine.device.type == "cpu" else 1 << 14)
        self._reading = reading_count(None if loaded.translator is not None else loaded.folder)
        around = self.engine.tokenizer.encode("")
        self._special = [around.ids[:1], around.ids[1:]] if len(around.ids) == 2 else [around.ids, []]

    def _load(self, loaded: LoadedModel, precision: str | None) -> EmbeddingEngine:
        return load_engine(loaded, normalize=False, precision=precision)

    def warm_up(self) -> None:
        """Compute batches of several sizes, so that the first requests do not wait for compiled kernels."""
        for count in (1, 2, 4, 8, 16):
            self.engine.embed_ids(self.engine.tokenizer.encode_ids(["a text of a few words"] * count))

    def find_prompt(self, name: str) -> str:
        """The prompt of the model's folder with a name; RequestError without one."""
        prompts = self.engine.settings.prompts
        if name not in prompts:
            known = suggest(name[:200], prompts) if prompts else "its folder states no prompts; leave out prompt_name"
            raise invalid(f"prompt_name: this model has no prompt {name[:200]!r}; {known}", param="prompt_name")
        prompt = self.engine.settings.find_prompt(prompt_name=name)
        try:
            self.engine.prompt_length(prompt)
        except InputError as error:
            raise invalid(str(error), param="prompt_name") from None
        return prompt

    def tokenize(self, arguments: Mapping[str, Any]) -> tuple[TokenIds, int, str]:
        """The token ids of a request, how many of a prompt the pooling leaves out, and what the model cannot read."""
        inputs, prompt = arguments["inputs"], self.engine.prompt
        if arguments.get("prompt_name") is not None:
            prompt = self.find_prompt(arguments["prompt_name"])
        if inputs and not isinstance(inputs[0], str):
            if prompt:
                raise invalid("token ids have no prompt before them; send texts", param=arguments["param"])
            tokens = self._from_ids(inputs, arguments)
        else:
            tokens = self.engine.tokenize(inputs, prompt=prompt, cut=arguments["truncate"])
            self._check_length(tokens, arguments["param"])
        skip = self.engine.prompt_length(prompt) if prompt else 0
        warning = ""
        if inputs and isinstance(inputs[0], str):
            warning = unreadable(self._reading, self.engine.tokenizer, inputs, tokens)
        empty = np.flatnonzero(tokens.lengths <= skip)
        if len(empty):
            raise invalid(f"input {int(empty[0])} has no tokens for this model", param=arguments["param"])
        return tokens, skip, warning

    def prepare(self, arguments: Mapping[str, Any]) -> PreparedRequest:
        tokens, skip, warning = self.tokenize(arguments)
        dimensions = arguments.get("dimensions")
        if dimensions is not None and dimensions > self.engine.width:
            raise invalid(
                f"dimensions is {dimensions}; expected at most {self.engine.width}, those of the model",
                param="dimensions",
            )
        normalize = bool(arguments["normalize"])

        def finish(results: list[NDArray[np.float32]]) -> tuple[bytes, int]:
            vectors = results[0] if len(results) == 1 else np.concatenate(results)
            if dimensions is not None:
                vectors = vectors[:, :dimensions]
            if normalize:
                vectors = vectors / np.maximum(np.sqrt(np.square(vectors).sum(-1, keepdims=True)), 1e-12)
            return vectors.astype(np.float32, copy=False).tobytes(), vectors.shape[1]

        total = int(tokens.lengths.sum())
        parts = [(count, (skip, part)) for count, part in _split_tokens(tokens)]
        return PreparedRequest(parts, finish, total, warning)

    def compute(self, contents: Sequence[Any]) -> list[Any]:
        """The vectors of parts; those whose prompt takes no part in the pooling are pooled by its length."""
        results: dict[int, NDArray[np.float32]] = {}
        for skip in {skip for skip, _ in contents}:
            chosen = [index for index, (length, _) in enumerate(contents) if length == skip]
            results |= zip(chosen, self._embed([contents[index][1] for index in chosen], skip), strict=True)
        return [results[index] for index in range(len(contents))]

    def _embed(self, contents: Sequence[TokenIds], skip: int) -> list[NDArray[np.float32]]:
        vectors = self.engine.embed_ids(_join_tokens(contents), prompt_length=skip)
        return np.split(vectors, np.cumsum([len(one) for one in contents])[:-1])

    def _check_length(self, tokens: TokenIds, param: str) -> None:
        longest = int(tokens.lengths.max()) if len(tokens) else 0
        if self.engine.max_length is not None and longest > self.engine.max_length:
            raise too_long(
                f"{param} must have at most {self.engine.max_length} tokens for this model, found {longest}; shorten "
                "the text, or start the server with --auto-truncate",
                param=param,
            )

    def _from_ids(self, rows: Sequence[Sequence[int]], arguments: Mapping[str, Any]) -> TokenIds:
        """Ids as clients count them: the special tokens around them are added."""
        size = int(self.engine.model.config.vocab_size)  # type: ignore[union-attr, arg-type]
        before, after = self._special
        for index, row in enumerate(rows):
            if not row or not all(0 <= number < size for number in row):
                raise invalid(f"input {index} should be token ids from 0 to {size - 1:,}", param=arguments["param"])
        limit = self.engine.max_length if arguments["truncate"] else None
        room = None if limit is None else limit - len(before) - len(after)
        tokens = TokenIds.from_lists([[*before, *row[:room], *after] for row in rows])
        self._check_length(tokens, arguments["param"])
        return tokens


class SparseService(EmbeddingService):
    """Sparse vectors of texts (SPLADE).

    Arguments are those of an `EmbeddingService` without `normalize` and `dimensions`. With the `prompt_name` query the
    texts are queries, for which some models have fixed weights. The reply is, for each text, its columns and values.
    """

    kind = "embed_sparse"
    engine: SparseEngine

    def _load(self, loaded: LoadedModel, precision: str | None) -> EmbeddingEngine:
        self.queries = SparseEngine(loaded, task="query", precision=precision)
        return SparseEngine(loaded, precision=precision)

    def warm_up(self) -> None:
        self.engine.encode_ids(self.engine.tokenizer.encode_ids(["a text of a few words"]))

    def prepare(self, arguments: Mapping[str, Any]) -> PreparedRequest:
        texts = arguments["inputs"]
        if arguments.get("prompt_name") == "query" and self.queries.static is not None:
            if not isinstance(texts[0], str):
                raise invalid("queries of this model are texts, not token ids", param=arguments["param"])
            return PreparedRequest([(len(texts), texts)], _pairs, len(texts))
        tokens, _, warning = self.tokenize(arguments)
        return PreparedRequest(list(_split_tokens(tokens)), _pairs, int(tokens.lengths.sum()), warning)

    def compute(self, contents: Sequence[Any]) -> list[Any]:
        """The rows of each part: of token ids, or of queries with fixed weights."""
        tokens = [one for one in contents if isinstance(one, TokenIds)]
        vectors = self.engine.encode_ids(_join_tokens(tokens)) if tokens else None
        results, start = [], 0
        for one in contents:
            if vectors is None or not isinstance(one, TokenIds):
                results.append(self.queries.encode(list(one)))
                continue
            results.append(vectors.select(np.arange(start, start + len(one))))
            start += len(one)
        return results


def _pairs(parts: Sequence[SparseVectors]) -> list[tuple[list[int], list[float]]]:
    return [(indices.tolist(), values.tolist()) for part in parts for indices, values in part]


class TokenVectorService:
    """Vectors of the tokens of texts, before pooling: for each text those of its prompt and special tokens, too.

    Arguments are those of an `EmbeddingService` without `normalize` and `dimensions`. The reply is the bytes of a
    float32 array, its number of columns, and the number of tokens of each text.
    """

    kind = "embed_all"

    def __init__(self, embedding: EmbeddingService) -> None:
        self.embedding, self.max_tokens = embedding, embedding.max_tokens

    def prepare(self, arguments: Mapping[str, Any]) -> PreparedRequest:
        tokens, _, warning = self.embedding.tokenize(arguments)
        total, width = int(tokens.lengths.sum()), self.embedding.engine.pooled_width
        if total * width > MAX_TOKEN_NUMBERS:
            raise invalid(
                f"{arguments['param']}: {total:,} tokens have {total * width:,} numbers, more than the "
                f"{MAX_TOKEN_NUMBERS:,} of an answer; send several requests",
                param=arguments["param"],
            )

        def finish(results: list[NDArray[np.float32]]) -> tuple[bytes, int, list[int]]:
            vectors = np.concatenate(results)
            return vectors.tobytes(), vectors.shape[1], tokens.lengths.tolist()

        return PreparedRequest(list(_split_tokens(tokens)), finish, total, warning)

    def compute(self, contents: Sequence[TokenIds]) -> list[NDArray[np.float32]]:
        vectors = iter(self.embedding.engine.embed_token_ids(_join_tokens(contents)))
        return [np.concatenate([next(vectors) for _ in range(len(one))]) for one in contents]


class TaskService:
    """Outputs of the head of a model that was fine-tuned to classify texts or to score pairs.

    Arguments: `texts`, a list of pairs (text, second text or None); `truncate`; `param`; and `rerank`, whether
    the reply is the score and the logit of each pair or, for each text, every label with its score (its logit with
    `raw_scores`).
    """

    kind = "task"

    def __init__(self, fine_tuned: FineTunedModel, *, max_tokens: int = 0) -> None:
        if not isinstance(fine_tuned.model, EncoderWithHead) or fine_tuned.task.name not in (*LABEL_TASKS, "regress"):
            raise InputError(f"a model for {fine_tuned.task.name} has neither labels nor scores of texts")
        self.fine_tuned, self.task = fine_tuned, fine_tuned.task
        self.model, self.builder, self.max_length = fine_tuned.model, fine_tuned.input_builder, fine_tuned.length
        self.reranker: Reranker | None = None
        with suppress(InputError):  # a model of single texts, or of more than two classes
            self.reranker = Reranker(fine_tuned)
        self._reading = reading_count(fine_tuned.folder)
        self.max_tokens = max_tokens or (1024 if fine_tuned.device.type == "cpu" else 1 << 14)

    @property
    def predicts(self) -> bool:
        return self.task.name in LABEL_TASKS or self.fine_tuned.published is not None

    @property
    def reranks(self) -> bool:
        return self.reranker is not None

    def prepare(self, arguments: Mapping[str, Any]) -> PreparedRequest:
        pairs, param = arguments["texts"], arguments["param"]
        wanted = self.task.num_texts
        for index, (_, second) in enumerate(pairs):
            if wanted is not None and (second is None) != (wanted == 1):
                raise invalid(
                    f"input {index} should be {'one text' if wanted == 1 else 'a pair of texts'}, as this is a model "
                    f"for {self.task.name}",
                    param=param,
                )
        reranker = self.reranker if arguments["rerank"] else None
        examples = [TextExample(text, second) for text, second in pairs]
        inputs: list[TaskInput]
        inputs = self.task.preprocess(examples, self.builder) if reranker is None else reranker.preprocess(pairs)
        cut = next((i for i, one in enumerate(inputs) if any(row.num_truncated for row in one.sequences)), None)
        if cut is not None and not arguments["truncate"]:
            raise cut_error(param, self.max_length, cut)

        def finish(results: list[list[torch.Tensor]]) -> list[Any]:
            if reranker is None:
                return self._labels(results, raw=arguments["raw_scores"])
            found = reranker.relevance(inputs, [row for part in results for row in part])
            return [(one.score, one.logit) for one in found]

        texts = [" ".join(filter(None, pair)) for pair in pairs]
        rows = TokenIds.from_lists([[token for row in one.sequences for token in row.ids] for one in inputs])
        assert self.fine_tuned.tokenizer is not None
        warning = unreadable(self._reading, self.fine_tuned.tokenizer, texts, rows)
        if reranker is not None and cut is not None:
            warning = "; ".join(filter(None, [warning, cut_warning(param, cut)]))
        parts = [(total, inputs[texts]) for texts, total in _parts([len(one) for one in inputs])]
        tokens = sum(total for total, _ in parts)
        return PreparedRequest(parts, finish, tokens, warning)

    def compute(self, contents: Sequence[Sequence[TaskInput]]) -> list[list[torch.Tensor]]:
        inputs = [one for part in contents for one in part]
        logits: list[torch.Tensor] = [torch.empty(0)] * len(inputs)
        device = self.fine_tuned.device
        precision = self.fine_tuned.computing_precision(device)
        if precision == "auto":
            precision = self.fine_tuned.choose_precision(inputs)
        with torch.inference_mode():
            for index, output in compute_logits(self.model, inputs, device, precision=precision):
                logits[index] = output
        check_finite(logits, self.fine_tuned.name)
        ends = np.cumsum([len(part) for part in contents]).tolist()
        return [logits[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]

    def _labels(self, results: list[list[torch.Tensor]], *, raw: bool) -> list[list[tuple[str, float]]]:
        """Each label with its score, the highest first."""
        logits = torch.cat([row for part in results for row in part]).double()
        scores = logits if raw else self.task.scores(logits)
        labels = self.task.labels
        return [
            sorted(zip(labels, row, strict=True), key=lambda entry: entry[1], reverse=True) for row in scores.tolist()
        ]


class MaxSimService:
    """Scores of texts for a query by a multi-vector model (ColBERT); the arguments are those of a `TaskService`.

    MaxSim is no logit: the reply is the score and None for each pair.
    """

    kind = "task"
    reranks = True
    predicts = False

    def __init__(self, loaded: LoadedModel, *, precision: str | None = None, max_tokens: int = 0) -> None:
        self.reranker = MaxSimReranker(loaded, precision=precision)
        self.reranker.choose_precision(["The quick brown fox jumps over the lazy dog."])
        self.engine = self.reranker.documents
        self.max_length = self.engine.max_length
        self._reading = reading_count(loaded.folder)
        self.max_tokens = max_tokens or (1024 if self.engine.device.type == "cpu" else 1 << 14)

    def prepare(self, arguments: Mapping[str, Any]) -> PreparedRequest:
        texts, param = [text for _, text in arguments["texts"]], arguments["param"]
        query = arguments["texts"][0][0]  # that of all pairs
        tokens = self.engine.tokenize(texts)
        cut = np.flatnonzero(tokens.num_truncated)
        if len(cut) and not arguments["truncate"]:
            raise cut_error(param, self.max_length, int(cut[0]))
        warning = unreadable(self._reading, self.engine.tokenizer, texts, tokens)
        if len(cut):
            warning = "; ".join(filter(None, [warning, cut_warning(param, int(cut[0]))]))
        parts = [(total, (query, part)) for total, part in _split_tokens(tokens)]

        def finish(results: list[list[Relevance]]) -> list[tuple[float, None]]:
            return [(one.score, None) for part in results for one in part]

        return PreparedRequest(parts, finish, int(tokens.lengths.sum()), warning)

    def compute(self, contents: Sequence[tuple[str, TokenIds]]) -> list[list[Relevance]]:
        queries = {query: self.reranker.encode_query(query)[0] for query in {query for query, _ in contents}}
        documents = iter(self.reranker.encode_ids(_join_tokens([tokens for _, tokens in contents])))
        return [
            self.reranker.relevance(queries[query], [next(documents) for _ in range(len(tokens))])
            for query, tokens in contents
        ]


def cut_error(param: str, length: int | None, index: int) -> RequestError:
    return too_long(
        f"{param} must have at most {length} tokens for this model, and input {index} has more; shorten it, or start "
        "the server with --auto-truncate",
        param=param,
    )


def cut_warning(param: str, index: int) -> str:
    return f"{param}: input {index} is too long, and was cut"


def unreadable(reading: ReadingCount, tokenizer: Tokenizer, texts: Sequence[str], tokens: TokenIds) -> str:
    """What the model cannot read of a request; the language is tested for a few texts only."""
    count = ReadingCount(reading.language, reading.is_foreign, max_tested=4)
    tokenizer.count(count, texts, tokens)
    return count.note("the model") or ""


def _join_tokens(contents: Sequence[TokenIds]) -> TokenIds:
    if len(contents) == 1:
        return contents[0]
    return TokenIds(
        np.concatenate([one.ids for one in contents]),
        np.concatenate([one.lengths for one in contents]),
        np.concatenate([one.num_truncated for one in contents]),
    )


def _split_tokens(tokens: TokenIds) -> Iterator[tuple[int, TokenIds]]:
    before = 0
    for texts, total in _parts(tokens.lengths.tolist()):
        yield total, TokenIds(tokens.ids[before : before + total], tokens.lengths[texts], tokens.num_truncated[texts])
        before += total


def _parts(lengths: Sequence[int]) -> Iterator[tuple[slice, int]]:
    """Consecutive texts in parts of at most PART_TOKENS tokens, or of one text, with their number of tokens."""
    start = total = 0
    for index, length in enumerate(lengths):
        if index > start and total + length > PART_TOKENS:
            yield slice(start, index), total
            start, total = index, 0
        total += length
    yield slice(start, len(lengths)), total
