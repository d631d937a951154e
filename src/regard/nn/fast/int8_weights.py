"""Products of 8-bit numbers on a CPU, and `Int8Weight`: a matrix that stays in 8 bits in memory.

For all families: SmolLM2-135M decodes a token in 12.5 to 13.5 ms instead of 35 (docs/performance.md, 2026-11-17), and
copies of encoders embed about twice as many texts as in float32 (`inference_layers`).

`F.linear` with it computes products of 8-bit numbers on a CPU, `F.embedding` converts the rows it looks up, and every
other operation sees float32 values. `quantize_weights` replaces the matrices of a model; its modules stay the same, so
that fused steps, recordings and hooks work as before.

Each row of an input is quantized between its own minimum and maximum, hence a row's result does not depend on the other
rows. The kernels are FBGEMM's (x86) or, where they are missing, oneDNN's; without both, products are computed in
float32 from the converted matrix.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.fast.packed_linear import ROWS

LEVELS, REDUCED_LEVELS = 127, 63  # of a weight on either side of zero; reduced where sums would overflow 16 bits
ROW_TRAILER = 8  # bytes of the step and the minimum behind a quantized row
MIN_ELEMENTS = 1 << 12  # of a matrix
_to_bytes: Any = getattr(torch.ops.quantized, "embedding_bag_byte_prepack", None)  # found once
_IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "gelu": torch.ops.aten.gelu_.default,
    "gelu-tanh": partial(torch.ops.aten.gelu_.default, approximate="tanh"),
}
M = TypeVar("M", bound=nn.Module)
Product = Callable[[Tensor], Tensor]  # rows (N, K) -> rows (N, M)


def quantize_matrix(matrix: Tensor, *, levels: int = LEVELS) -> tuple[Tensor, Tensor]:
    """Return integers (M, K) from -levels to levels and scales (M,), one per output."""
    scales = (matrix.abs().amax(1) / levels).clamp_(min=torch.finfo(torch.float32).tiny)
    return (matrix / scales[:, None]).round_().to(torch.int8), scales


class Int8Weight(Tensor):
    """A matrix (M, K) of float32 stored as integers (M, K) from -127 to 127 and scales (M,)."""

    integers: Tensor
    scales: Tensor
    product: Product | None

    @staticmethod
    def __new__(cls, integers: Tensor, scales: Tensor, product: Product | None = None) -> Int8Weight:
        made: Int8Weight = Tensor._make_wrapper_subclass(
            cls, integers.shape, dtype=torch.float32, device=integers.device
        )
        made.integers, made.scales, made.product = integers, scales, product
        return made

    @classmethod
    def of(cls, matrix: Tensor) -> Int8Weight:
        """Quantize a matrix."""
        return cls(*quantize_matrix(matrix))

    def dequantize(self) -> Tensor:
        return self.integers.float() * self.scales[:, None]

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Compute x @ self.T + bias."""
        if self.product is None:
            self.product = new_product(self.integers, self.scales)
        result = self.product(x) if x.dim() == 2 else self.product(x.reshape(-1, x.shape[-1])).view(*x.shape[:-1], -1)
        return result if bias is None else result.add_(bias)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.linear and isinstance(args[1], Int8Weight) and args[0].dtype == torch.float32:
            return args[1].linear(args[0], *args[2:], **kwargs)
        if func is F.embedding and isinstance(args[1], Int8Weight):
            return args[1].integers[args[0]].float() * args[1].scales[args[0], None]
        with torch._C.DisableTorchFunctionSubclass():  # results are plain tensors
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            return cls(args[0].integers, args[0].scales, args[0].product)
        return func(*map(_as_float, args), **{name: _as_float(value) for name, value in (kwargs or {}).items()})


def _as_float(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(_as_float, value))
    return value.dequantize() if isinstance(value, Int8Weight) else value


def quantize_weights(model: M) -> M:
    """Replace the matrices of a model's linear layers and embeddings by 8-bit ones, in place.

    The model can then not be trained.
    """
    replaced: dict[int, nn.Parameter] = {}  # tied matrices stay tied
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)) and module.weight.numel() >= MIN_ELEMENTS:
            weight = module.weight
            if id(weight) not in replaced:
                replaced[id(weight)] = nn.Parameter(Int8Weight.of(weight.detach().float()), requires_grad=False)
            module.weight = replaced[id(weight)]
    return model


def has_int8_weights(model: nn.Module) -> bool:
    return any(isinstance(parameter, Int8Weight) for parameter in model.parameters())


def new_product(integers: Tensor, scales: Tensor) -> Product:
    """The fastest product with a matrix that this CPU and this build of torch have."""
    for make in (_fbgemm_product, onednn_int8_product):
        if _works(make):
            return make(integers, scales)
    return lambda x: F.linear(x, integers.float() * scales[:, None])


