"""A plain JinaBERT, written from its paper (Günther et al. 2023) and that of ALiBi: transformers has none.

Attention is explicit, one head at a time. Tensors have the names of the published files.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers.modeling_outputs import MaskedLMOutput


def slopes(heads: int) -> list[float]:
    """The slopes of ALiBi: a geometric sequence for a power of 2, else filled up with every second one of 2n heads."""
    if math.log2(heads).is_integer():
        first = 2 ** (-8 / heads)
        return [first ** (head + 1) for head in range(heads)]
    below = 2 ** math.floor(math.log2(heads))
    return slopes(below) + slopes(2 * below)[0::2][: heads - below]


class Layer(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        width, inner, eps = config.hidden_size, config.intermediate_size, config.layer_norm_eps
        self.heads = config.num_attention_heads
        self.attention = nn.ModuleDict(
            {
                "self": nn.ModuleDict({name: nn.Linear(width, width) for name in ("query", "key", "value")}),
                "output": nn.ModuleDict({"dense": nn.Linear(width, width), "LayerNorm": nn.LayerNorm(width, eps=eps)}),
            }
        )
        self.mlp = nn.ModuleDict(
            {
                "gated_layers": nn.Linear(width, 2 * inner, bias=False),
                "wo": nn.Linear(inner, width),
                "layernorm": nn.LayerNorm(width, eps=eps),
            }
        )

    def forward(self, x: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        own, output, mlp = self.attention["self"], self.attention["output"], self.mlp
        places = torch.arange(x.shape[1])
        distance = (places[:, None] - places).abs()
        maps, mixed = [], []
        parts = [own[name](x).chunk(self.heads, -1) for name in ("query", "key", "value")]
        for slope, query, key, value in zip(slopes(self.heads), *parts, strict=True):
            scores = query @ key.mT / math.sqrt(query.shape[-1]) - slope * distance
            maps.append(scores.masked_fill(~keep[:, None], -torch.inf).softmax(-1))
            mixed.append(maps[-1] @ value)
        x = output["LayerNorm"](x + output["dense"](torch.cat(mixed, -1)))
        gate, up = mlp["gated_layers"](x).chunk(2, -1)
        return mlp["layernorm"](x + mlp["wo"](F.gelu(gate) * up)), torch.stack(maps, 1)


class JinaBertForMaskedLM(nn.Module):
    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.config = config = transformers.BertConfig(
            **settings,
            position_embedding_type="alibi",
            feed_forward_type="geglu",
            architectures=["JinaBertForMaskedLM"],
        )
        width, eps = config.hidden_size, config.layer_norm_eps
        self.bert = nn.Module()
        self.bert.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(config.vocab_size, width),
                "token_type_embeddings": nn.Embedding(config.type_vocab_size, width),
                "LayerNorm": nn.LayerNorm(width, eps=eps),
            }
        )
        self.bert.encoder = nn.ModuleDict(
            {"layer": nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))}
        )
        self.cls = nn.ModuleDict({"predictions": nn.Module()})
        head = self.cls["predictions"]
        head.transform = nn.ModuleDict({"dense": nn.Linear(width, width), "LayerNorm": nn.LayerNorm(width, eps=eps)})
        head.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(
        self, ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None, **_: Any
    ) -> MaskedLMOutput:
        keep = torch.ones_like(ids).bool() if attention_mask is None else attention_mask.bool()
        table, head = self.bert.embeddings, self.cls["predictions"]
        segments = torch.zeros_like(ids) if token_type_ids is None else token_type_ids
        words = table["word_embeddings"]
        states = [table["LayerNorm"](words(ids) + table["token_type_embeddings"](segments))]
        maps = []
        for layer in self.bert.encoder["layer"]:
            state, weights = layer(states[-1], keep)
            states.append(state)
            maps.append(weights)
        vectors = head.transform["LayerNorm"](F.gelu(head.transform["dense"](states[-1])))
        logits = vectors @ words.weight.T + head.bias
        return MaskedLMOutput(logits=logits, hidden_states=tuple(states), attentions=tuple(maps))

    def save_pretrained(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config.to_dict(), default=str))
        save_file(self.state_dict(), folder / "model.safetensors")
