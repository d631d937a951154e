"""A model of a server: what it can do, and the operations behind it. Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import Any

import torch

from regard.checkpoints.loaded_model import LoadedModel
from regard.device import choose_device
from regard.errors import InputError
from regard.inference.embedding.engine import describe_missing_head
from regard.inference.embedding.sentence_transformers import read_sentence_settings
from regard.inference.embedding.sparse import is_sparse_encoder, read_sparse_settings
from regard.inference.generation.decoder import reuse_packed_weights
from regard.inference.generation.text_generator import REPLACEMENT
from regard.inference.load_model import load_model
from regard.inference.model_summary import summarize_folder, summarize_model
from regard.inference.search.maxsim import is_multi_vector
from regard.models.family import can
from regard.server.errors import invalid
from regard.server.models import client_verbs as verbs
from regard.server.models.completion_job import ChatJob, CompletionJob
from regard.server.models.messages import Reply
from regard.server.models.services import (
    BatchService,
    EmbeddingService,
    MaxSimService,
    SparseService,
    TaskService,
    TokenVectorService,
)
from regard.server.models.verb_job import SMALL_MODEL, ProcessModels, VerbJob
from regard.server.models.worker import Job, ModelWorker
from regard.text import Tokenizer

MAX_LANES = 4


class ServedModel:
    """A loaded model with the operations that it can answer: in the lane for verbs only these, else all others.

    `setup` has its `name` and `path`, its `lane` and the fields of `ModelOptions`; `max_batch_tokens` 0 is what suits
    the device.
    """

    def __init__(self, setup: Mapping[str, Any], load: Callable[..., LoadedModel] = load_model) -> None:
        if setup["threads"]:
            torch.set_num_threads(setup["threads"])
        self.name, path, local = setup["name"], setup["path"], setup["local"]
        loaded = load(path, device=choose_device(setup["device"]))
        self.loaded = loaded = replace(loaded, name=self.name)  # results and errors name the model: clients see no path
        loaded.model.eval()
        is_sparse = loaded.folder is not None and is_sparse_encoder(loaded.folder)
        is_maxsim = loaded.folder is not None and loaded.fine_tuned is None and is_multi_vector(loaded.folder)
        if (
            loaded.folder is not None and not local and loaded.fine_tuned is None and not is_maxsim
        ):  # what is not followed is an error
            read_sparse_settings(loaded.folder) if is_sparse else read_sentence_settings(loaded.folder)
        self.embedding: EmbeddingService | None = None
        self.sparse: SparseService | None = None
        self.task: TaskService | MaxSimService | None = None
        self.jobs: dict[str, Job] = {}
        if setup["lane"] == "verbs":
            threads = 0 if local and not setup["threads"] else torch.get_num_threads()
            models = ProcessModels(self.name, loaded, {self.name: path}, threads=threads, local=local, load=load)
            self.jobs["verb"] = VerbJob(models)
            return
        precision, max_tokens = setup["precision"], setup["max_batch_tokens"]
        with suppress(InputError):  # an image model or a translator, which have other operations
            self.embedding = EmbeddingService(loaded, precision=precision, max_tokens=max_tokens)
        if is_sparse:
            self.sparse = SparseService(loaded, precision=precision, max_tokens=max_tokens)
            self.sparse.warm_up()
        if is_maxsim:
            self.task = MaxSimService(loaded, precision=precision, max_tokens=max_tokens)
        elif loaded.fine_tuned is not None:
            with suppress(InputError):  # a task without labels or scores, which has verbs
                self.task = TaskService(loaded.fine_tuned.with_precision(precision), max_tokens=max_tokens)
        elif can(loaded.model, "text-generation"):
            self.jobs["generate"] = CompletionJob(loaded)
            if loaded.tokenizer.chat_template is not None:
                self.jobs["chat"] = ChatJob(loaded)
        if self.embedding is not None:
            self.embedding.warm_up()

    @property
    def services(self) -> dict[str, BatchService]:
        """The operations whose requests are computed together."""
        found: dict[str, BatchService | None] = {
            "embed": self.embedding,
            "embed_sparse": self.sparse,
            "task": self.task,
        }
        if self.embedding is not None:
            found["embed_all"] = TokenVectorService(self.embedding)
        return {name: service for name, service in found.items() if service is not None}

    def info(self) -> dict[str, Any]:
        """What the server needs to know of the model; `operations` are those that it answers."""
        summary = summarize_model(self.loaded)
        service, task = self.embedding or self.sparse, self.task
        engine = service and service.engine
        answered = {
            "embed": self.embedding is not None,
            "embed_sparse": self.sparse is not None,
            "predict": task is not None and task.predicts,
            "rerank": task is not None and task.reranks,
            "generate": "generate" in self.jobs,
            "chat": "chat" in self.jobs,
            "tokenize": isinstance(self.loaded.tokenizer, Tokenizer),
        }
        parameter = next(self.loaded.model.parameters())
        return {
            **summary.model_dump(),
            "operations": [operation for operation, is_answered in answered.items() if is_answered],
            "labels": list(task.fine_tuned.labels) if isinstance(task, TaskService) else [],
            "pooling": engine and engine.pooling,
            "width": engine and engine.width,
            "max_length": self._max_length(),
            "max_batch_tokens": max((one.max_tokens for one in self.services.values()), default=0),
            "dtype": str(parameter.dtype).removeprefix("torch."),
            "device": str(parameter.device),
            "note": self.embedding and describe_missing_head(self.loaded),
        }

    def worker(self, send: Callable[[list[Reply]], None]) -> ModelWorker:
        """The scheduler with all operations of the model."""
        functions: dict[str, Any] = {
            "tokenize": self._tokenize,
            "decode": self._decode,
            "branch": self._branch,
            "summaries": _summaries,
            "openapi": _openapi,
        }
        lanes, threads = self._lanes(), torch.get_num_threads()

        def use_threads(alone: bool) -> None:
            wanted = threads if alone else max(1, threads // lanes)
            if torch.get_num_threads() != wanted:
                torch.set_num_threads(wanted)

        return ModelWorker(self.services, self.jobs, functions, send, lanes=lanes, use_threads=use_threads)

    def _lanes(self) -> int:
        """Batches at the same time. On a CPU two cores compute two batches of a small model a third faster than one
        batch together, because threads of one batch wait for each other at every operation."""
        parameters = sum(parameter.numel() for parameter in self.loaded.model.parameters())
        device = next(self.loaded.model.parameters()).device
        return min(MAX_LANES, torch.get_num_threads()) if device.type == "cpu" and parameters <= SMALL_MODEL else 1

    def computing(self) -> AbstractContextManager[None]:
        """Inside this context, all completions share the weights that are packed for a CPU."""
        return reuse_packed_weights() if "generate" in self.jobs else nullcontext()

    def _max_length(self) -> int | None:
        if self.task is not None:
            return self.task.max_length
        if (service := self.embedding or self.sparse) is not None:
            return service.engine.max_length
        return getattr(getattr(self.loaded.model, "config", None), "max_position_embeddings", None)

    def _tokenize(self, arguments: Mapping[str, Any]) -> list[list[tuple[int, str, bool, int | None, int | None]]]:
        """For each text, its tokens: id, text, whether it is special, and the characters [start, stop)."""
        tokenizer: Tokenizer = self.loaded.tokenizer
        texts = arguments["inputs"]
        if (name := arguments.get("prompt_name")) is not None:
            if (service := self.embedding or self.sparse) is None:
                raise invalid("prompt_name: this model embeds no texts, so it has no prompts", param="prompt_name")
            prompt = service.find_prompt(name)
            texts = [prompt + text for text in texts]
        encodings = tokenizer.encode_batch(texts, add_special_tokens=arguments["add_special_tokens"])
        return [
            [
                (number, token, True, None, None) if special else (number, text[start:stop], False, start, stop)
                for number, token, (start, stop), special in zip(
                    one.ids, one.tokens, one.offsets, one.special_tokens_mask, strict=True
                )
            ]
            for text, one in zip(texts, encodings, strict=True)
        ]

    def _decode(self, arguments: Mapping[str, Any]) -> list[str]:
        tokenizer: Tokenizer = self.loaded.tokenizer
        return [tokenizer.decode(row, skip_special_tokens=arguments["skip_special_tokens"]) for row in arguments["ids"]]

    def _branch(self, arguments: Mapping[str, Any]) -> str:
        """The prompt that goes on after a branch of a generated text: decoding needs the tokens before it, since a
        character may have several tokens."""
        tokenizer = self.loaded.tokenizer
        if not can(self.loaded.model, "causal-lm") or not isinstance(tokenizer, Tokenizer):
            raise InputError(f"{self.name} does not continue its prompt, so there is no prompt for a branch")
        if not all(0 <= token < tokenizer.size for token in arguments["ids"]):
            raise InputError(f"'ids' should be numbers of tokens below {tokenizer.size:,}")
        before = tokenizer.encode(arguments["prompt"], add_special_tokens=False).ids
        new = tokenizer.decode([*before, *arguments["ids"]])[len(tokenizer.decode(before)) :]
        if new.endswith(REPLACEMENT):
            raise InputError("this branch ends inside a character; go on from its next token")
        return str(arguments["prompt"]) + new


def _summaries(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What models can do, from their files: by name."""
    return {name: summarize_folder(path).model_dump() for name, path in arguments["paths"].items()}


def _openapi(arguments: Mapping[str, Any]) -> bytes:
    """The description of the verbs: their results are types of modules that import torch."""
    return verbs.encode(verbs.describe())
