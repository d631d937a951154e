"""An encoder with a task head, batches of task inputs for it, and their loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.data.batch import Batch, Indices, collate, group_by_token_budget
from regard.device import autocast_dtype
from regard.engine.batches import filler_lengths, run_batches
from regard.engine.precision import PrecisionChoice, compare_precisions, inference_copy, resolve_precision
from regard.engine.tuning import cpu_settings
from regard.errors import InputError
from regard.models.family import Family, can, describe_model, family_of
from regard.nn.masks import Packed
from regard.nn.pooling import pool
from regard.nn.stack import ScalarMix
from regard.nn.training import eval_mode, normal_init
from regard.tasks.image_classification import ImageClassifier
from regard.tasks.inputs import InputSequence, VectorSettings
from regard.tasks.task import LossFunction, Task, TaskInput

POOLER_ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU}
CHARACTERS_PER_TOKEN = 4  # of ordinary text
SAMPLE = 32  # inputs on which precisions are compared


class TaskHead(nn.Module):
    """(M, W) -> (M, outputs): a linear layer, after a pooling layer if the task is pooled or the family always has
    one."""

    def __init__(self, width: int, outputs: int, *, pool: nn.Module | None, dropout: float, bias: bool = True) -> None:
        super().__init__()
        self.pool = pool
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width, outputs, bias=bias)
        normal_init(self.output)

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.pool is None else self.pool(x)
        result: Tensor = self.output(self.dropout(x))
        return result


class VectorHead(TaskHead):
    """A linear layer on the vector of a text, as `vectors` says how to pool it.

    The two texts of a pair are encoded separately; the layer reads u, v, |u - v|, u * v and cos(u, v) of their vectors.
    """

    def __init__(self, width: int, outputs: int, vectors: VectorSettings) -> None:
        size = width if vectors.num_texts == 1 else 4 * width + 1
        super().__init__(size, outputs, pool=None, dropout=0.0)
        self.vectors = vectors

    def forward(self, x: Tensor) -> Tensor:
        """Pooled vectors (..., texts, W) -> (..., outputs)."""
        x = F.normalize(x.float(), dim=-1) if self.vectors.normalize else x.float()
        if self.vectors.num_texts == 1:
            x = x[..., 0, :]
        else:
            u, v = x.unbind(-2)
            cosine = F.cosine_similarity(u, v, dim=-1)[..., None]
            x = torch.cat([u, v, (u - v).abs(), u * v, cosine], dim=-1)
        result: Tensor = self.output(x)
        return result


def _pool(encoder: Any, family: Family, *, pooled: bool) -> nn.Module | None:
    """The layers of a task head before its last one, with weights of the encoder's heads where it has them."""
    width, eps = encoder.config.hidden_size, encoder.config.layer_norm_eps
    pretrained = getattr(encoder, "mlm_head" if family.task_transform else "pooler", None)
    if not pooled and not family.task_transform:
        return None
    linear = nn.Linear(width, width, bias=not family.task_transform)
    normal_init(linear)
    if pretrained is not None:
        linear.load_state_dict(pretrained.linear.state_dict())
    if not family.task_transform:
        return nn.Sequential(linear, POOLER_ACTIVATIONS[family.pooler_activation]())
    norm = nn.LayerNorm(width, eps=eps, bias=False)
    if pretrained is not None:
        norm.load_state_dict(pretrained.norm.state_dict())
    return nn.Sequential(linear, nn.GELU(), norm)


@dataclass(frozen=True, eq=False)
class TaskBatch:
    """Packed sequences for `EncoderWithHead`; `positions` (flat) select the vectors to classify, None selects all."""

    batch: Batch
    segments: Tensor
    positions: Tensor | None

    def to(self, device: torch.device) -> TaskBatch:
        positions = None if self.positions is None else self.positions.to(device)
        return TaskBatch(self.batch.to(device), self.segments.to(device), positions)