def _fbgemm_product(integers: Tensor, scales: Tensor) -> Product:
    """FBGEMM quantizes a whole input between its minimum and maximum: exact for one row, and for rows from 0 to 1."""
    before = torch.backends.quantized.engine
    try:
        torch.backends.quantized.engine = "fbgemm"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch will move its quantized tensors; `_works` notices
            zeros = torch.zeros(len(integers), dtype=torch.long)
            matrix = torch._make_per_channel_quantized_tensor(integers, scales.double(), zeros, 0)
            packed = torch.ops.quantized.linear_prepack(matrix, None)
    finally:
        torch.backends.quantized.engine = before
    sums = integers.sum(1, dtype=torch.int32) * scales
    linear, reduce_range = torch.ops.quantized.linear_dynamic, not torch.cpu._is_vnni_supported()

    def product(x: Tensor) -> Tensor:
        if len(x) == 1:
            one: Tensor = linear(x, packed, reduce_range)
            return one
        minimum, maximum = x.aminmax(dim=1, keepdim=True)
        step = (maximum - minimum).clamp_(min=torch.finfo(x.dtype).tiny)
        result: Tensor = linear((x - minimum) / step, packed, reduce_range)
        return result.mul_(step).addcmul_(minimum, sums)

    return product


def onednn_int8_product(
    integers: Tensor, scales: Tensor, bias: Tensor | None = None, activation: str | None = None
) -> Product:
    """Return activation(x @ weight.T + bias) as a function, with the weight w = s_n * i of a quantized matrix.

    Each row of x is quantized between its own minimum and maximum: x = m_r + d_r * q, with q from 0 to 255. Hence
    x w = d_r * s_n * (q i) + m_r * s_n * sum(i).
    """
    features = integers.shape[1]
    sums = integers.sum(1, dtype=torch.int32) * scales
    zeros = torch.zeros(len(integers), dtype=torch.int32)
    # The zeros are the weights of the step and the minimum, which follow the numbers of a quantized row.
    packed: Tensor = torch.ops.onednn.qlinear_prepack(F.pad(integers, (0, ROW_TRAILER)), [ROWS, features + ROW_TRAILER])
    linear: Any = torch.ops.onednn.qlinear_pointwise.default
    activate = None if activation is None else _IN_PLACE[activation]

    def product(x: Tensor) -> Tensor:
        quantized, step, minimum = quantize_rows(x if x.ndim == 2 else x.reshape(-1, features))
        result: Tensor = linear(quantized, 1.0, 0, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], "")
        # In place, because new memory costs more than a pass, and in two passes.
        result = result.mul_(step) if bias is None else torch.addcmul(bias, result, step, out=result)
        result.addcmul_(minimum, sums)
        if activate is not None:
            activate(result)
        return result if x.ndim == 2 else result.view(*x.shape[:-1], -1)

    return product


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Quantize each row of x (M, K) to 0 ... 255: x = minimum + step * quantized, with step and minimum (M, 1).

    The bytes of step and minimum follow the numbers, so that the quantized rows are (M, K + ROW_TRAILER).
    """
    quantized = _to_bytes(x)
    width = x.shape[1]
    if width % 4:
        step, minimum = quantized[:, width:].contiguous().view(torch.float32).split_with_sizes((1, 1), 1)
    else:
        _, step, minimum = quantized.view(torch.float32).split_with_sizes((width // 4, 1, 1), 1)
    return quantized, step, minimum


@cache
def _works(make: Callable[[Tensor, Tensor], Product]) -> bool:
    """Whether a product exists in this build of torch and is exact up to the rounding of its inputs."""
    integers = torch.full((32, 64), LEVELS, dtype=torch.int8)  # sums of 16 bits would overflow
    integers[1::2] *= -1
    scales, x = torch.ones(32), torch.linspace(-1, 1, 3 * 64).view(3, 64).cos()
    try:
        product = make(integers, scales)
        errors = [product(rows) - rows @ integers.float().T for rows in (x, x[:1])]
    except (AttributeError, RuntimeError):
        return False
    return all(bool((error.abs() <= 64 * LEVELS / 127).all()) for error in errors)


@cache
def supports_int8() -> bool:
    """Whether this build of torch has 8-bit linear layers for this CPU, and they compute what they should."""
    return int8_range() > 0


@cache
def int8_range() -> int:
    """The largest 8-bit weight with exact products; 0: there are none.

    CPUs without VNNI instructions add pairs of products in 16 bits, which overflow for large weights.
    """
    for levels in (LEVELS, REDUCED_LEVELS):
        weight = torch.full((32, 64), levels, dtype=torch.int8)
        x = torch.full((3, 64), 255, dtype=torch.uint8)
        ones, zeros = torch.ones(32), torch.zeros(32, dtype=torch.int32)
        try:
            quantize_rows(torch.randn(2, 64))
            packed = torch.ops.onednn.qlinear_prepack(weight, [ROWS, 64])
            product = torch.ops.onednn.qlinear_pointwise(
                x, 1.0, 0, packed, ones, zeros, None, 1.0, 0, torch.float32, "none", [], ""
            )
        except (AttributeError, RuntimeError):
            return 0
        if bool((product == 64 * 255 * levels).all()):
            return levels
    return 0
