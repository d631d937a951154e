"""The prompt cache: a text that begins like the last one reuses its keys and values, as the turns of a chat do.

`read` also returns the logits of the prompt itself; the text that follows it reuses what was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from regard.nn import recording
from regard.nn.cache import DecoderState
from regard.nn.causal_decoder import CausalDecoder

MAX_BYTES = 1 << 29  # of keys and values that are kept between texts
READ_TOKENS = 128  # of a prompt whose logits are computed at once: 50 MB in float64 for 50,000 tokens


class PromptCache:
    """The state of one model after its last complete text. The weights of the model must not change between texts.

    While activations are recorded or edited, prompts are read completely and nothing is kept.
    """

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self.reused = 0  # tokens of the last prompt that were not read again
        self._model: ref[Any] | None = None
        self._tokens: list[int] = []
        self._state: DecoderState | None = None

    def start(self, model: Any, ids: Tensor) -> tuple[Tensor, Any]:
        """`Decoder.start` for one prompt (1, T): the logits (1, V) of the next token, and the state."""
        state, self._state = self._state, None  # a state continues one text
        self.reused = 0 if state is None else self._shared(model, ids, state)
        if state is None or not self.reused:
            logits, started = model.start(ids)
            return logits, started
        state.truncate(self.reused)
        hidden = model.extend(ids[:, self.reused :], state)
        return model.logits(hidden[:, -1]), state

    def read(self, model: CausalDecoder, ids: Sequence[int]) -> Iterator[Tensor]:
        """Yield the logits (n, V) that follow each of the ids, some positions at a time, and keep the state for a text
        that begins with them."""
        row = torch.tensor([ids], device=model.output_weight.device)
        with torch.inference_mode():
            logits, state = model.start(row[:, :1])
        yield logits
        for first in range(1, len(ids), READ_TOKENS):
            part = row[:, first : first + READ_TOKENS]
            with torch.inference_mode():
                logits = model.logits(model.extend(part, state)[0])
            yield logits
        self.keep(model, ids, state)

    def keep(self, model: Any, tokens: Sequence[int], state: object) -> None:
        """Keep the state of a complete text for the next one; `tokens` are those that the model has read."""
        if not isinstance(model, CausalDecoder) or not isinstance(state, DecoderState) or recording.is_recording():
            return
        state.truncate(len(tokens))
        layers = [layer.self_attention for layer in state.cache.layers]
        size = sum(part.nbytes for layer in layers for part in (layer.key, layer.value) if part is not None)
        if len(state.mask) == 1 and size <= self.max_bytes:
            self._model, self._tokens, self._state = ref(model), list(tokens[: state.cache.length]), state

    def _shared(self, model: object, ids: Tensor, state: DecoderState) -> int:
        """How many tokens the prompt has in common with the last text; its last token is read for the logits."""
        if self._model is None or self._model() is not model or recording.is_recording():
            return 0
        if len(ids) != 1 or state.mask.device != ids.device:
            return 0
        pairs = zip(self._tokens, ids[0, :-1].tolist(), strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
