"""Text completions of a served model, token by token; several run in turns. Runs in the model's process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from torch import Tensor

from regard.checkpoints.loaded_model import LoadedModel
from regard.checkpoints.reading import reading_count
from regard.inference.generation.sampling import Sampling
from regard.inference.generation.text_generator import (
    EncodedPrompt,
    GenerationStream,
    TextGenerator,
    token_text,
)
from regard.inference.generation.trace import Trace
from regard.server.errors import invalid, too_long
from regard.server.models.services import unreadable
from regard.text import TokenIds

# Of one token: its id, its log-probability, and the likeliest tokens with theirs.
TokenScore = tuple[int, float, list[tuple[int, float]]]
LOGPROB_LISTS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


class CompletionJob:
    """Arguments: `prompts` (strings, or lists of token ids), `max_tokens`, `temperature`, `top_p`, `n` texts of each,
    `stop`, `seed`, `logprobs` (None, or how many candidates) and `stream`.

    With `stream`, events are (index of the choice, new text, its logprobs). The reply has the choices, each with
    `text`, `finish_reason` and `logprobs`, and the number of tokens of prompts and completions.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        self.generator = TextGenerator(loaded.model, loaded.tokenizer)
        self._reading = reading_count(loaded.folder)

    def __call__(
        self, arguments: Mapping[str, Any], cancelled: threading.Event, emit: Callable[[Any], None]
    ) -> Generator[Any, None, tuple[dict[str, Any], int, str]]:
        prompts = [self._encode(prompt, arguments["max_tokens"]) for prompt in arguments["prompts"]]
        choices: list[dict[str, Any]] = []
        count, prompt_tokens, completion_tokens = arguments["n"], sum(len(one.ids) for one in prompts), 0
        for number, prompt in enumerate(prompts):
            recorder = None if arguments["logprobs"] is None else _LogprobRecorder(arguments["logprobs"])
            stream = GenerationStream(
                self.generator,
                prompt,
                sampling=Sampling(temperature=arguments["temperature"], top_p=arguments["top_p"]),
                num_return_sequences=count,
                seed=arguments["seed"] + number,
                stop_strings=arguments["stop"],
                trace=recorder,
            )
            logprobs = None if recorder is None else [LogprobList(self._spell) for _ in range(count)]
            if arguments["max_tokens"]:
                for row, piece in stream:
                    new = None
                    if recorder is not None and logprobs is not None:
                        new = logprobs[row].extend(self._of_text(recorder.rows[row]), len(stream.texts[row].text))
                    yield (number * count + row, piece, new) if arguments["stream"] else None
            for row, text in enumerate(stream.texts):
                completion_tokens += len(text.tokens)
                reason = "length" if text.reason in ("length", "interrupted") else "stop"
                listed = None if logprobs is None else logprobs[row].lists
                choices.append({"text": text.text, "finish_reason": reason, "logprobs": listed})
        reply = {"choices": choices, "prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
        warning = self._warning(arguments["prompts"], prompts)
        return reply, prompt_tokens + completion_tokens, warning

    def _warning(self, prompts: Sequence[str | Sequence[int]], encoded: Sequence[EncodedPrompt]) -> str:
        """What the model cannot read of the prompts that are texts."""
        texts = [(one, prompt.ids) for one, prompt in zip(prompts, encoded, strict=True) if isinstance(one, str)]
        if not texts:
            return ""
        rows = TokenIds.from_lists([ids for _, ids in texts])
        return unreadable(self._reading, self.generator.tokenizer, [text for text, _ in texts], rows)

    def _encode(self, prompt: str | Sequence[int], max_tokens: int) -> EncodedPrompt:
        generator = self.generator
        context = getattr(generator.model.config, "max_position_embeddings", None) if generator.continues else None
        if not isinstance(prompt, str):
            size = int(generator.model.config.vocab_size)
            if not prompt or not all(0 <= number < size for number in prompt):
                raise invalid(f"prompt: expected token ids from 0 to {size - 1:,}", param="prompt")
            room = max_tokens if context is None else min(max_tokens, context + 1 - len(prompt))
            encoded = EncodedPrompt(list(prompt), max(0, len(prompt) - (context or len(prompt))), "", max(room, 1))
        else:
            encoded = generator.encode_prompt(prompt, max_new_tokens=max(max_tokens, 1))
        if encoded.truncated:
            total = len(encoded.ids) + (encoded.truncated if isinstance(prompt, str) else 0)
            raise too_long(
                f"this model's context has {context:,} tokens; the prompt has {total:,}. Shorten it, or ask for fewer "
                "tokens with max_tokens",
                param="prompt",
            )
        return encoded

    def _of_text(self, scores: list[TokenScore]) -> list[TokenScore]:
        """Without the end token, which is not part of the text."""
        return scores[:-1] if scores and scores[-1][0] == self.generator.end else scores

    def _spell(self, token: int) -> str:
        return token_text(self.generator.tokenizer, token)


class LogprobList:
    """The logprobs of a text that grows, in OpenAI's form: four lists with an entry for each token."""

    def __init__(self, spell: Callable[[int], str]) -> None:
        self.lists: dict[str, list[Any]] = {name: [] for name in LOGPROB_LISTS}
        self._spell, self._offset = spell, 0

    def extend(self, scores: Sequence[TokenScore], length: int) -> dict[str, list[Any]]:
        """Add the tokens that begin in the first `length` characters of the text, and return those that are new.

        `scores` are those of all tokens so far. Tokens of a stop string, and what follows it, begin behind the text.
        """
        first = len(self.lists["tokens"])
        for token, value, top in scores[first:]:
            if self._offset >= length:
                break
            text = self._spell(token)
            entry = (text, value, {self._spell(other): score for other, score in top}, self._offset)
            for name, item in zip(LOGPROB_LISTS, entry, strict=True):
                self.lists[name].append(item)
            self._offset += len(text)
        return {name: items[first:] for name, items in self.lists.items()}


class _LogprobRecorder(Trace):
    """Keeps the model's own log-probability of each sampled token, and the `count` likeliest ones."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.rows: dict[int, list[TokenScore]] = {}

    def sample(
        self, row: int, logits: Tensor, stages: Sequence[tuple[str, Tensor]], token: int, *, end: int | None
    ) -> None:
        scores = logits.double().log_softmax(-1)
        best = scores.topk(min(self.count, len(scores)))
        top = list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        self.rows.setdefault(row, []).append((token, float(scores[token]), top))
