"""What training a model costs: parameters, operations, hours of a GPU and money, by arithmetic alone.

Knows shapes of models, published peak speeds and the rule of six operations for a parameter and a token. Measures
nothing and never holds a model: parameters are counted without their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from regard.errors import InputError, check_choice, suggest
from regard.known import builtin_folder, builtin_names
from regard.models.family import Checkpoint, build, get_family, known_checkpoints

__all__ = ["GPT3", "GPUS", "LENGTH", "UTILISATION", "Cost", "Subject", "cost", "parse_count", "subject_named"]

# The highest speed of matrix products in half precision with float32 sums, without sparsity, as the maker states it.
GPUS = {"v100": 125e12, "a100": 312e12, "h100": 989e12, "h200": 989e12}
UTILISATION = 0.3  # of that speed: an assumption, to be replaced by a measurement
LENGTH = 512  # of a row, where a model has no positions

# The shape that the paper of GPT-3 gives for its largest model.
GPT3 = Checkpoint(
    "gpt3",
    174_604_259_328,
    {
        "hidden_size": 12288,
        "num_hidden_layers": 96,
        "num_attention_heads": 96,
        "intermediate_size": 49152,
        "max_position_embeddings": 2048,
    },
    family="gpt2",
)
_SUFFIXES = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_HALVES = ("t5", "transformer", "seq2seq")  # a token passes through the encoder or the decoder, not through both


@dataclass(frozen=True)
class Subject:
    """A model to be trained: its shape, its parameters, and how many tokens a row of its training has."""

    name: str
    config: Any
    parameters: int
    length: int

    @classmethod
    def of(cls, name: str, config: Any, *, heads: tuple[str, ...] | None = None, length: int | None = None) -> Subject:
        """`length` None: as many tokens as the model has positions."""
        return cls(name, config, _count(config, heads), length or _positions(config))


@dataclass(frozen=True)
class Cost:
    """`flops` is the rule 6 N D, with N the parameters a token passes and D the tokens; `flops_with_attention` adds the
    products of queries, keys and values. Hours, years and money are those of `flops` on one GPU."""

    model: str
    parameters: int
    active_parameters: int
    tokens: int
    length: int
    flops: float
    flops_with_attention: float
    gpu: str
    peak_flops: float
    utilisation: float
    gpu_hours: float
    gpu_years: float
    price: float | None
    money: float | None


def cost(
    subject: Subject, *, tokens: int, gpu: str = "v100", utilisation: float = UTILISATION, price: float | None = None
) -> Cost:
    """What it takes to train on so many tokens; `price` is that of an hour of one GPU, and None leaves `money` open."""
    check_choice("GPU", gpu, GPUS)
    if tokens < 1:
        raise InputError(f"tokens is {tokens}; expected how many the model reads in training, at least 1")
    if not 0 < utilisation <= 1:
        raise InputError(f"utilisation is {utilisation:g}; expected a share of the GPU's peak, above 0 and at most 1")
    if price is not None and not 0 <= price < float("inf"):
        raise InputError(f"price is {price:g}; expected what an hour of one GPU costs, 0 or more")
    active = subject.parameters // 2 if subject.config.family in _HALVES else subject.parameters
    flops = 6.0 * active * tokens
    hours = flops / (GPUS[gpu] * utilisation) / 3600
    return Cost(
        model=subject.name,
        parameters=subject.parameters,
        active_parameters=active,
        tokens=tokens,
        length=subject.length,
        flops=flops,
        flops_with_attention=flops + _attention(subject.config, subject.length) * tokens,
        gpu=gpu,
        peak_flops=GPUS[gpu],
        utilisation=utilisation,
        gpu_hours=hours,
        gpu_years=hours / 24 / 365,
        price=price,
        money=None if price is None else hours * price,
    )


def subject_named(name: str, *, length: int | None = None) -> Subject:
    """A model folder, a built-in name, "gpt3", or a known checkpoint, which may go without its owner: "gpt2-xl".

    Nothing is fetched, and of a folder config.json alone is read: it is counted with the usual heads of its family.
    """
    folder = Path(name).expanduser()
    if name in builtin_names() and not folder.is_dir():
        folder = builtin_folder(name)
    if folder.is_dir():
        return _of_folder(folder, name, length)
    known = {checkpoint.name: checkpoint for checkpoint in (GPT3, *known_checkpoints())}
    short = {full.rpartition("/")[2]: full for full in known}
    if (full := short.get(name, name)) not in known:
        raise InputError(
            f"{name!r} is no model folder, no TOML file and no model that is known by name; {suggest(name, short)}"
        )
    found = known[full]
    shape: dict[str, Any] = dict(found.shape)
    config = get_family(found.family).config_class(family=found.family, **shape)
    return Subject(full, config, found.parameters, length or _positions(config))


def parse_count(text: str) -> int:
    """A number of tokens as people write it: 300B, 1.5e9, 10_000_000."""
    written = text.strip()
    factor = _SUFFIXES.get(written[-1:].upper(), 1.0)
    try:
        value = float(written[:-1] if factor > 1 else written) * factor
        whole = round(value)
    except (ValueError, OverflowError):
        raise InputError(f"{text!r} is no number of tokens; expected one like 300B, 1.5e9 or 10_000_000") from None
    if not 1 <= whole <= 10**18:
        raise InputError(f"{text} tokens: expected a number from 1 to 10 to the power of 18")
    return whole


def _of_folder(folder: Path, name: str, length: int | None) -> Subject:
    from regard.checkpoints.configs import parse_config
    from regard.checkpoints.files import read_json

    path = folder / "config.json"
    if not path.is_file():
        raise InputError(f"{folder}: no config.json; expected a model folder, a TOML file of settings or a known name")
    return Subject.of(name, parse_config(read_json(path), path), length=length)


def _count(config: Any, heads: tuple[str, ...] | None) -> int:
    import torch

    with torch.device("meta"):  # shapes without memory
        model = build(config, heads=heads)
    return sum(parameter.numel() for parameter in model.parameters())


def _positions(config: Any) -> int:
    if config.family == "vit":
        (height, width), (high, wide) = _field(config, "image_size"), _field(config, "patch_size")
        return int(1 + (height // high) * (width // wide))
    return int(_field(config, "max_position_embeddings", LENGTH))


def _attention(config: Any, length: int) -> float:
    """Operations per token of scores and averages, forward and backward: 12 x layers x row x width.

    No account is taken of what a causal mask would save. A token of an encoder-decoder passes through half of the
    layers, and a decoder's have two attentions.
    """
    if config.family in ("elmo", "seq2seq"):
        return 0.0
    depth = float(_field(config, "num_hidden_layers"))
    if config.family in _HALVES:
        depth = (depth + 2 * float(_field(config, "num_decoder_layers", depth))) / 2
    width = _field(config, "hidden_size")
    if head_width := _field(config, "head_dim", 0):
        width = head_width * _field(config, "num_attention_heads")
    return 12.0 * depth * length * float(width)


def _field(config: Any, name: str, default: Any = None) -> Any:
    """A number of a shape; families differ in which they have."""
    return getattr(config, name) if name in {field.name for field in fields(config)} else default
