"""Text generation from a prompt: what fits into the model, and the generated text, streamed in pieces.

A causal model continues its prompt, an encoder-decoder answers it. `TextStream` decodes tokens incrementally: never
half a character, and nothing after a stop string.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.checkpoints.loaded_model import require_tokenizer
from regard.errors import InputError
from regard.inference.causal_lm import begin_token, prompt_ids
from regard.inference.generation.beam_search import Beam, beam_search_steps, check_max_new_tokens
from regard.inference.generation.decoder import Decoder, ReorderableState, as_decoder
from regard.inference.generation.prompt_cache import PromptCache
from regard.inference.generation.sampling import Sampling, sample
from regard.inference.generation.trace import Trace
from regard.models.family import can, describe_model
from regard.nn.causal_decoder import CausalDecoder
from regard.text import Tokenizer
from regard.text.sentencepiece import SPACE
from regard.text.tokenizer import readable_bytes, readable_token

REPLACEMENT = "\ufffd"  # what decoding returns for an incomplete character
BATCH = 16  # texts generated together
FinishReason = Literal["end", "stop", "length", "interrupted"]


@dataclass(frozen=True)
class EncodedPrompt:
    """The ids that the model reads. The first `truncated` tokens of the prompt, `truncated_text`, did not fit.

    `max_new_tokens` is lower than requested if the model's context has no room for more.
    """

    ids: list[int]
    truncated: int
    truncated_text: str
    max_new_tokens: int


@dataclass
class GeneratedText:
    """A text so far, without the prompt; `tokens` are all generated ids, including the end token or a stop string.

    `reason`: the end token ("end"), a stop string ("stop") or the maximum number of tokens ("length"). Texts of a beam
    search have the sum of their log-probabilities and the score they are ranked by.
    """

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    reason: FinishReason = "interrupted"
    log_probability: float | None = None
    score: float | None = None


class TextGenerator:
    """A model and its tokenizer for text generation."""

    def __init__(self, model: nn.Module, tokenizer: Tokenizer | None) -> None:
        self.tokenizer = require_tokenizer(model, tokenizer)
        self.decoder: Decoder[ReorderableState] = as_decoder(model)
        if not can(model, "text-generation"):
            raise InputError(
                f"expected a model that generates text, such as a GPT-2, and this is {describe_model(model)}; "
                "`regard translate` takes a translator"
            )
        self.model: Any = model
        self.continues = can(model, "causal-lm")
        end = model.config.eos_token_id
        self.end: int | None = self.tokenizer.eos_token_id if end is None else end
        others = getattr(model.config, "other_eos_token_id", ())
        self.ends = {self.end, self.tokenizer.eos_token_id, *others} - {None}

    def encode_prompt(self, text: str, *, max_new_tokens: int, add_special_tokens: bool = True) -> EncodedPrompt:
        """Encode a prompt. New tokens get up to half of the model's context if the prompt is long; the prompt the rest.

        An encoder-decoder has no limit. An empty prompt of a causal model becomes its begin token. The text of a chat
        template has its special tokens already.
        """
        check_max_new_tokens(max_new_tokens)
        if not self.continues:
            return EncodedPrompt(self.tokenizer.encode(text).ids, 0, "", max_new_tokens)
        plain = not add_special_tokens
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids if plain else prompt_ids(self.tokenizer, text)
        ids = ids or self._begin()
        context = self.model.config.max_position_embeddings
        # The last generated token is not read again, so one more fits than the context holds.
        room = min(max_new_tokens, max(context + 1 - len(ids), context // 2, 1))
        cut = max(0, len(ids) + room - 1 - context)
        return EncodedPrompt(ids[cut:], cut, self.tokenizer.decode(ids[:cut]), room)

    def search_steps(
        self, prompt: EncodedPrompt, *, beam: Beam, stop_strings: Sequence[str] = (), trace: Trace | None = None
    ) -> Generator[int, None, list[GeneratedText]]:
        """The best texts of a beam search, best first; stop strings truncate them at the end. Yields the number of each
        step."""
        ids = torch.tensor([prompt.ids], device=self.device)
        (found,) = yield from beam_search_steps(
            self.decoder, ids, beam=beam, end=self.end, max_new_tokens=prompt.max_new_tokens, trace=trace
        )
        texts = []
        for one in found:
            stream = TextStream(
                self.tokenizer, prompt_ids=prompt.ids if self.continues else (), stop_strings=stop_strings
            )
            text = "".join([stream.push(token) for token in one.ids]) + stream.end()
            reason: FinishReason = "stop" if stream.stopped else "end" if one.finished else "length"
            texts.append(GeneratedText(text, list(one.ids), reason, one.log_probability, one.score))
        return texts

    def trace(self, *, top: int = 10) -> Trace:
        """A trace with the tokens of this tokenizer."""
        return Trace(
            top=top,
            token_text=lambda token: token_text(self.tokenizer, token),
            decode=lambda tokens: self.tokenizer.decode(tokens),
        )

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device  # type: ignore[no-any-return]

    def _begin(self) -> list[int]:
        """The begin token, or the end token, which separates texts in a model without one."""
        begin = begin_token(self.model, self.tokenizer)
        if begin is None and self.end is not None and self.end < self.model.config.vocab_size:
            begin = self.end
        if begin is None:
            raise InputError("the prompt is empty, and this model has no begin token to start from; give it a word")
        return [begin]


@dataclass(eq=False)
class GenerationStream:
    """Texts being generated: iterate for pieces (index of the text, new text); `texts` holds the texts so far.

    Without `sampling` the search is greedy. An `assistant`, for which `check_assistant` holds, makes generation faster
    and does not change the texts; so does a `prompt_cache`, which a single text uses.
    """

    generator: TextGenerator
    prompt: EncodedPrompt
    _: KW_ONLY
    sampling: Sampling | None
    num_return_sequences: int = 1
    seed: int = 0
    stop_strings: Sequence[str] = ()
    trace: Trace | None = None
    assistant: CausalDecoder | None = None
    prompt_cache: PromptCache | None = None

    def __post_init__(self) -> None:
        self.texts = [GeneratedText() for _ in range(self.num_return_sequences)]
        self._cache = self.prompt_cache if self.num_return_sequences == 1 else None
        self._state: object = None

    def __iter__(self) -> Iterator[tuple[int, str]]:
        batch = BATCH if self.assistant is None else 1
        for first in range(0, len(self.texts), batch):
            yield from self._batch(range(first, min(first + batch, len(self.texts))))
        if self._cache is not None:
            read = [*self.prompt.ids, *self.texts[0].tokens[:-1]]
            self._cache.keep(self.generator.model, read, self._state)

    def _batch(self, rows: Sequence[int]) -> Iterator[tuple[int, str]]:
        generator, prompt = self.generator, self.prompt
        before = prompt.ids if generator.continues else []
        streams = [TextStream(generator.tokenizer, prompt_ids=before, stop_strings=self.stop_strings) for _ in rows]
        finished: set[int] = set()
        steps = sample(
            generator.decoder,
            torch.tensor([prompt.ids] * len(rows), device=generator.device),
            sampling=self.sampling,
            end=generator.end,
            max_new_tokens=prompt.max_new_tokens,
            seed=self.seed,
            rows=rows,
            prompt_ids=[before] * len(rows),
            finished=finished,
            trace=self.trace,
            assistant=self.assistant,
            start=None if self._cache is None else self._start,
        )
        for tokens in steps:
            for position, token in enumerate(tokens):
                if token is not None and (piece := self._take(rows[position], streams[position], token)):
                    yield rows[position], piece
                if streams[position].stopped or token in generator.ends:
                    finished.add(position)
        for row, stream in zip(rows, streams, strict=True):
            if piece := self._close(row, stream, "length"):
                yield row, piece

    def _start(self, model: Any, ids: Tensor) -> tuple[Tensor, Any]:
        assert self._cache is not None
        logits, self._state = self._cache.start(model, ids)
        return logits, self._state

    def _take(self, row: int, stream: TextStream, token: int) -> str:
        """Add a token to a text and return the new text that is final."""
        text = self.texts[row]
        text.tokens.append(token)
        if token in self.generator.ends:
            return self._close(row, stream, "end")
        piece = stream.push(token)
        text.text += piece
        if stream.stopped:
            text.reason = "stop"
        return piece

    def _close(self, row: int, stream: TextStream, reason: FinishReason) -> str:
        text = self.texts[row]
        if text.reason != "interrupted":
            return ""
        piece = stream.end()
        text.text += piece
        text.reason = "stop" if stream.stopped else reason
        return piece


class TextStream:
    """The text of tokens that arrive one by one after `prompt_ids`, whose text is not repeated.

    The strings returned by `push` and `end`, joined, are what the tokens add to the text of the prompt, up to the first
    stop string: the one that is complete first, of several that end together the longest. `stopped`: there was one.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, prompt_ids: Sequence[int] = (), stop_strings: Sequence[str] = ()
    ) -> None:
        self.stopped = False
        self._tokenizer, self._stop_strings = tokenizer, tuple(stop_strings)
        self._ids = list(prompt_ids)
        # Spaces between tokens depend on their neighbors, so new text is found after the text of the last tokens:
        # tokens [first, emitted) are that context.
        self._first, self._emitted = 0, len(self._ids)
        self._held = ""

    def push(self, token: int) -> str:
        """Add a token and return the text that is now final."""
        if self.stopped:
            return ""
        self._ids.append(token)
        new = self._new()
        if not new or new.endswith(REPLACEMENT):  # the rest of a character may follow
            return ""
        self._first, self._emitted = self._emitted, len(self._ids)
        return self._released(new)

    def end(self) -> str:
        """Return the text that was held back; no more tokens follow."""
        if self.stopped:
            return ""
        new = self._new()
        self._emitted = len(self._ids)
        text = self._released(new) + self._held
        self._held = ""
        return text

    def _new(self) -> str:
        """The text that the last tokens add."""
        known = self._tokenizer.decode(self._ids[self._first : self._emitted])
        return self._tokenizer.decode(self._ids[self._first :])[len(known) :]

    def _released(self, new: str) -> str:
        """The text up to a stop string, or up to where one may have begun."""
        text = self._held + new
        found = [(text.index(stop) + len(stop), -len(stop)) for stop in self._stop_strings if stop in text]
        if found:
            self.stopped, self._held = True, ""
            after, negative = min(found)
            return text[: after + negative]
        sure = len(text) - max((_overlap(text, stop) for stop in self._stop_strings), default=0)
        self._held = text[sure:]
        return text[:sure]


def token_text(tokenizer: Tokenizer, token: int) -> str:
    """A token as text, bytes of an incomplete character in hex, other tokens as the vocabulary spells them."""
    if token >= tokenizer.size:
        return f"<{token}>"  # an output layer may be wider than the vocabulary
    text = tokenizer.decode([token], skip_special_tokens=False)
    if REPLACEMENT in text:
        return readable_token(tokenizer.token(token))
    return text or tokenizer.token(token)


def token_bytes(tokenizer: Tokenizer, token: int) -> bytes:
    """What a token adds to a text, in UTF-8: maybe a part of a character. A special token is spelled."""
    if token >= tokenizer.size:
        return token_text(tokenizer, token).encode()
    name, text = tokenizer.token(token), tokenizer.decode([token], skip_special_tokens=False)
    if REPLACEMENT in text:
        return readable_bytes(name) or text.encode()
    if name.startswith(SPACE):  # which decoding drops at the beginning of a text
        text = name.replace(SPACE, " ")
    return (text or name).encode()


def _overlap(text: str, stop: str) -> int:
    """The number of characters at the end of the text that may begin the stop string."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
