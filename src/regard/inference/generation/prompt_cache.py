"""The prompt cache: a text that begins like the last one reuses its keys and values, as the turns of a chat do."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any
from weakref import ref

from torch import Tensor

from regard.nn import recording
from regard.nn.cache import DecoderState
from regard.nn.causal_decoder import CausalDecoder

MAX_BYTES = 1 << 29  # of keys and values that are kept between texts


class PromptCache:
    """The state of one model after its last text. The weights of the model must not change between texts.

    `start` reads a prompt; `keep` is called when its text is complete. Until then another text is read without the
    cache. While activations are recorded or edited, prompts are read completely and nothing is kept.
    """

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self.reused = 0  # tokens of the last prompt that were not read again
        self._model: ref[Any] | None = None
        self._tokens: list[int] = []
        self._state: DecoderState | None = None
        self._in_use: DecoderState | None = None

    def start(self, model: Any, ids: Tensor) -> tuple[Tensor, Any]:
        """`Decoder.start` for one prompt (1, T): the logits (1, V) of the next token, and the state."""
        old, self._state = self._state, None
        self.reused = 0 if old is None else self._shared(model, ids, old)
        if old is None or not self.reused:
            logits, state = model.start(ids)
        else:
            old.truncate(self.reused)
            hidden = model.extend(ids[:, self.reused :], old)
            logits, state = model.logits(hidden[:, -1]), old
        kept = isinstance(model, CausalDecoder) and not recording.is_recording()
        self._model, self._in_use = ref(model), state if kept else None
        return logits, state

    def keep(self, tokens: Sequence[int]) -> None:
        """Keep the state of the last prompt, continued by the generated ones: `tokens` are those that were read."""
        state, self._in_use = self._in_use, None
        if state is None or len(state.mask) != 1:
            return
        state.truncate(len(tokens))
        layers = [layer.self_attention for layer in state.cache.layers]
        size = sum(part.nbytes for layer in layers for part in (layer.key, layer.value) if part is not None)
        if size <= self.max_bytes:
            self._tokens, self._state = list(tokens[: state.cache.length]), state

    def _shared(self, model: object, ids: Tensor, state: DecoderState) -> int:
        """How many tokens the prompt has in common with the last text; its last token is read for the logits."""
        if self._model is None or self._model() is not model or recording.is_recording():
            return 0
        if len(ids) != 1 or state.mask.device != ids.device:
            return 0
        pairs = zip(self._tokens, ids[0, :-1].tolist(), strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
