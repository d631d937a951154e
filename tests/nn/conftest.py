"""Shared fixtures of the nn tests: the explicit attention path, reference attention, and a tiny model per family."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import models
from regard.nn.masks import Packed, Padded
from regard.nn.recording import Tape, record


@pytest.fixture(scope="session")
def explicit() -> Callable[[nn.Module], AbstractContextManager[Tape]]:
    """Force attention modules to compute explicit maps, with an edit that changes nothing."""
    return lambda module: record(module, edit=lambda weights, site: weights)


@pytest.fixture(scope="session")
def reference_attention() -> Callable[..., tuple[Tensor, Tensor]]:
    """softmax(scale * q k^T + bias) v for one head, in loops: q (T, D), k, v (S, D) -> output (T, D), map (T, S)."""

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scale: float,
        may: Callable[[int, int], bool] = lambda t, s: True,
        bias: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        weights = torch.zeros(len(query), len(key), dtype=query.dtype)
        output = torch.zeros(len(query), value.shape[1], dtype=query.dtype)
        for t in range(len(query)):
            raised = {}
            for s in range(len(key)):
                if may(t, s):
                    score = sum(float(a) * float(b) for a, b in zip(query[t], key[s], strict=True)) * scale
                    raised[s] = torch.exp(torch.tensor(score + (0.0 if bias is None else float(bias[t, s]))).double())
            total = sum(raised.values())
            for s, part in raised.items():
                weights[t, s] = part / total
                output[t] += weights[t, s] * value[s]
        return output, weights

    return attend


@dataclass(eq=False)
class Sample:
    """A tiny model of a family, one batch in both layouts, and the source and target lengths."""

    name: str
    model: Any
    padded: tuple[Any, ...]
    packed: tuple[Any, ...] | None
    lengths: list[int]
    target_lengths: list[int]


CONFIGS: dict[str, Any] = {
    "bert": models.BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=9,
        dropout=0,
        attention_dropout=0,
    ),
    "gpt": models.GptConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=9,
        dropout=0,
        attention_dropout=0,
    ),
    "t5": models.T5Config(
        vocab_size=20,
        hidden_size=8,
        head_dim=6,
        num_hidden_layers=2,
        num_decoder_layers=3,
        num_attention_heads=2,
        intermediate_size=12,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=16,
        dropout=0,
    ),
    "transformer": models.TransformerConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12, dropout=0
    ),
    "vit": models.VitConfig(
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        image_size=(8, 8),
        patch_size=(4, 4),
        num_labels=3,
    ),
    "elmo": models.ElmoConfig(
        vocab_size=20, num_characters=0, hidden_size=4, cell_size=6, num_hidden_layers=2, dropout=0
    ),
    **{
        f"seq2seq, {score}": models.Seq2SeqConfig(
            source_size=20, target_size=20, hidden_size=8, embedding_size=6, score=score
        )
        for score in ("dot", "general", "additive")
    },
}
CLASSES = {
    "bert": models.Bert,
    "gpt": models.Gpt,
    "t5": models.T5,
    "transformer": models.Transformer,
    "vit": models.Vit,
}


@pytest.fixture(scope="session")
def sample(randomised: Callable[..., Any]) -> Callable[[str, torch.device], Sample]:
    def make(name: str, device: torch.device) -> Sample:
        torch.manual_seed(1)
        kind: Any = CLASSES.get(name, models.Elmo if name == "elmo" else models.Seq2Seq)
        model = randomised(kind(CONFIGS[name])).to(device).eval()
        lengths, target_lengths = [3, 5, 5, 1], [4, 2, 3, 3]
        if name == "vit":
            return Sample(name, model, (torch.randn(2, 3, 8, 8, device=device),), None, [5, 5], [])
        ids, target = torch.randint(1, 20, (4, 5), device=device), torch.randint(1, 20, (4, 4), device=device)
        source_layout, target_layout = (
            Padded.from_lengths(lengths, device=device),
            Padded.from_lengths(target_lengths, device=device),
        )
        packed, line = Packed.from_lengths(lengths, device=device), ids[source_layout.mask]
        if name in ("bert", "gpt", "elmo"):
            return Sample(name, model, (ids, source_layout), (line, packed), lengths, [])
        if name in ("t5", "transformer"):
            both = target[target_layout.mask], packed, Packed.from_lengths(target_lengths, device=device)
            return Sample(
                name, model, (ids, target, source_layout, target_layout), (line, *both), lengths, target_lengths
            )
        return Sample(name, model, (ids, target, source_layout), (line, target, packed), lengths, [4] * 4)

    return make
