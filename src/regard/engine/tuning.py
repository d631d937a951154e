"""The number of threads and of tokens per batch on a CPU: measured once per machine and model, and kept.

A measurement takes less than a second: it times a few layers of the model. It is made when there is enough work to gain
from it; until then, and where nothing can be measured, the defaults hold.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from weakref import WeakKeyDictionary

import torch
from torch import nn

from regard.engine.memory import reuse_freed_memory
from regard.errors import InputError
from regard.files.checksums import CACHE_VARIABLES, cache_folder
from regard.files.disk import replace_file
from regard.files.json_files import json_bytes, read_json
from regard.nn.layer import Layer, layers_of
from regard.nn.masks import Packed

GPU_TOKENS = 1 << 14  # per batch on a GPU: enough to fill it
DEFAULT_TOKENS = 1024  # per batch on a CPU: what its caches hold
CANDIDATES = (1024, 2048, 512)  # tokens per batch
MIN_WORK = 1 << 17  # characters of text for which a measurement pays
SECONDS = 0.8  # of a measurement
LENGTH = 32  # tokens per sequence of a measurement
ROUNDS = 3
LAYERS = 4  # that are timed one after the other: the weights of one alone would stay in the cache


_known: dict[Path, dict[str, CpuSettings]] = {}  # by the file that stores them
_first_layers: WeakKeyDictionary[nn.Module, list[Layer]] = WeakKeyDictionary()


@dataclass(frozen=True)
class CpuSettings:
    """What a measurement found. `seconds` is the time of one layer for one token; 0: not measured."""

    threads: int
    tokens: int
    seconds: float = 0.0


@contextmanager
def cpu_settings(device: torch.device, model: nn.Module, precision: str, *, work: int) -> Iterator[CpuSettings]:
    """Inside the block, compute with the settings for a job of `work` characters.

    Beside a GPU the CPU's cores tokenize; tensor operations on several threads would wait for them.
    """
    settings = CpuSettings(1, GPU_TOKENS)
    if device.type == "cpu":
        reuse_freed_memory()
        settings = stored_settings(model, precision, measured=work >= MIN_WORK)
    with use_threads(settings.threads):
        yield settings


def stored_settings(model: nn.Module, precision: str, *, measured: bool) -> CpuSettings:
    """The settings of this machine for a model; if there are none, `measured` ones or the defaults."""
    threads = torch.get_num_threads()
    layers = _first_layers.get(model)
    if layers is None:
        layers = _first_layers[model] = layers_of(model)[:LAYERS]
    if not layers:
        return CpuSettings(threads, DEFAULT_TOKENS)
    key = _key(threads, layers[0].shape, precision)
    found = _read().get(key)
    if found is None and measured:
        found = measure(layers, threads)
        _write(key, found)
    return found or CpuSettings(threads, DEFAULT_TOKENS)


def measure(layers: Sequence[Layer], threads: int) -> CpuSettings:
    """Time layers with several batch sizes, then with fewer threads."""
    deadline = time.perf_counter() + SECONDS
    best = CpuSettings(threads, DEFAULT_TOKENS, float("inf"))
    for tokens in CANDIDATES:
        if time.perf_counter() < deadline:
            best = _faster(best, CpuSettings(threads, tokens, _time(layers, threads, tokens, deadline)))
    for fewer in sorted({threads // 2, 1} - {0, threads}, reverse=True):
        if time.perf_counter() < deadline:
            best = _faster(best, CpuSettings(fewer, best.tokens, _time(layers, fewer, best.tokens, deadline)))
    return best


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Compute with `count` threads inside the block."""
    before = torch.get_num_threads()
    if count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count != before:
            torch.set_num_threads(before)


def _faster(one: CpuSettings, other: CpuSettings) -> CpuSettings:
    """The faster settings; small differences are noise."""
    return other if other.seconds < 0.95 * one.seconds else one


def _time(layers: Sequence[Layer], threads: int, tokens: int, deadline: float) -> float:
    """The best time of one layer for one token."""
    layout = Packed.from_lengths([LENGTH] * (tokens // LENGTH))
    inputs = {layer.width: torch.randn(tokens, layer.width) for layer in layers}

    def run() -> float:
        start = time.perf_counter()
        for layer in layers:
            layer.apply_alone(inputs[layer.width], layout)
        return (time.perf_counter() - start) / tokens / len(layers)

    best = float("inf")
    with use_threads(threads), torch.inference_mode():
        run()
        for _ in range(ROUNDS):
            best = min(best, run())
            if time.perf_counter() > deadline:
                break
    return best


@cache
def _key(threads: int, shape: str, precision: str) -> str:
    return f"{_machine()}, {threads} threads, {shape}, {precision}"


@cache
def _machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"


def settings_file() -> Path:
    return _settings_file(*map(os.environ.get, CACHE_VARIABLES))


@cache
def _settings_file(*variables: str | None) -> Path:
    return cache_folder() / "cpu_settings.json"


def _read() -> dict[str, CpuSettings]:
    """The stored settings, read once per process; what cannot be read is measured again."""
    path = settings_file()
    if path not in _known:
        try:
            document = read_json(path) if path.is_file() else {}
            _known[path] = {key: CpuSettings(**value) for key, value in document.items()}  # type: ignore[arg-type]
        except (InputError, OSError, TypeError):
            _known[path] = {}
    return _known[path]


def _write(key: str, settings: CpuSettings) -> None:
    """Keep the settings. A folder that cannot be written costs the next process a measurement."""
    path, entries = settings_file(), _read()
    entries[key] = settings
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as temporary:
            temporary.write_bytes(json_bytes({name: asdict(value) for name, value in entries.items()}))
    except (InputError, OSError):
        return
