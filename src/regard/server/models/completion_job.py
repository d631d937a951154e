"""Completions and chats of a served model, token by token; several run in turns. Runs in the model's process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from torch import Tensor

from regard.checkpoints.loaded_model import LoadedModel
from regard.checkpoints.reading import reading_count
from regard.inference.generation.prompt_cache import PromptCache
from regard.inference.generation.sampling import Sampling
from regard.inference.generation.text_generator import (
    EncodedPrompt,
    GenerationStream,
    TextGenerator,
    token_bytes,
    token_text,
)
from regard.inference.generation.trace import Trace
from regard.models.family import describe_model
from regard.server.errors import invalid, too_long
from regard.server.models.services import unreadable
from regard.text import TokenIds

MAX_CHAT_TOKENS = 4096  # of an answer whose request gives no number
# Of one token: its id, its log-probability, and the likeliest tokens with theirs.
TokenScore = tuple[int, float, list[tuple[int, float]]]
# A token as text and in UTF-8, and its log-probability (None: nothing precedes it).
SpelledToken = tuple[str, bytes, float | None]
# A token of a text, the likeliest ones in its place, and the character at which it begins.
LogprobEntry = tuple[SpelledToken, list[SpelledToken] | None, int]


class CompletionJob:
    """Arguments: `prompts` (strings, or lists of token ids), `max_tokens`, `temperature`, `top_p`, `n` texts of each,
    `stop`, `seed`, `logprobs` (None, or how many candidates), `echo` (whether texts begin with their prompt) and
    `stream`.

    With `stream`, events are (index of the choice, new text, its logprobs). The reply has the choices, each with
    `text`, `finish_reason` and `logprobs`, a list of `LogprobEntry`, and the number of tokens of prompts and
    completions.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        self.generator = TextGenerator(loaded.model, loaded.tokenizer)
        self._reading = reading_count(loaded.folder)
        self._special = self.generator.tokenizer.special_token_ids

    def __call__(
        self, arguments: Mapping[str, Any], cancelled: threading.Event, emit: Callable[[Any], None]
    ) -> Generator[Any, None, tuple[dict[str, Any], int, str]]:
        prompts = [self._encode(prompt, arguments) for prompt in arguments["prompts"]]
        choices: list[dict[str, Any]] = []
        count, top, prompt_tokens, completion_tokens = arguments["n"], arguments["logprobs"], 0, 0
        for number, (given, prompt) in enumerate(zip(arguments["prompts"], prompts, strict=True)):
            recorder = None if top is None else _LogprobRecorder(top)
            cache, echo, echoed = self._cache(), "", LogprobList(self)
            if arguments["echo"]:
                echo = given if isinstance(given, str) else self.generator.tokenizer.decode(given)
                if top is not None:
                    cache = PromptCache()
                    yield from self._score_prompt(given, prompt.ids, cache, echoed, top)
            stream = GenerationStream(
                self.generator,
                prompt,
                sampling=Sampling(temperature=arguments["temperature"], top_p=arguments["top_p"]),
                num_return_sequences=count,
                seed=arguments["seed"] + number,
                stop_strings=arguments["stop"],
                trace=recorder,
                prompt_cache=cache,
            )
            logprobs = None if recorder is None else [LogprobList(self, echo) for _ in range(count)]
            if arguments["stream"] and echo:
                for row in range(count):
                    yield number * count + row, echo, None if top is None else echoed.entries
            if arguments["max_tokens"] != 0:
                for row, piece in stream:
                    new = None
                    if recorder is not None and logprobs is not None:
                        new = logprobs[row].extend(self._of_text(recorder.rows[row]), stream.texts[row].text)
                    yield (number * count + row, piece, new) if arguments["stream"] else None
            prompt_tokens += len(prompt.ids)
            for row, text in enumerate(stream.texts):
                completion_tokens += len(text.tokens)
                reason = "length" if text.reason in ("length", "interrupted") else "stop"
                listed = None if logprobs is None else [*echoed.entries, *logprobs[row].entries]
                choices.append({"text": echo + text.text, "finish_reason": reason, "logprobs": listed})
        reply = {"choices": choices, "prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
        warning = self._warning(arguments["prompts"], prompts)
        return reply, prompt_tokens + completion_tokens, warning

    def spell(self, token: int, logprob: float | None) -> SpelledToken:
        data = token_bytes(self.generator.tokenizer, token)
        try:
            return data.decode(), data, logprob
        except UnicodeDecodeError:
            return token_text(self.generator.tokenizer, token), data, logprob

    def length(self, token: int, data: bytes) -> int:
        """The bytes of a token that are in the text."""
        return 0 if token in self._special else len(data)

    def _cache(self) -> PromptCache | None:
        """What keeps the state of a text for the next one."""
        return None

    def _warning(self, prompts: Sequence[str | Sequence[int]], encoded: Sequence[EncodedPrompt]) -> str:
        """What the model cannot read of the prompts that are texts."""
        texts = [(one, prompt.ids) for one, prompt in zip(prompts, encoded, strict=True) if isinstance(one, str)]
        if not texts:
            return ""
        rows = TokenIds.from_lists([ids for _, ids in texts])
        return unreadable(self._reading, self.generator.tokenizer, [text for text, _ in texts], rows)

    @property
    def _context(self) -> int | None:
        """The most tokens that the model reads, if there is such a number."""
        generator = self.generator
        return getattr(generator.model.config, "max_position_embeddings", None) if generator.continues else None

    def _encode(self, prompt: str | Sequence[int], arguments: Mapping[str, Any]) -> EncodedPrompt:
        generator, context, max_tokens = self.generator, self._context, arguments["max_tokens"]
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

    def _score_prompt(
        self, given: str | Sequence[int], ids: Sequence[int], cache: PromptCache, found: LogprobList, top: int
    ) -> Generator[None, None, None]:
        """Add the tokens of a prompt to `found`. Special tokens that were put before a text are not part of it."""
        model, tokenizer = self.generator.model, self.generator.tokenizer
        if not self.generator.continues:
            raise invalid(
                f"echo with logprobs needs a model that continues its prompt, and this is {describe_model(model)}, "
                "which answers it; leave out echo",
                param="echo",
            )
        scores: list[TokenScore | None] = [None]
        for logits in cache.read(model, ids):
            following = ids[len(scores) : len(scores) + len(logits)]
            scores += [_score(row, token, top) for row, token in zip(logits, following, strict=False)]
            yield
        offsets: list[int] | None = None
        if isinstance(given, str):
            offsets = [start for start, _ in tokenizer.encode(given, add_special_tokens=False).offsets]
        first = len(ids) - len(ids if offsets is None else offsets)
        for position in range(first, len(ids)):
            found.add(ids[position], scores[position], None if offsets is None else offsets[position - first])

    def _of_text(self, scores: list[TokenScore]) -> list[TokenScore]:
        """Without the end token, which is not part of the text."""
        return scores[:-1] if scores and scores[-1][0] in self.generator.ends else scores


class ChatJob(CompletionJob):
    """The answer to `messages` by the model's chat template; the other arguments are those of a completion, without
    `prompts` and `echo`. `max_tokens` None is the rest of the context, at most MAX_CHAT_TOKENS.

    A chat that continues the last one reuses its keys and values.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        super().__init__(loaded)
        self._prompt_cache = PromptCache()

    def prepare(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments with the rendered messages as the prompt."""
        prompt = self.generator.tokenizer.apply_chat_template(arguments["messages"])
        return {**arguments, "prompts": [prompt], "echo": False}

    def _cache(self) -> PromptCache | None:
        return self._prompt_cache

    def _encode(self, prompt: str | Sequence[int], arguments: Mapping[str, Any]) -> EncodedPrompt:
        assert isinstance(prompt, str)
        ids = self.generator.encode_prompt(prompt, max_new_tokens=1, add_special_tokens=False)
        total, context, max_tokens = len(ids.ids) + ids.truncated, self._context, arguments["max_tokens"]
        room = MAX_CHAT_TOKENS if context is None else context + 1 - total
        if room < (1 if max_tokens is None else max_tokens):
            wanted = "" if max_tokens is None else f" and max_tokens is {max_tokens:,}"
            raise too_long(
                f"this model's context has {context:,} tokens; the messages have {total:,}{wanted}. Shorten the "
                "messages, or ask for fewer tokens",
                param="messages",
            )
        return EncodedPrompt(ids.ids, 0, "", min(room, MAX_CHAT_TOKENS) if max_tokens is None else max_tokens)


class LogprobList:
    """The tokens of a text that grows behind `before`, with their log-probabilities."""

    def __init__(self, job: CompletionJob, before: str = "") -> None:
        self.entries: list[LogprobEntry] = []
        self._job, self._start = job, len(before)
        self._num_scores = self._bytes = self._characters = 0

    def extend(self, scores: Sequence[TokenScore], text: str) -> list[LogprobEntry]:
        """Add the tokens that begin in `text`, and return those that are new.

        `scores` are those of all tokens so far. Tokens of a stop string, and what follows it, begin behind the text.
        """
        first, end = len(self.entries), len(text.encode("utf-8", "surrogatepass"))
        for score in scores[self._num_scores :]:
            if self._bytes >= end:
                break
            self.add(score[0], score)
            self._num_scores += 1
        return self.entries[first:]

    def add(self, token: int, score: TokenScore | None, offset: int | None = None) -> None:
        """Add a token; without an `offset` it begins where the last one ended."""
        spell = self._job.spell
        spelled = spell(token, None if score is None else score[1])
        data = spelled[1]
        top = None if score is None else [spell(other, value) for other, value in score[2]]
        inside = bool(data) and data[0] & 0xC0 == 0x80  # of a character that began before
        place = max(self._characters - inside, 0) if offset is None else offset
        self.entries.append((spelled, top, self._start + place))
        if length := self._job.length(token, data):
            self._bytes += length
            self._characters += sum(byte & 0xC0 != 0x80 for byte in data)


def _score(logits: Tensor, token: int, count: int) -> TokenScore:
    scores = logits.double().log_softmax(-1)
    best = scores.topk(min(count, len(scores)))
    return token, float(scores[token]), list(zip(best.indices.tolist(), best.values.tolist(), strict=True))


class _LogprobRecorder(Trace):
    """Keeps the model's own log-probability of each sampled token, and the `count` likeliest ones."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.rows: dict[int, list[TokenScore]] = {}

    def sample(
        self, row: int, logits: Tensor, stages: Sequence[tuple[str, Tensor]], token: int, *, end: int | None
    ) -> None:
        self.rows.setdefault(row, []).append(_score(logits, token, self.count))