class EncoderWithHead(nn.Module):
    """An encoder and a head.

    For ELMo, `mix` learns the weight of each layer. ELMo's first token does not encode the whole text, so pooled tasks
    predict from the mean over the sequence (`mean_pooled`), as those of some published models do. A `VectorHead` always
    reads pooled vectors.
    """

    def __init__(self, encoder: Any, head: TaskHead, *, mean_pooled: bool = False) -> None:
        super().__init__()
        self.encoder, self.head, self.mean_pooled = encoder, head, mean_pooled
        self.mix = ScalarMix(encoder.config.num_hidden_layers + 1) if can(encoder, "layer-mix") else None

    @classmethod
    def from_encoder(
        cls, encoder: Any, task: Task[Any], vectors: VectorSettings | None = None, *, mean_pooled: bool = False
    ) -> EncoderWithHead:
        """Add a head with new weights; the pooler becomes part of it, and heads of other tasks are removed.

        With `vectors` it is a `VectorHead`.
        """
        family = family_of(encoder)
        if family is None or not family.can("fine-tuning") or family.can("image"):
            raise InputError(
                f"{task.name} needs a BERT, a GPT or another text model that takes a task head, got "
                f"{describe_model(encoder)}"
            )
        if can(encoder, "layer-mix"):
            if encoder.config.num_characters:
                raise InputError(f"{task.name} needs an ELMo with a tokenizer; this one reads characters")
            encoder.output = None
            if vectors is not None:
                return cls(encoder, VectorHead(encoder.config.output_size, task.num_outputs, vectors))
            head = TaskHead(encoder.config.output_size, task.num_outputs, pool=None, dropout=encoder.config.dropout)
            return cls(encoder, head, mean_pooled=task.pooled)
        config, layers = encoder.config, None
        if can(encoder, "text-encoder") and vectors is None:
            layers = _pool(encoder, family, pooled=task.pooled)
        for name in family.output_heads:
            setattr(encoder, name, None)
        if vectors is not None:
            return cls(encoder, VectorHead(config.hidden_size, task.num_outputs, vectors))
        bias = not (task.pooled and can(encoder, "causal-lm"))  # as in transformers
        dropout = getattr(config, "dropout", 0.0)
        head = TaskHead(config.hidden_size, task.num_outputs, pool=layers, dropout=dropout, bias=bias)
        return cls(encoder, head, mean_pooled=mean_pooled)

    @classmethod
    def from_encoder_decoder(cls, encoder: Any, task: Task[Any]) -> EncoderWithHead:
        """Add a head with new weights to an encoder-decoder, which reads the decoder's state of a token."""
        width = encoder.config.hidden_size
        layers = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        return cls(encoder, TaskHead(width, task.num_outputs, pool=layers, dropout=encoder.config.dropout))

    @property
    def vectors(self) -> VectorSettings | None:
        """How texts become vectors, if the head is a `VectorHead`."""
        return self.head.vectors if isinstance(self.head, VectorHead) else None

    def forward(self, inputs: TaskBatch) -> Tensor:
        if self.vectors is not None or self.mean_pooled or not can(self.encoder, "text-encoder"):
            return self.forward_with_hidden(inputs)[1]
        # BERT's last layer computes only the selected positions.
        hidden = self.encoder(
            inputs.batch.ids, inputs.batch.layout, *self._segments(inputs), output_positions=inputs.positions
        )
        result: Tensor = self.head(hidden)
        return result

    def forward_with_hidden(self, inputs: TaskBatch) -> tuple[Tensor, Tensor]:
        """The last hidden states of all tokens, (N, W), and the logits."""
        ids, layout = inputs.batch.ids, inputs.batch.layout
        hidden: Tensor
        if can(self.encoder, "encoder-decoder"):  # the decoder reads the text too, one token later
            assert isinstance(layout, Packed)
            target = ids.roll(1).index_fill(0, layout.starts[:-1].long(), self.encoder.begin)
            hidden = self.encoder(ids, target, layout, layout)
        elif can(self.encoder, "layer-mix"):
            assert self.mix is not None
            hidden = self.mix(list(self.encoder.states(ids, layout)))
        else:
            hidden = self.encoder(ids, layout, *self._segments(inputs))
        if self.mean_pooled:
            return hidden, self.head(pool(hidden, layout, "mean"))
        if self.vectors is not None:
            assert isinstance(layout, Packed) and inputs.positions is not None
            # The texts of an input follow each other; only the first has a position to predict from, its first token.
            first = torch.isin(layout.starts[:-1].long(), inputs.positions).nonzero()
            rows = first + torch.arange(self.vectors.num_texts, device=first.device)
            return hidden, self.head(pool(hidden, layout, self.vectors.pooling)[rows])
        return hidden, self.head(hidden if inputs.positions is None else hidden[inputs.positions])

    def collate(self, inputs: Sequence[TaskInput]) -> TaskBatch:
        """Pack the sequences of all inputs into one batch."""
        sequences = [sequence for item in inputs for sequence in item.sequences]
        starts = [0, *accumulate(map(len, sequences))]
        positions = None
        if all(sequence.positions is not None for sequence in sequences):
            positions = torch.tensor(
                [
                    start + position
                    for start, sequence in zip(starts, sequences, strict=False)
                    for position in sequence.positions or ()
                ]
            )
        segments = torch.tensor([segment for sequence in sequences for segment in sequence.segments])
        return TaskBatch(collate([sequence.ids for sequence in sequences]), segments, positions)

    def output_counts(self, inputs: Sequence[TaskInput]) -> list[int]:
        """Positions per input."""
        return [
            sum(len(row) if row.positions is None else len(row.positions) for row in item.sequences) for item in inputs
        ]

    def num_tokens(self, item: TaskInput) -> int:
        return len(item)

    def _segments(self, inputs: TaskBatch) -> tuple[Tensor, ...]:
        """Segment ids, if the family has them."""
        return (inputs.segments,) if can(self.encoder, "text-encoder") and self.encoder.embedding.num_segments else ()


