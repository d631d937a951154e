"""The cost of training a model: parameters, FLOPs, GPU hours and money, by arithmetic alone.

FLOPs follow the rule of six per parameter and token. Parameters are counted on the meta device, without memory.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from regard.errors import InputError, check_choice, suggest
from regard.known import builtin_folder, builtin_names
from regard.models.family import Checkpoint, build, get_family, known_checkpoints
from regard.render.result import Result

# Peak FLOPS of dense half-precision matrix products with float32 accumulation, as stated by the maker.
GPUS = {"v100": 125e12, "a100": 312e12, "h100": 989e12, "h200": 989e12}
UTILIZATION = 0.3  # of the peak: an assumption, to be replaced by a measurement
LENGTH = 512  # tokens per row, for models without position embeddings

# The largest model of the GPT-3 paper.
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


@dataclass(frozen=True)
class ModelShape:
    """The configuration of a model to train, its parameter count, and the tokens per row of its training."""

    name: str
    config: Any
    parameters: int
    length: int

    @classmethod
    def from_config(
        cls, name: str, config: Any, *, output_heads: tuple[str, ...] | None = None, length: int | None = None
    ) -> ModelShape:
        """Without a `length`, rows have as many tokens as the model has positions."""
        return cls(name, config, _count(config, output_heads), length or _positions(config))


class CostEstimate(Result):
    """The result of `regard cost`. `flops` is 6 N D, with N the parameters a token passes and D the tokens.

    `flops_with_attention` adds the products of queries, keys and values. Hours, years and money are those of `flops` on
    one GPU.
    """

    model: str
    parameters: int
    active_parameters: int
    tokens: int
    length: int
    flops: float
    flops_with_attention: float
    gpu: str
    peak_flops: float
    utilization: float
    gpu_hours: float
    gpu_years: float
    price: float | None
    money: float | None

    def to_text(self) -> str:
        rows = [("model", self.model), ("parameters", f"{self.parameters:,}")]
        if self.active_parameters != self.parameters:
            rows.append(("  a token passes", f"{self.active_parameters:,} (the encoder's or the decoder's half)"))
        more = self.flops_with_attention / self.flops - 1
        assumed = ", assumed" if self.utilization == UTILIZATION else ""
        peak = f"{self.utilization:.1%} of {self.peak_flops / 1e12:g} teraflop/s{assumed}"
        hours = f"{self.gpu_hours:,.0f}" if self.gpu_hours >= 1000 else f"{self.gpu_hours:.4g}"
        rows += [
            ("tokens", f"{self.tokens:,}"),
            ("operations", f"{self.flops:.3g} (6 x parameters x tokens)"),
            ("  with attention", f"{self.flops_with_attention:.3g} ({more:+.1%}, rows of {self.length:,} tokens)"),
            (f"{self.gpu.upper()} hours", f"{hours} ({self.gpu_years:,.3g} years; {peak})"),
        ]
        if self.money is None or self.price is None:
            rows.append(("money", "give the price of an hour with --price"))
        else:
            rows.append(("money", f"{self.money:,.0f} (at {self.price:g} an hour)"))
        return "\n".join(f"{name:<22} {value}" for name, value in rows)


def estimate_cost(
    shape: ModelShape, *, tokens: int, gpu: str = "v100", utilization: float = UTILIZATION, price: float | None = None
) -> CostEstimate:
    """The cost of training on `tokens` tokens; `price` is that of an hour of one GPU."""
    check_choice("GPU", gpu, GPUS)
    if tokens < 1:
        raise InputError(f"tokens is {tokens}; expected the number of training tokens, at least 1")
    if not 0 < utilization <= 1:
        raise InputError(f"utilization is {utilization:g}; expected a share of the GPU's peak, above 0 and at most 1")
    if price is not None and not 0 <= price < float("inf"):
        raise InputError(f"price is {price:g}; expected the price of an hour of one GPU, 0 or more")
    active = shape.parameters // 2 if get_family(shape.config.family).can("encoder-decoder") else shape.parameters
    flops = 6.0 * active * tokens
    hours = flops / (GPUS[gpu] * utilization) / 3600
    return CostEstimate(
        model=shape.name,
        parameters=shape.parameters,
        active_parameters=active,
        tokens=tokens,
        length=shape.length,
        flops=flops,
        flops_with_attention=flops + _attention(shape.config, shape.length) * tokens,
        gpu=gpu,
        peak_flops=GPUS[gpu],
        utilization=utilization,
        gpu_hours=hours,
        gpu_years=hours / 24 / 365,
        price=price,
        money=None if price is None else hours * price,
    )


def shape_of_settings(path: str, *, length: int | None = None) -> ModelShape:
    """The model that a TOML file of `regard pretrain` describes; without a vocabulary size, that of the default."""
    from regard.training.recipes.pretraining.config import DEFAULT_VOCAB_SIZE, PretrainingConfig
    from regard.training.recipes.pretraining.recipe import model_config, trained_heads

    settings = PretrainingConfig.load(path)
    config = model_config(settings, vocab_size=settings.vocabulary.vocab_size or DEFAULT_VOCAB_SIZE)
    return ModelShape.from_config(
        path, config, output_heads=trained_heads(settings), length=length or settings.data.max_length
    )


def find_shape(name: str, *, length: int | None = None) -> ModelShape:
    """A model folder, a built-in name, "gpt3", or a known checkpoint, with or without its owner: "gpt2-xl".

    Nothing is downloaded. Of a folder only config.json is read; the default heads of its family are counted.
    """
    from regard.checkpoints.configs import parse_config
    from regard.files.json_files import read_json

    folder = Path(name).expanduser()
    if name in builtin_names() and not folder.is_dir():
        folder = builtin_folder(name)
    if folder.is_dir():
        path = folder / "config.json"
        if not path.is_file():
            raise InputError(f"{folder}: no config.json; expected a model folder, a TOML file or a known name")
        return ModelShape.from_config(name, parse_config(read_json(path), path), length=length)
    known = {checkpoint.name: checkpoint for checkpoint in (GPT3, *known_checkpoints())}
    short = {full.rpartition("/")[2]: full for full in known}
    if (full := short.get(name, name)) not in known:
        raise InputError(f"{name!r} is not a model folder, a TOML file or a known model; {suggest(name, short)}")
    found = known[full]
    shape: dict[str, Any] = dict(found.shape)
    config = get_family(found.family).config_class(family=found.family, **shape)
    return ModelShape(full, config, found.parameters, length or _positions(config))


def parse_count(text: str, *, unit: str = "tokens") -> int:
    """A number of tokens such as 300B, 1.5e9 or 10_000_000."""
    written = text.strip()
    factor = _SUFFIXES.get(written[-1:].upper(), 1.0)
    try:
        value = float(written[:-1] if factor > 1 else written) * factor
        whole = round(value)
    except (ValueError, OverflowError):
        raise InputError(f"{text!r} is not a number of {unit}; expected one like 300B, 1.5e9 or 10_000_000") from None
    if not 1 <= whole <= 10**18:
        raise InputError(f"{text} {unit}: expected a number from 1 to 10 to the power of 18")
    return whole


def _count(config: Any, output_heads: tuple[str, ...] | None) -> int:
    import torch

    with torch.device("meta"):  # shapes without memory
        model = build(config, output_heads=output_heads)
    return sum(parameter.numel() for parameter in model.parameters())


def _positions(config: Any) -> int:
    if get_family(config.family).can("image"):
        (height, width), (high, wide) = _field(config, "image_size"), _field(config, "patch_size")
        return int(1 + (height // high) * (width // wide))
    return int(_field(config, "max_position_embeddings", LENGTH))


def _attention(config: Any, length: int) -> float:
    """FLOPs of attention per token, forward and backward: 12 x layers x row length x width.

    Savings by a causal mask are not counted. A token of an encoder-decoder passes through half of the layers, and
    decoder layers have two attentions.
    """
    if get_family(config.family).can("recurrent"):
        return 0.0
    depth = float(_field(config, "num_hidden_layers"))
    if get_family(config.family).can("encoder-decoder"):
        depth = (depth + 2 * float(_field(config, "num_decoder_layers", depth))) / 2
    width = _field(config, "hidden_size")
    if head_width := _field(config, "head_dim", 0):
        width = head_width * _field(config, "num_attention_heads")
    return 12.0 * depth * length * float(width)


def _field(config: Any, name: str, default: Any = None) -> Any:
    """A field of a configuration, if its family has it."""
    return getattr(config, name) if name in {field.name for field in fields(config)} else default
