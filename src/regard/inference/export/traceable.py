"""Models as functions of padded tensors, which can be traced, and what Regard computes for a batch of sample texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from regard.inference.embedding.engine import EmbeddingEngine
from regard.models.family import can
from regard.nn.masks import Padded
from regard.nn.pooling import pool_padded
from regard.tasks.encoder_with_head import EncoderWithHead, compute_logits
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.tasks.inputs import InputSequence
from regard.tasks.task import Task

# Texts of different lengths, each with a second text. It has two lines for tasks that read a text and its endings.
SAMPLES = (
    ("Good.", "It was.\nIt was not, they say."),
    ("The music was better than the film.", "Who wrote the music of this film?\nNobody knows."),
    ("After a long day at the sea, 3 of us went home by train; the others stayed.", "Home.\nThey went by train at 7."),
)


@dataclass(frozen=True, eq=False)
class TraceableModel:
    """A network of tensors, a batch of `inputs` for it, and the `outputs` that Regard computes for this batch.

    NaN in `outputs` stands where there is nothing to compare, such as padding. `axes` are those of the inputs.
    """

    network: nn.Module
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    axes: tuple[str, ...]


class PaddedEncoder(nn.Module):
    """The last hidden states (B, T, W) and, with a pooling, the sentence embeddings (B, W)."""

    def __init__(self, encoder: nn.Module, *, pooling: str | None, normalize: bool) -> None:
        super().__init__()
        self.encoder, self.pooling, self.normalize = encoder, pooling, normalize

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        mask = attention_mask.bool()
        hidden: Tensor = self.encoder(input_ids, Padded(mask), token_type_ids)
        if self.pooling is None:
            return (hidden,)
        pooled = pool_padded(hidden, mask[..., None], self.pooling)
        return hidden, F.normalize(pooled, dim=-1) if self.normalize else pooled


class PaddedTask(nn.Module):
    """The logits of a task as transformers returns them.

    They are (B, labels); for a choice (B, choices), with inputs (B, choices, T); for tags (B, T, labels); for answers
    two tensors (B, T): the logits of the first and the last token.
    """

    def __init__(self, model: EncoderWithHead, task: Task[Any]) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        segments = None if token_type_ids is None else token_type_ids.flatten(0, -2)
        mask = attention_mask.bool().flatten(0, -2)
        hidden = self.model.encoder(input_ids.flatten(0, -2), Padded(mask), segments)
        if self.model.vectors is not None:
            pooled = pool_padded(hidden, mask[..., None], self.model.vectors.pooling)
            return self.arrange(self.model.head(pooled[:, None])[:, None], input_ids)
        return self.arrange(self.model.head(hidden[:, :1] if self.task.pooled else hidden), input_ids)

    def arrange(self, logits: Tensor, input_ids: Tensor) -> tuple[Tensor, ...]:
        """The outputs, from the logits (sequences, positions, labels) of all sequences of `input_ids`."""
        if self.task.softmax_over_tokens:
            return logits.unbind(-1)
        if not self.task.single_sequence:
            return (logits.view(input_ids.shape[:-1]),)
        return (logits[:, 0] if self.task.pooled else logits,)


def traceable_encoder(engine: EmbeddingEngine, *, pooled: bool) -> TraceableModel:
    """The encoder of an engine; `pooled` adds the sentence embeddings."""
    texts = [text for text, _ in SAMPLES]
    encodings = engine.tokenizer.encode_batch(texts, max_length=engine.max_length)
    sequences = [InputSequence(encoding.ids, encoding.segments, None) for encoding in encodings]
    tokens = EmbeddingEngine(engine.model, engine.tokenizer, pooling="none", max_length=engine.max_length)
    hidden = [torch.from_numpy(one.vectors) for one in tokens.embed_tokens(texts)]
    outputs = {"last_hidden_state": pad_sequence(hidden, batch_first=True, padding_value=torch.nan)}
    if pooled:
        outputs["sentence_embedding"] = torch.from_numpy(engine.embed(texts))
    network = PaddedEncoder(
        engine.model, pooling=engine.pooling if pooled else None, normalize=engine.normalize and pooled
    )
    return TraceableModel(network, pad_inputs(engine.model, sequences), outputs, ("batch_size", "sequence_length"))


def traceable_task(fine_tuned: FineTunedModel) -> TraceableModel:
    """A fine-tuned model with its head."""
    task, model = fine_tuned.task, fine_tuned.model
    assert isinstance(model, EncoderWithHead)
    examples = [task.example(text, None if task.num_texts == 1 else second) for text, second in SAMPLES]
    inputs = task.preprocess(examples, fine_tuned.input_builder)
    sequences = [sequence for item in inputs for sequence in item.sequences]
    tensors = pad_inputs(model.encoder, sequences)
    axes: tuple[str, ...] = ("batch_size", "sequence_length")
    if not task.single_sequence:
        tensors = {name: tensor.view(len(inputs), -1, tensor.shape[-1]) for name, tensor in tensors.items()}
        axes = ("batch_size", "num_choices", "sequence_length")
    parts = dict(compute_logits(model, inputs, torch.device("cpu"), precision="fp32"))
    rows = torch.cat([parts[index] for index in range(len(inputs))])
    logits = torch.full((len(sequences), max(map(len, sequences)), task.num_outputs), torch.nan)
    positions = [range(len(one)) if one.positions is None else one.positions for one in sequences]
    row = torch.tensor([number for number, chosen in enumerate(positions) for _ in chosen])
    logits[row, torch.tensor([position for chosen in positions for position in chosen])] = rows
    network = PaddedTask(model, task)
    outputs = network.arrange(logits[:, :1] if task.pooled else logits, tensors["input_ids"])
    names = ("start_logits", "end_logits") if task.softmax_over_tokens else ("logits",)
    return TraceableModel(network, tensors, dict(zip(names, outputs, strict=True)), axes)


def input_names(encoder: Any) -> tuple[str, ...]:
    """The names of the tensors that an encoder reads, as in transformers."""
    segments = can(encoder, "segments") and encoder.embedding.num_segments > 0
    return ("input_ids", "attention_mask", *(("token_type_ids",) if segments else ()))


def pad_inputs(encoder: Any, sequences: Sequence[InputSequence]) -> dict[str, Tensor]:
    """The sequences as tensors (sequences, T), padded on the right."""
    rows = {
        "input_ids": [sequence.ids for sequence in sequences],
        "attention_mask": [[1] * len(sequence) for sequence in sequences],
        "token_type_ids": [sequence.segments for sequence in sequences],
    }
    padding = {"input_ids": encoder.config.pad_token_id}
    return {
        name: pad_sequence(
            [torch.tensor(row) for row in rows[name]], batch_first=True, padding_value=padding.get(name, 0)
        )
        for name in input_names(encoder)
    }
