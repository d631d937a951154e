"""Forward and backward passes of fine-tuning as CUDA graphs.

A batch of fine-tuning is small: launching its kernels one by one takes the CPU several times as long as the GPU needs
for them. A graph has fixed shapes, so batches are filled up to one of a few sizes with sequences whose outputs are not
used, and each size has its own graph.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.data.batch import Batch
from regard.engine.batches import filler_lengths
from regard.engine.graphs import GraphRecorder, depends_on_lengths
from regard.models.family import can
from regard.nn.masks import Packed
from regard.tasks.encoder_with_head import EncoderWithHead, TaskBatch

MAX_TOKENS = 1 << 13  # per batch; larger ones keep a GPU busy without a graph
LENGTHS = (64, 128, 256, 512)  # upper bounds of the longest sequence
STEP = 8  # between the numbers of sequences and of positions of two graphs
Shape = tuple[int, int, int, int | None]  # tokens, sequences, longest sequence, positions


class GraphedModel:
    """`graphed(inputs)` returns the logits of the model; gradients reach its parameters as usual.

    Use it in training only, in one process, under autocast with `dtype`.
    """

    def __init__(self, model: EncoderWithHead, device: torch.device, dtype: torch.dtype) -> None:
        self.model, self.dtype = model, dtype
        self.recorder = GraphRecorder(device)
        # Gradients are accumulated on another stream than the one of the recording, which is intended.
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)

    @staticmethod
    def of(model: nn.Module, device: torch.device, dtype: torch.dtype | None) -> GraphedModel | None:
        """The graphs of a model; None if the kernels of its training depend on the lengths of the texts."""
        if device.type != "cuda" or dtype is None or not isinstance(model, EncoderWithHead):
            return None
        if can(model.encoder, "layer-mix") or not all(p.requires_grad for p in model.parameters()):
            return None
        if depends_on_lengths(model, dtype):
            return None
        return GraphedModel(model, device, dtype)

    def __call__(self, inputs: TaskBatch) -> Tensor:
        layout = inputs.batch.layout
        assert isinstance(layout, Packed)
        count, longest = len(inputs.batch.ids), next((size for size in LENGTHS if size >= layout.max_length), 0)
        if not longest or count > MAX_TOKENS:
            logits: Tensor = self.model(inputs)
            return logits
        fillers = filler_lengths(count, longest, min_step=LENGTHS[1])
        sequences = _round_up(len(layout.starts) - 1 + len(fillers))
        positions = None if inputs.positions is None else _round_up(len(inputs.positions))
        shape = count + sum(fillers), sequences, longest, positions
        arguments = _fill_up(inputs, layout, fillers, shape)
        if shape not in self.recorder.graphs:
            passes = _PackedForward(self.model, longest).train(self.model.training)
            with torch.autocast("cuda", self.dtype, cache_enabled=False):
                self.recorder.record_passes(shape, passes, arguments)
        result: Tensor = self.recorder.graphs[shape](*arguments)
        return result[: count if inputs.positions is None else len(inputs.positions)]


class _PackedForward(nn.Module):
    """The model as a function of tensors."""

    def __init__(self, model: EncoderWithHead, max_length: int) -> None:
        super().__init__()
        self.model, self.max_length = model, max_length

    def forward(
        self, ids: Tensor, segments: Tensor, position_ids: Tensor, starts: Tensor, positions: Tensor | None = None
    ) -> Tensor:
        layout = Packed(None, starts, position_ids, self.max_length)
        logits: Tensor = self.model(TaskBatch(Batch(ids, layout), segments, positions))
        return logits


def _fill_up(inputs: TaskBatch, layout: Packed, fillers: list[int], shape: Shape) -> tuple[Tensor, ...]:
    """The tensors of a batch with additional sequences, the last of which may be empty."""
    tokens, sequences, _, positions = shape
    ids = inputs.batch.ids
    missing = tokens - len(ids)
    within = [place for length in fillers for place in range(length)]
    ends = [len(ids) + sum(fillers[: index + 1]) for index in range(len(fillers))]
    ends += [tokens] * (sequences - (len(layout.starts) - 1) - len(fillers))
    filled = (
        F.pad(ids, (0, missing)),
        F.pad(inputs.segments, (0, missing)),
        torch.cat([layout.position_ids, torch.tensor(within, dtype=torch.long).to(ids.device)]),
        torch.cat([layout.starts, torch.tensor(ends, dtype=torch.int32).to(ids.device)]),
    )
    if inputs.positions is None or positions is None:
        return filled
    return *filled, F.pad(inputs.positions, (0, positions - len(inputs.positions)))


def _round_up(count: int) -> int:
    return -(-count // STEP) * STEP
