"""Table-based language models without weights, and tiny models of every family with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.models import (
    T5,
    Gpt,
    GptConfig,
    Llama,
    LlamaConfig,
    Seq2Seq,
    Seq2SeqConfig,
    T5Config,
    Transformer,
    TransformerConfig,
)
from regard.models.gemma2 import Gemma2
from regard.models.gemma3_text import Gemma3TextConfig
from regard.models.gptj import GptJ, GptJConfig
from regard.nn.masks import Padded

__all__ = ["FAMILIES", "VOCABULARY", "Chain", "ChainState", "family"]

VOCABULARY = 19


class ChainState:
    """The tokens of each row so far."""

    def __init__(self, generated: Tensor) -> None:
        self.generated = generated

    def reorder(self, index: Tensor) -> None:
        self.generated = self.generated[index]


class Chain:
    """A language model with a fixed table: the next-token logits depend on the last two tokens.

    `rows` counts the rows of each call, so that a test can measure the cost of a search.
    """

    def __init__(self, vocabulary: int, *, seed: int = 0, sharpness: float = 1.5) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.table = sharpness * torch.randn(vocabulary, vocabulary, vocabulary, generator=generator)
        self.rows: list[int] = []

    def start(self, ids: Tensor, layout: Padded | None = None, /) -> tuple[Tensor, ChainState]:
        self.rows.append(len(ids))
        state = ChainState(ids)
        return self._logits(state), state

    def step(self, tokens: Tensor, state: ChainState, /) -> tuple[Tensor, ChainState]:
        self.rows.append(len(tokens))
        state.generated = torch.cat([state.generated, tokens[:, None]], dim=1)
        return self._logits(state), state

    def _logits(self, state: ChainState) -> Tensor:
        return self.table[state.generated[:, -2], state.generated[:, -1]]

    def log_probability(self, prompt: list[int], generated: list[int]) -> float:
        """The sum of log-softmax values, by definition."""
        tokens, total = [*prompt], 0.0
        for token in generated:
            total += float(self.table[tokens[-2], tokens[-1]].double().log_softmax(-1)[token])
            tokens.append(token)
        return total


_SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 8,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "dropout": 0.0,
}
_LLAMA: dict[str, Any] = {
    **{name: value for name, value in _SHAPE.items() if name != "dropout"},
    "hidden_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "max_position_embeddings": 40,
    "sliding_window": 3,
    "max_window_layers": 1,
    "query_key_norm": True,
}
_GEMMA = {key: value for key, value in _LLAMA.items() if key != "max_window_layers"} | {
    "head_dim": 6,
    "sliding_window_pattern": 2,
    "final_logit_softcapping": 20.0,
}
_T5: dict[str, Any] = {
    "head_dim": 6,
    "num_hidden_layers": 2,
    "num_decoder_layers": 2,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 16,
}
_LSTM: dict[str, Any] = {
    "source_size": VOCABULARY,
    "target_size": VOCABULARY,
    "hidden_size": 12,
    "embedding_size": 7,
    "score": "dot",
}
FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "gpt": lambda: Gpt(GptConfig(**_SHAPE, num_hidden_layers=2, max_position_embeddings=40, attention_dropout=0.0)),
    "gptj": lambda: GptJ(GptJConfig(**_SHAPE, num_hidden_layers=2, max_position_embeddings=40, rotary_dim=2)),
    "llama": lambda: Llama(LlamaConfig(**_LLAMA)),
    "gemma": lambda: Gemma2(Gemma3TextConfig(**_GEMMA)),
    "t5": lambda: T5(T5Config(**_SHAPE, **_T5)),
    "transformer": lambda: Transformer(TransformerConfig(**_SHAPE, num_hidden_layers=2)),
    "lstm": lambda: Seq2Seq(Seq2SeqConfig(**_LSTM)),
    "lstm, deck": lambda: Seq2Seq(Seq2SeqConfig(**{**_LSTM, "recipe": "deck", "score": "additive", "cell": "gru"})),
}


def family(name: str, *, seed: int = 4) -> Any:
    """A tiny model in which every parameter matters and which does not repeat a single token."""
    generator = torch.Generator().manual_seed(seed)
    model = FAMILIES[name]()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            size = 0.1 if "norm" in key else 0.5 if "tokens" in key else 1.2
            values = size * torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + values if "norm" in key and key.endswith("weight") else values)
    return model.eval()
