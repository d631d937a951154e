"""The exact argmax of an output layer on a CPU: an int8 product leaves few candidates to compute in float32.

For all models with an output layer of 16 million weights or more, GPT-2 and Llamas alike, that generate greedily.
GPT-2's takes 2.0 instead of 3.9 ms for one row, and 2.6 instead of 5.8 ms for eight, of a step of 20 and 32 ms
(benchmarks/results/fast_paths-cpu.json, 2026-11-19). Tokens do not change, unlike with weights in int8. Requires
oneDNN.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.fast.int8_weights import int8_range, quantize_matrix
from regard.nn.fast.packed_linear import LinearOverride

MIN_ELEMENTS = 1 << 24  # smaller matrices stay in the processor's cache and gain nothing
MIN_RATIO = 4  # of outputs to inputs: only output layers are this tall
BATCH_SIZES = 1, 8, 16, 32, 64  # a quantized copy serves one of these numbers of rows
CHUNK = 8192  # outputs that are quantized together
BLOCK = 256  # outputs that share a bound
MAX_CANDIDATES = 1 / 32  # of the outputs; with more, all outputs are computed
COOLDOWN = 32  # products without the filter after one with too many candidates
SAFETY = 1.01  # factor of the bounds, for the rounding errors of float32
STEPS = 127  # quantization levels on either side of zero

Linear = Callable[[Tensor, Tensor, Tensor | None], Tensor]


class Int8ArgmaxFilter(LinearOverride):
    """Inside the block, an output layer returns the logits that may be the highest of their row, and -inf elsewhere.

    Applies to this thread, without gradients, in float32; in all other cases, and where the filter gains nothing,
    `otherwise` computes the product. Weights must not change. The quantized copies take a quarter of the memory of the
    matrices and are freed with this object.
    """

    def __init__(self, otherwise: Linear = F.linear) -> None:
        super().__init__()
        self.otherwise = otherwise
        self.layers: dict[tuple[int, int], _QuantizedMatrix] = {}

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return the product (B, V) of vectors (B, W) and a matrix (V, W), -inf where it cannot be the row maximum."""
        if bias is not None or not _is_supported(x, weight):
            return self.otherwise(x, weight, bias)
        size = next(size for size in BATCH_SIZES if size >= len(x))
        key = id(weight), size
        if key not in self.layers:
            self.layers[key] = _QuantizedMatrix(weight, size)
        logits = self.layers[key](x)
        return self.otherwise(x, weight, None) if logits is None else logits


class _QuantizedMatrix:
    """A matrix (V, W) quantized to int8 with one scale per row, packed for `size` vectors."""

    def __init__(self, weight: Tensor, size: int) -> None:
        self.weight, self.size, self.cooldown = weight, size, 0  # the reference keeps the id of the weight unique
        outputs = -(-len(weight) // BLOCK) * BLOCK  # padded outputs are never the maximum
        quantized = torch.zeros(outputs, weight.shape[1], dtype=torch.int8)
        scales, errors, norms = torch.zeros(3, outputs)
        for start in range(0, len(weight), CHUNK):
            part = slice(start, min(start + CHUNK, len(weight)))
            rows = self.weight[part]
            quantized[part], scales[part] = quantize_matrix(rows, levels=STEPS)
            rounded = quantized[part] * scales[part, None]
            errors[part], norms[part] = (rounded - rows).norm(dim=1), rounded.norm(dim=1)
        self.scales, self.zeros = scales, torch.zeros(outputs, dtype=torch.int32)
        self.packed = torch.ops.onednn.qlinear_prepack(quantized, [size, weight.shape[1]])
        # Error bounds per output and per block, as factors of a vector's norm and of the norm of its rounding error.
        self.bounds = torch.unflatten(torch.stack([errors, norms]) * SAFETY, 1, (-1, BLOCK))
        self.highest_bounds = self.bounds.amax(2)

    def __call__(self, x: Tensor) -> Tensor | None:
        """Return the filtered logits, or None if there are too many candidates."""
        self.cooldown = max(self.cooldown - 1, 0)
        unit = x.abs().amax(1, keepdim=True) / STEPS
        smallest, largest = (value.item() for value in unit.aminmax())
        if self.cooldown or not (smallest > 0 and largest < torch.inf):
            return None
        steps = x / unit  # from here on, values are in multiples of `unit`
        rounded = steps.round()
        rough = self._product((rounded + (STEPS + 1)).to(torch.uint8))
        norms = torch.stack([steps, steps - rounded], 1).norm(dim=2)
        rows, indices = self._candidates(steps, torch.unflatten(rough, 1, (-1, BLOCK)), norms)
        if len(rows) > rough.numel() * MAX_CANDIDATES:
            self.cooldown = COOLDOWN
            return None
        logits = rough[:, : len(self.weight)].fill_(-torch.inf)
        logits[rows, indices] = self._exact(x[rows], indices)
        return logits

    def _candidates(self, steps: Tensor, rough: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows and indices of possible row maxima; most blocks are ruled out by their own maximum."""
        tops = rough.amax(2)
        first = tops.argmax(1)
        likely = first * BLOCK + rough[torch.arange(len(rough)), first].argmax(1)
        lower_bound = self._exact(steps, likely)[:, None]
        rows, blocks = (tops + norms @ self.highest_bounds >= lower_bound).nonzero(as_tuple=True)
        bounds = (norms[rows].t()[:, :, None] * self.bounds[:, blocks]).sum(0)
        selected, offsets = (rough[rows, blocks] + bounds >= lower_bound[rows]).nonzero(as_tuple=True)
        return rows[selected], blocks[selected] * BLOCK + offsets

    def _product(self, quantized: Tensor) -> Tensor:
        """Return the exact product of the quantized matrix and quantized vectors, shifted to values from 1 to 255."""
        rows = len(quantized)
        if rows < self.size:
            quantized = F.pad(quantized, (0, 0, 0, self.size - rows))
        rough: Tensor = torch.ops.onednn.qlinear_pointwise(
            *(quantized, 1.0, STEPS + 1, self.packed, self.scales, self.zeros, None),
            *(1.0, 0, torch.float32, "none", [], ""),
        )
        rough[:, len(self.weight) :] = -torch.inf
        return rough[:rows]

    def _exact(self, x: Tensor, indices: Tensor) -> Tensor:
        return (self.weight[indices] * x).sum(1)


def _is_supported(x: Tensor, weight: Tensor) -> bool:
    return (
        x.dim() == 2
        and 0 < len(x) <= BATCH_SIZES[-1]
        and type(weight) in (Tensor, nn.Parameter)  # not a tensor with products of its own
        and weight.numel() >= MIN_ELEMENTS
        and len(weight) >= MIN_RATIO * weight.shape[1]
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == weight.device.type == "cpu"
        and not torch.is_grad_enabled()
        and int8_range() == STEPS
    )
