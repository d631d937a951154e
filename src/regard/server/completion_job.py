"""Text completions of a served model, token by token; several run in turns. Runs in the model's process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from torch import Tensor

from regard.checkpoints.loaded_model import LoadedModel
from regard.inference.generation.sampling import Sampling
from regard.inference.generation.text_generator import (
    EncodedPrompt,
    GeneratedText,
    GenerationStream,
    TextGenerator,
    token_text,
)
from regard.inference.generation.trace import Trace
from regard.server.request_errors import invalid, too_long

# Of one token: its id, its log-probability, and the likeliest tokens with theirs.
TokenScore = tuple[int, float, list[tuple[int, float]]]


class CompletionJob:
    """Arguments: `prompts` (strings, or lists of token ids), `max_tokens`, `temperature`, `top_p`, `n` texts of each,
    `stop`, `seed` and `logprobs` (None, or how many candidates).

    Events are (index of the choice, new text). The reply has the choices, each with `text`, `finish_reason` and
    `logprobs`, and the number of tokens of prompts and completions.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        self.generator = TextGenerator(loaded.model, loaded.tokenizer)

    def __call__(
        self, arguments: Mapping[str, Any], cancelled: threading.Event, emit: Callable[[Any], None]
    ) -> Generator[Any, None, tuple[dict[str, Any], int]]:
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
            if arguments["max_tokens"]:
                for row, piece in stream:
                    yield number * count + row, piece
            for row, text in enumerate(stream.texts):
                completion_tokens += len(text.tokens)
                scores = recorder.rows.get(row, []) if recorder is not None else None
                choices.append(self._choice(text, scores))
        reply = {"choices": choices, "prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
        return reply, prompt_tokens + completion_tokens

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

    def _choice(self, text: GeneratedText, scores: list[TokenScore] | None) -> dict[str, Any]:
        logprobs = None
        if scores is not None:
            listed: list[tuple[str, int, TokenScore]] = []
            offset = 0
            for score in scores:
                if score[0] == self.generator.end or offset >= len(text.text):
                    break  # the end token and what follows a stop string are not part of the text
                word = self._spell(score[0])
                listed.append((word, offset, score))
                offset += len(word)
            logprobs = {
                "tokens": [word for word, _, _ in listed],
                "token_logprobs": [score[1] for _, _, score in listed],
                "top_logprobs": [{self._spell(token): value for token, value in score[2]} for _, _, score in listed],
                "text_offset": [start for _, start, _ in listed],
            }
        reason = "length" if text.reason in ("length", "interrupted") else "stop"
        return {"text": text.text, "finish_reason": reason, "logprobs": logprobs}

    def _spell(self, token: int) -> str:
        return token_text(self.generator.tokenizer, token)


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