TaskModel = EncoderWithHead | ImageClassifier


class TaskObjective(nn.Module):
    """The task's loss, or that of another function of its logits and targets.

    `compute_logits` is the model, or an equivalent function that is faster in training.
    """

    def __init__(self, model: TaskModel, task: Task[Any], loss: LossFunction | None = None) -> None:
        super().__init__()
        self.model, self.task, self.loss = model, task, loss
        self.compute_logits: Callable[[Any], Tensor] | None = None
        self.frozen = not any(parameter.requires_grad for parameter in model.encoder.parameters())

    def train(self, mode: bool = True) -> TaskObjective:
        super().train(mode)
        if self.frozen:  # no dropout in what is not trained
            self.model.encoder.eval()
        return self

    def forward(self, inputs: Any, items: Sequence[TaskInput], share: float = 1.0) -> dict[str, Tensor]:
        """The loss, times the `share` of a process: the mean over processes is then the loss of the whole batch."""
        logits = (self.compute_logits or self.model)(inputs).float()
        if not share:  # the inputs only stand in for a process without any
            return {"loss": logits.sum() * 0.0}
        return {"loss": self.task.loss(logits, items, self.loss) * share}


def compute_logits(
    model: TaskModel,
    inputs: Sequence[TaskInput],
    device: torch.device,
    *,
    precision: str | None = None,
) -> Iterator[tuple[int, Tensor]]:
    """Yield the index of each input with its logits, (positions, outputs) on the CPU.

    Inputs of similar length share a batch, so the order changes. `precision` is fp32, bf16 or int8; None: what is best
    for the device.
    """
    chosen = precision or resolve_precision(None, device)
    network = inference_copy(model, chosen)
    half = autocast_dtype(chosen, device) if network is model and chosen == "bf16" else None
    lengths = np.array([model.num_tokens(item) for item in inputs], dtype=np.int64)
    characters = CHARACTERS_PER_TOKEN * int(lengths.sum())

    def compute(group: Indices) -> Tensor:
        with torch.autocast(device.type, half, enabled=half is not None):
            logits: Tensor = network(model.collate([*(inputs[index] for index in group), *fillers(group)]).to(device))
            return logits

    def fillers(group: Indices) -> list[TaskInput]:
        """Inputs that round the batch up to a size for which packed weights are fast."""
        if network is model or isinstance(model, ImageClassifier):
            return []
        longest = max(len(row) for index in group for row in inputs[index].sequences)
        positions = inputs[group[0]].sequences[0].positions
        return [
            TaskInput((InputSequence([0] * size, [0] * size, None if positions is None else []),), -1)
            for size in filler_lengths(int(lengths[group].sum()), longest)
        ]

    with eval_mode(network), cpu_settings(device, network, chosen, work=characters) as settings:
        for work in run_batches(group_by_token_budget(lengths, settings.tokens), device):
            group = work.batch
            if work.result is None:
                with torch.inference_mode():  # left before the yield, or the caller would be in it too
                    work.result = compute(group)
                continue
            counts = model.output_counts([inputs[index] for index in group])
            yield from zip(group.tolist(), torch.split(work.result[: sum(counts)], counts), strict=True)


def choose_precision(model: TaskModel, inputs: Sequence[TaskInput]) -> PrecisionChoice:
    """int8 if it is faster on this CPU and the vectors that the head reads agree with fp32 on a sample, else fp32."""
    if isinstance(model, ImageClassifier):
        return PrecisionChoice("fp32", "image models have no other")
    sample = model.collate([*inputs[:: max(1, len(inputs) // SAMPLE)]][:SAMPLE])

    def vectors(precision: str) -> Tensor:
        network = inference_copy(model, precision)
        with eval_mode(network):
            hidden = network.forward_with_hidden(sample)[0]
        return hidden if sample.positions is None else hidden[sample.positions]

    return compare_precisions(model, vectors)
