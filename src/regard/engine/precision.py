"""The data type of inference, and the copy of a model that computes in it.

| precision | on a CPU | on a GPU |
|---|---|---|
| fp32 | packed float32 weights | float32 |
| bf16 | not offered | bfloat16 weights and activations; norms and softmax in float32 |
| int8 | 8-bit weights per output, activations quantized row by row | not offered |
| None | fp32 | bf16 if the GPU has it, else fp32 |

`auto` is the fastest of them whose vectors agree with float32 on a sample; whoever has the sample decides.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal, TypeVar, get_args
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from regard.device import supports_bf16
from regard.engine.tuning import stored_settings
from regard.errors import InputError, check_choice
from regard.models.family import can, describe_model, family_of
from regard.nn.embedding import PatchEmbedding
from regard.nn.layer import layers_of

M = TypeVar("M", bound=nn.Module)

try:
    from regard.nn.fast.inference_layers import optimize_for_inference as optimize_for_inference
    from regard.nn.fast.int8_weights import has_int8_weights, quantize_weights
    from regard.nn.fast.int8_weights import supports_int8 as supports_int8
except ImportError:  # the folder of kernels is optional

    def optimize_for_inference(model: M, precision: str) -> M:
        return model

    def supports_int8() -> bool:  # type: ignore[misc]
        return False

    def has_int8_weights(model: nn.Module) -> bool:
        return False

    def quantize_weights(model: M) -> M:
        return model


MIN_COSINE = 0.98  # of precision auto to float32, on a sample
SAMPLED_PARAMETERS = 8
SPEEDS = ("fp32", "int8")  # precisions that are compared on a CPU
PRECISION_NAMES = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8", "auto": "the fastest precision"}
InferencePrecision = Literal["auto", "fp32", "bf16", "int8"]
DecodingPrecision = Literal["fp32", "int8"]
INT8_WEIGHTS = "int8-weights"  # a copy for decoding


@dataclass(eq=False)
class _Copies:
    """The copies of a model by device and precision, with the fingerprint of the weights; None: the model itself."""

    first: nn.Parameter  # of the model
    counted: list[nn.Parameter]  # parameters that count their changes: all but those made in inference mode
    samples: list[Tensor]  # one number of some parameters, in their memory
    by_precision: dict[tuple[torch.device, str], tuple[tuple[float, ...], nn.Module | None]] = field(
        default_factory=dict
    )

    @staticmethod
    def of(model: nn.Module) -> _Copies:
        parameters = list(model.parameters())
        step = -(-len(parameters) // SAMPLED_PARAMETERS)
        chosen = (*parameters[::step], parameters[-1])
        counted = [parameter for parameter in parameters if not parameter.is_inference()]
        return _Copies(parameters[0], counted, [one.detach().view(-1)[one.numel() // 2] for one in chosen])

    def fingerprint(self) -> tuple[float, ...]:
        """Changes with the weights: counts changes in place, and samples numbers, as fused optimizers do not count."""
        on_cpu = self.first.device.type == "cpu"  # elsewhere a transfer costs more than an operation
        numbers = [sample.item() for sample in self.samples] if on_cpu else torch.stack(self.samples).tolist()
        return sum(map(_version, self.counted)), *numbers


_copies: WeakKeyDictionary[nn.Module, _Copies] = WeakKeyDictionary()
_version = attrgetter("_version")


def resolve_precision(precision: str | None, device: torch.device, model: nn.Module | None = None) -> str:
    """The precision for a device, and for a model: auto, fp32, bf16 or int8.

    Raises InputError for one that they do not have.
    """
    if precision is None or (precision == "auto" and device.type != "cpu"):
        return "bf16" if supports_bf16(device) and (model is None or has_copy(model, "bf16")) else "fp32"
    check_choice("precision", precision, get_args(InferencePrecision))
    if precision == "bf16" and not supports_bf16(device):
        kind = "on a CPU it is slow" if device.type == "cpu" else f"{device} does not have it"
        raise InputError(f"precision bf16 is for GPUs, and {kind}; use fp32 or int8")
    if precision == "int8" and (device.type != "cpu" or not supports_int8()):
        reason = "this CPU has no fast 8-bit products" if device.type == "cpu" else f"this model is on {device}"
        raise InputError(f"precision int8 is for CPUs, and {reason}; use fp32 or leave it out")
    if precision in ("bf16", "int8") and model is not None:
        _check_copy(model, precision)
    return precision


def _check_copy(model: nn.Module, precision: str) -> None:
    if not has_copy(model, precision):
        title = describe_model(model if family_of(model) else getattr(model, "encoder", model))
        raise InputError(f"precision {precision}: {title} has no copy in it; use fp32 or leave it out")


def has_copy(model: nn.Module, precision: str) -> bool:
    """Whether a model has copies in bf16 or int8, or computes in float32 only.

    Recurrent layers are library kernels in float32. A bf16 copy reads token ids: pixels would need a conversion.
    """
    if precision == "bf16" and any(isinstance(module, PatchEmbedding) for module in model.modules()):
        return False
    return any(layer.is_convertible for layer in layers_of(model))


def inference_copy(model: M, precision: str) -> M:
    """The model for a precision on the device where it is; the same copy until its weights change.

    A model in training mode is returned itself.

    The copy shares everything with the model that need not be converted. It must not be trained. A model that has no
    bf16 copy is returned itself, to compute in fp32 or under autocast; without an int8 copy, int8 is an InputError.
    """
    if model.training:
        _copies.pop(model, None)
        return model
    copies = _copies.get(model)
    if copies is None or copies.samples[0].device != copies.first.device:
        copies = _copies[model] = _Copies.of(model)
    device = copies.first.device
    fingerprint = copies.fingerprint()
    found = copies.by_precision.get((device, precision))
    if found is None or found[0] != fingerprint:
        made = _copy(model, device, precision)
        found = copies.by_precision[device, precision] = fingerprint, None if made is model else made
    return model if found[1] is None else found[1]  # type: ignore[return-value]


def decoding_copy(model: M, precision: str) -> M:
    """The model for decoding in a precision: with fp32 itself, with int8 a copy with 8-bit weights, the same copy until
    the weights change. Raises InputError for a model that has no such copy."""
    check_choice("precision", precision, get_args(DecodingPrecision))
    if precision == "fp32" or has_int8_weights(model):
        return model
    _check_decoder(model)
    return inference_copy(model, INT8_WEIGHTS)


def convert_to_int8(model: nn.Module) -> None:
    """Replace the matrices of a decoder by 8-bit ones, in place."""
    _check_decoder(model)
    quantize_weights(model)


def _check_decoder(model: nn.Module) -> None:
    device = next(model.parameters()).device
    if not can(model, "text-generation"):
        title = describe_model(model)
        raise InputError(f"8-bit weights are for models that generate text, and this is {title}; leave int8 out")
    if device.type != "cpu":
        raise InputError(f"8-bit weights are for CPUs, and this model is on {device}; use the CPU, or leave int8 out")


@dataclass(frozen=True)
class PrecisionChoice:
    """What precision auto is, and why in words."""

    precision: str
    reason: str

    def __str__(self) -> str:
        return f"precision auto: {self.precision}, because {self.reason}"


def compare_precisions(model: nn.Module, vectors: Callable[[str], Tensor]) -> PrecisionChoice:
    """Choose int8 for a CPU if a layer is faster than in fp32 and the vectors of a sample agree, else fp32.

    `vectors` computes those of the sample, (n, W), in a precision.
    """
    if not has_copy(model, "int8"):
        return PrecisionChoice("fp32", "this model computes in float32 only")
    if not supports_int8():
        return PrecisionChoice("fp32", "this CPU has no fast 8-bit products")
    seconds = {name: stored_settings(inference_copy(model, name), name, measured=True).seconds for name in SPEEDS}
    if not 0 < seconds["int8"] < seconds["fp32"]:
        return PrecisionChoice("fp32", "int8 is not faster on this CPU")
    with torch.inference_mode():
        cosine = float(torch.cosine_similarity(vectors("fp32"), vectors("int8"), dim=-1).min())
    found = f"the lowest cosine to fp32 in a sample is {cosine:.4f}"
    if not cosine >= MIN_COSINE:
        return PrecisionChoice("fp32", f"with int8 {found}, below {MIN_COSINE}")
    return PrecisionChoice("int8", f"it is {seconds['fp32'] / seconds['int8']:.1f} times as fast as fp32, and {found}")


def _copy(model: M, device: torch.device, precision: str) -> M:
    if precision == "int8":
        _check_copy(model, precision)
    if precision == INT8_WEIGHTS:
        twin = copy.deepcopy(model, {id(one): one for one in model.parameters()})  # shares the weights
        return quantize_weights(_without_hooks(twin))
    if device.type == "cpu" and precision in SPEEDS and next(model.parameters()).dtype == torch.float32:
        with torch.inference_mode():
            return optimize_for_inference(model, precision)
    if precision != "bf16" or not has_copy(model, "bf16") or next(model.parameters()).dtype == torch.bfloat16:
        return model
    return _without_hooks(copy.deepcopy(model).to(torch.bfloat16).eval())


def _without_hooks(model: M) -> M:
    """Remove the hooks of whoever watches the original, not this copy."""
    for module in model.modules():
        module._forward_pre_hooks.clear()
        module._forward_hooks.clear()
    return model
