"""Runs long jobs of `regard.inference` to their end and returns the result."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from regard.checkpoints.loaded_model import LoadedModel
from regard.device import choose_device
from regard.events import Event, drain
from regard.inference.benchmark import BenchmarkItem, BenchmarkResult, benchmark_events
from regard.inference.bulk.job import BulkProgress, DamageNote
from regard.inference.embedding.bulk import EmbedResult, Source, embed_events
from regard.inference.likelihood import Perplexity, perplexity_events
from regard.inference.load_model import load_model
from regard.known import DEFAULT_MODEL


def measure_perplexity(
    model: Any, tokenizer: Any, text: str, *, on_progress: Callable[[int, int], None] | None = None, **options: Any
) -> Perplexity:
    report = on_progress or (lambda done, total: None)
    return drain(
        perplexity_events(model, tokenizer, text, **options), lambda event: report(event.done, event.total or 0)
    )


def run_benchmark(
    model: Any,
    tokenizer: Any,
    task: str,
    items: Sequence[BenchmarkItem],
    *,
    on_progress: Callable[[int], None] = lambda done: None,
) -> BenchmarkResult:
    return drain(benchmark_events(model, tokenizer, task, items), lambda event: on_progress(event.done))


def embed_file(
    source: Source,
    output: str | os.PathLike[str] | None,
    *,
    model: str | os.PathLike[str] = DEFAULT_MODEL,
    device: str = "auto",
    on_progress: Callable[[BulkProgress], None] = lambda progress: None,
    on_damaged: Callable[[str], None] = lambda problem: None,
    **options: Any,
) -> EmbedResult:
    def load() -> LoadedModel:
        return load_model(model, device=choose_device(device))

    def on_event(event: Event) -> None:
        if isinstance(event, BulkProgress):
            on_progress(event)
        elif isinstance(event, DamageNote):
            on_damaged(event.message)

    return drain(embed_events(source, output, load, **options), on_event)
