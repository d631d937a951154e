"""Text generation from a prompt: what fits into the model, and the generated text, streamed in pieces.

A GPT continues its prompt, a T5 answers it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import nn

from regard.checkpoints.loaded_model import require_tokenizer
from regard.errors import InputError
from regard.events import drain
from regard.inference.generation.beam_search import Beam, beam_search_steps, check_max_new_tokens
from regard.inference.generation.decoder import Decoder, ReorderableState, as_decoder
from regard.inference.generation.logits_filters import Sampling
from regard.inference.generation.sampling import sample
from regard.inference.generation.text_stream import TextStream, check_stop_strings, token_text
from regard.inference.generation.trace import Trace
from regard.models import T5, Gpt
from regard.models.family import describe_model
from regard.text import Tokenizer

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
        if not isinstance(model, Gpt | T5):
            raise InputError(
                f"expected a GPT-2 or a T5 to write with, and this is {describe_model(model)}; "
                "`regard translate` takes a translator"
            )
        self.model = model
        self.continues = isinstance(model, Gpt)
        ends = [number for number in (model.config.eos_token_id, self.tokenizer.eos_token_id) if number is not None]
        self.end = ends[0] if ends else None

    def encode_prompt(self, text: str, *, max_new_tokens: int) -> EncodedPrompt:
        """Encode a prompt. New tokens get up to half of the model's context if the prompt is long; the prompt the rest.

        A T5 has no limit. An empty prompt of a GPT becomes its begin token.
        """
        check_max_new_tokens(max_new_tokens)
        if not isinstance(self.model, Gpt):
            return EncodedPrompt(self.tokenizer.encode(text).ids, 0, "", max_new_tokens)
        ids, context = (
            self.tokenizer.encode(text, add_special_tokens=False).ids or self._begin(),
            self.model.config.max_position_embeddings,
        )
        # The last generated token is not read again, so one more fits than the context holds.
        room = min(max_new_tokens, max(context + 1 - len(ids), context // 2, 1))
        cut = max(0, len(ids) + room - 1 - context)
        return EncodedPrompt(ids[cut:], cut, self.tokenizer.decode(ids[:cut]), room)

    def stream(
        self,
        prompt: EncodedPrompt,
        *,
        sampling: Sampling | None,
        num_return_sequences: int = 1,
        seed: int = 0,
        stop_strings: Sequence[str] = (),
        trace: Trace | None = None,
    ) -> GenerationStream:
        """Sample `num_return_sequences` texts, or search greedily; iterate over the stream to generate them."""
        check_stop_strings(stop_strings)
        if num_return_sequences < 1:
            raise InputError(f"{num_return_sequences} texts were requested; expected at least 1")
        return GenerationStream(
            self, prompt, sampling=sampling, number=num_return_sequences, seed=seed, stops=stop_strings, trace=trace
        )

    def beam_search(
        self, prompt: EncodedPrompt, *, beam: Beam, stop_strings: Sequence[str] = (), trace: Trace | None = None
    ) -> list[GeneratedText]:
        """The best texts of a beam search, best first; stop strings truncate them at the end."""
        return drain(self.search_steps(prompt, beam=beam, stop_strings=stop_strings, trace=trace))

    def search_steps(
        self, prompt: EncodedPrompt, *, beam: Beam, stop_strings: Sequence[str] = (), trace: Trace | None = None
    ) -> Generator[int, None, list[GeneratedText]]:
        """Like `beam_search`; yields the number of each step."""
        check_stop_strings(stop_strings)
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
        return self.model.embedding.tokens.weight.device

    def _begin(self) -> list[int]:
        config = self.model.config
        known = [
            n
            for n in (getattr(config, "bos_token_id", None), self.tokenizer.bos_token_id, self.end)
            if n is not None and n < config.vocab_size
        ]
        if not known:
            raise InputError("the prompt is empty, and this model has no begin token to start from; give it a word")
        return known[:1]


class GenerationStream:
    """Texts being generated: iterate for pieces (index of the text, new text); `texts` holds the texts so far."""

    def __init__(
        self,
        writer: TextGenerator,
        prompt: EncodedPrompt,
        *,
        sampling: Sampling | None,
        number: int,
        seed: int,
        stops: Sequence[str],
        trace: Trace | None,
    ) -> None:
        self.texts = [GeneratedText() for _ in range(number)]
        self._writer, self._prompt, self._stops = writer, prompt, stops
        self._sampling, self._seed, self._trace = sampling, seed, trace

    def __iter__(self) -> Iterator[tuple[int, str]]:
        for first in range(0, len(self.texts), BATCH):
            yield from self._batch(range(first, min(first + BATCH, len(self.texts))))

    def _batch(self, rows: Sequence[int]) -> Iterator[tuple[int, str]]:
        writer, prompt = self._writer, self._prompt
        before = prompt.ids if writer.continues else []
        streams = [TextStream(writer.tokenizer, prompt_ids=before, stop_strings=self._stops) for _ in rows]
        finished: set[int] = set()
        steps = sample(
            writer.decoder,
            torch.tensor([prompt.ids] * len(rows), device=writer.device),
            sampling=self._sampling,
            end=writer.end,
            max_new_tokens=prompt.max_new_tokens,
            seed=self._seed,
            rows=rows,
            prompt_ids=[before] * len(rows),
            finished=finished,
            trace=self._trace,
        )
        for tokens in steps:
            for position, token in enumerate(tokens):
                if token is not None and (piece := self._take(rows[position], streams[position], token)):
                    yield rows[position], piece
                if streams[position].stopped:
                    finished.add(position)
        for row, stream in zip(rows, streams, strict=True):
            if piece := self._close(row, stream, "length"):
                yield row, piece

    def _take(self, row: int, stream: TextStream, token: int) -> str:
        """Add a token to a text and return the new text that is final."""
        text = self.texts[row]
        text.tokens.append(token)
        if token == self._writer.end:
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
