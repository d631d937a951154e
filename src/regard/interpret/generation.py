"""Generates texts after a prompt, and records the candidates at every token if requested."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import BaseModel, Field, PrivateAttr
from torch import Tensor, nn

from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.events import Event, Progress, TextPiece, drain, map_events
from regard.files.output_file import GENERATOR
from regard.generation_config import SAMPLING, GenerationConfig
from regard.inference.generation.assisted import check_assistant
from regard.inference.generation.beam_search import Beam
from regard.inference.generation.prompt_cache import PromptCache
from regard.inference.generation.sampling import Sampling
from regard.inference.generation.text_generator import (
    FinishReason,
    GeneratedText,
    GenerationStream,
    TextGenerator,
    TextStream,
    token_text,
)
from regard.inference.generation.trace import Trace, TraceDocument
from regard.models.family import family_name
from regard.nn.training import evaluation_mode
from regard.render.result import Result, Table
from regard.text import Tokenizer
from regard.text.chat_template import read_messages

TOP = 15  # candidates at a position
TAIL_BIN = 0.25  # nats: tokens beyond those are binned by their log-probability
TAIL_BINS = 100
RESCALING = ("repetition", "temperature")  # filters that move probability and, above temperature 0, remove none
Stages = Sequence[tuple[str, Tensor]]


@dataclass(frozen=True)
class CandidateToken:
    """One candidate for the next token.

    `probability` is the model's own, `scaled_probability` that after repetition penalty and temperature,
    `sampling_probability` that after all filters: 0 if one of them, `removed_by`, removed the token.
    `cumulative_probability` sums this token and the likelier ones among those that top-p chooses from; None if another
    filter had removed the token before.
    """

    token: int
    text: str
    probability: float
    scaled_probability: float
    cumulative_probability: float | None
    sampling_probability: float
    removed_by: str | None


@dataclass(frozen=True)
class CandidateTokens:
    """The likeliest tokens at one position, likeliest first, then the chosen one if it is not among them.

    `nucleus_size` tokens of the vocabulary pass the filters; `nucleus_probability` is the sum of their scaled
    probabilities. `tail` bins all other tokens by the model's own probability, the likeliest first: how many tokens,
    and the logarithm of their mean probability. It makes other temperatures and top-p computable.
    """

    candidates: list[CandidateToken]
    nucleus_size: int
    nucleus_probability: float
    vocab_size: int
    tail: list[tuple[int, float]]


@dataclass(frozen=True)
class GeneratedToken(CandidateTokens):
    """One generated token: `text` is what it adds to the text, `name` the token by itself."""

    id: int
    text: str
    name: str


class ChatMessage(BaseModel):
    """One message of a chat: `role` is "system", "user" or "assistant"."""

    role: str
    content: str


class GenerationRun(BaseModel):
    """One text of the page, or of a stream before it starts, with its tokens so far.

    `trace` has the steps of a beam search; the other fields are those of `GenerateResult`.
    """

    model: str
    family: str
    method: Literal["beam", "greedy", "sample"]
    settings: GenerationConfig
    prompt: str
    messages: list[ChatMessage] | None
    continues: bool
    truncated: int
    truncated_text: str
    max_new_tokens: int
    tokens: list[GeneratedToken]
    reason: FinishReason
    trace: TraceDocument | None


class GenerationView(BaseModel):
    """The page shows one text, or two side by side."""

    runs: list[GenerationRun]


class GenerationStarted(Event):
    """The text to generate, still empty."""

    type: Literal["started"] = "started"
    run: GenerationRun


class GeneratedTokens(TextPiece):
    """The tokens of a piece of text, with their candidates."""

    tokens: list[GeneratedToken]


def candidate_tokens(
    logits: Tensor, stages: Stages, *, spell: Callable[[int], str], chosen: int | None = None, top: int = TOP
) -> CandidateTokens:
    """The candidates for logits (V,), given the logits after each filter (`Sampling.stages`)."""
    logits = logits.double()
    after = {"": logits, **dict(stages)}
    penalized = after.get("repetition", logits)
    scaled = _last(after, RESCALING).softmax(-1)
    # Temperature keeps the order, and at 0 leaves nothing to order by.
    order = penalized.sort(descending=True, stable=True).indices
    nucleus_input = _last(after, (*RESCALING, "top_k"))
    cumulative = nucleus_input[order].softmax(-1).cumsum(-1)
    filtered = stages[-1][1] if stages else logits
    probabilities, filtered_probabilities, nucleus = logits.softmax(-1), filtered.softmax(-1), filtered > -math.inf
    listed = list(enumerate(order[:top].tolist()))
    if chosen is not None and chosen not in (token for _, token in listed):
        listed.append((int((order == chosen).nonzero()), chosen))
    candidates = [
        CandidateToken(
            token=token,
            text=spell(token),
            probability=float(probabilities[token]),
            scaled_probability=float(scaled[token]),
            cumulative_probability=float(cumulative[rank]) if float(nucleus_input[token]) > -math.inf else None,
            sampling_probability=float(filtered_probabilities[token]),
            removed_by=next((name for name, one in stages if float(one[token]) == -math.inf), None),
        )
        for rank, token in listed
    ]
    tail = _tail(logits.log_softmax(-1), [token for _, token in listed])
    return CandidateTokens(candidates, int(nucleus.sum()), float(scaled[nucleus].sum()), len(logits), tail)


def _tail(log_probabilities: Tensor, listed: Sequence[int]) -> list[tuple[int, float]]:
    """The tokens that are not listed, in bins of TAIL_BIN nats: their number and the log of their mean probability."""
    rest = torch.ones_like(log_probabilities, dtype=torch.bool)
    rest[list(listed)] = False
    values = log_probabilities[rest]
    if not len(values):
        return []
    bins = ((values.max() - values) / TAIL_BIN).clamp(max=TAIL_BINS - 1).long()
    counts = torch.bincount(bins)
    sums = torch.bincount(bins, weights=values.exp())
    return [
        (count, round(math.log(total / count), 4))
        for count, total in zip(counts.tolist(), sums.tolist(), strict=True)
        if total > 0
    ]


def _last(after: dict[str, Tensor], names: Sequence[str]) -> Tensor:
    return next((after[name] for name in reversed(names) if name in after), after[""])


class CandidateRecorder(Trace):
    """Records the candidates of every sampled token, until the text of the tokens is known."""

    def __init__(self, spell: Callable[[int], str]) -> None:
        super().__init__(token_text=spell)
        self.spell = spell
        self.pending: list[tuple[int, CandidateTokens]] = []

    def sample(
        self, row: int, logits: Tensor, stages: Sequence[tuple[str, Tensor]], token: int, *, end: int | None
    ) -> None:
        self.pending.append((token, candidate_tokens(logits, stages, spell=self.spell, chosen=token)))

    def take(self, piece: str) -> list[GeneratedToken]:
        """The tokens since the last piece of text; the piece belongs to the last of them."""
        last = len(self.pending) - 1
        tokens = [
            _generated_token(candidates, token, piece if number == last else "", self.spell)
            for number, (token, candidates) in enumerate(self.pending)
        ]
        self.pending = []
        return tokens


def _generated_token(found: CandidateTokens, token: int, text: str, spell: Callable[[int], str]) -> GeneratedToken:
    return GeneratedToken(**vars(found), id=token, text=text, name=spell(token))


class GenerateResult(Result):
    """Generated texts, without the prompt; of a beam search the best first.

    `truncated` tokens of the beginning of the prompt, `truncated_text`, did not fit into the context of the model,
    which has room for `max_new_tokens`. The prompt of a chat is what the model's template makes of the `messages`.
    `continues`: the model continues the prompt; a T5 answers it. `tokens` are the tokens of the first text with their
    candidates, if these were recorded.

    With several prompts `results` has one result for each, and `texts` holds the texts of all, in that order; the
    fields about a prompt are those of the first.
    """

    page_view: ClassVar[str | None] = "generation"
    view_type: ClassVar[str | None] = "regard.interpret.generation:GenerationView"

    model: str
    family: str
    prompt: str
    messages: list[ChatMessage] | None = None
    truncated: int
    truncated_text: str
    max_new_tokens: int
    continues: bool
    method: Literal["beam", "greedy", "sample"]
    settings: GenerationConfig
    texts: list[GeneratedText]
    tokens: list[GeneratedToken] | None
    trace: TraceDocument | None = Field(default=None, exclude=True)  # of a beam search with candidates

    _results: list[GenerateResult] = PrivateAttr(default_factory=list)  # of several prompts

    @classmethod
    def joined(cls, results: Sequence[GenerateResult]) -> GenerateResult:
        """The results of several prompts as one."""
        if len(results) == 1:
            return results[0]
        found = results[0].model_copy(update={"texts": [text for one in results for text in one.texts]})
        found._results = list(results)
        return found

    @property
    def results(self) -> list[GenerateResult]:
        """The result of each prompt."""
        return self._results or [self]

    def to_dict(self) -> dict[str, Any]:
        each = {"results": [one.to_dict() for one in self._results]} if self._results else {}
        return {**super().to_dict(), **each}

    def to_text(self) -> str:
        if self._results:
            results = enumerate(self._results)
            return "\n".join(f"{prompt_heading(number, one.prompt)}\n{one.to_text()}" for number, one in results)
        return "\n".join(text for text in _displayed(self.texts, self.method == "beam"))

    def to_table(self) -> Table:
        rows = [[one.prompt, text.text, text.reason] for one in self.results for text in one.texts]
        return ["prompt", "text", "reason"], rows

    @property
    def reason(self) -> FinishReason:
        return self.texts[0].reason if self.texts else "interrupted"

    def run(self) -> GenerationRun:
        """The first text for the page."""
        return GenerationRun.model_validate(self, from_attributes=True)

    def view_data(self) -> dict[str, object]:
        if self.tokens is None:
            raise InputError("the page shows the candidates at every token; generate with --candidates")
        return GenerationView(runs=[self.run()]).model_dump(mode="json")


class Generation:
    """Texts being generated after a prompt. `events` runs it to the end; `result` is what there is so far."""

    def __init__(
        self,
        loaded: LoadedModel,
        prompt: str,
        config: GenerationConfig,
        *,
        candidates: bool = True,
        record_trace: bool = False,
        chat: bool = False,
        system: str | None = None,
        assistant: LoadedModel | None = None,
    ) -> None:
        """With `chat`, a text that continues the last chat of a model kept by a server reuses its keys and values."""
        self.assistant = None if assistant is None else check_assistant(*loaded, *assistant)
        if assistant is not None and config.num_beams > 1:
            raise InputError("an assistant model drafts for greedy search and sampling; leave out num_beams")
        if candidates and config.num_beams == 1 and config.num_return_sequences > 1:
            raise InputError("candidates are recorded for one sampled text; leave out num_return_sequences")
        self.generator = TextGenerator(loaded.model, loaded.tokenizer)
        self.prompt_cache = loaded.cached("prompt cache", PromptCache) if chat else None
        self.messages = read_messages(prompt, system=system) if chat else None
        if self.messages is not None:
            prompt = self.generator.tokenizer.apply_chat_template(self.messages)
        self.name, self.prompt_text, self.config = loaded.name, prompt, config
        self.prompt = self.generator.encode_prompt(
            prompt, max_new_tokens=config.max_new_tokens, add_special_tokens=not chat
        )
        self.texts: list[GeneratedText] = []
        self.tokens: list[GeneratedToken] | None = [] if candidates else None
        self.trace: TraceDocument | None = None
        self._recorder = self.generator.trace() if record_trace else None

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens or ())

    @property
    def reason(self) -> FinishReason:
        return self.result().reason

    def events(self) -> Iterator[Event]:
        """Run to the end: the text as it is displayed, with a heading for each of several texts.

        If candidates are recorded, a `GenerationStarted` comes first, and each text has its tokens.
        """
        if self.tokens is not None:
            yield GenerationStarted(run=self.result().run())
        if self.config.num_beams > 1:
            yield from self._searched()
        elif self.tokens is not None:
            yield from self._sampled()
            yield TextPiece(text="\n")
        else:
            for piece in self._stream():
                yield TextPiece(text=piece)

    def _sample(self, trace: Trace | None, count: int) -> GenerationStream:
        """Start to sample `count` texts."""
        config = self.config
        stream = GenerationStream(
            self.generator,
            self.prompt,
            sampling=sampling_of(config),
            num_return_sequences=count,
            seed=config.seed,
            stop_strings=config.stop,
            trace=trace,
            assistant=self.assistant,
            prompt_cache=self.prompt_cache,
        )
        self.texts = stream.texts
        return stream

    def _stream(self) -> Iterator[str]:
        """Several texts are generated at once and displayed one after the other."""
        stream = self._sample(self._recorder, self.config.num_return_sequences)
        count, current, pending = len(stream.texts), 0, [""] * len(stream.texts)
        if count > 1:
            yield "=== 1\n"
        for number, piece in _with_end(stream):
            pending[number] += piece
            while current < count:
                yield pending[current]
                pending[current] = ""
                if stream.texts[current].reason == "interrupted":
                    break
                current += 1
                yield "\n" if current == count else f"\n=== {current + 1}\n"

    def _sampled(self) -> Iterator[GeneratedTokens]:
        assert self.tokens is not None
        recorder = CandidateRecorder(self._spell)
        for _, piece in self._sample(recorder, 1):
            self.tokens += (tokens := recorder.take(piece))
            yield GeneratedTokens(text=piece, tokens=tokens)
        if recorder.pending:  # an end token, which adds no text
            self.tokens += (tokens := recorder.take(""))
            yield GeneratedTokens(text="", tokens=tokens)

    def _searched(self) -> Iterator[Progress | TextPiece]:
        config, total = self.config, self.prompt.max_new_tokens
        beam = Beam(config.num_beams, config.length_penalty, config.num_return_sequences, config.early_stopping)
        trace = self.generator.trace() if self.tokens is not None else self._recorder
        search = self.generator.search_steps(self.prompt, beam=beam, stop_strings=config.stop, trace=trace)
        if self.tokens is not None:
            self.texts += yield from map_events(
                search, lambda step: Progress(stage="searching", done=step, total=total, unit="steps")
            )
        else:
            self.texts += drain(search)
        displayed = "".join(f"{text}\n" for text in _displayed(self.texts, beam=True))
        if self.tokens is None or trace is None or not self.texts:
            yield TextPiece(text=displayed)
            return
        self.trace = trace.document()
        pieces = self._pieces(self.texts[0])
        tokens = self.texts[0].tokens[: len(pieces)]
        candidates = _candidates_along(self.generator, self.prompt.ids, tokens)
        self.tokens += [
            _generated_token(one, token, piece, self._spell)
            for token, piece, one in zip(tokens, pieces, candidates, strict=True)
        ]
        yield GeneratedTokens(text=displayed, tokens=self.tokens)

    def _pieces(self, best: GeneratedText) -> list[str]:
        """What each token adds to the text, up to a stop string."""
        ids = self.prompt.ids if self.generator.continues else []
        stream = TextStream(self.generator.tokenizer, prompt_ids=ids, stop_strings=self.config.stop)
        pieces: list[str] = []
        for token in best.tokens:
            pieces.append(stream.push(token))
            if stream.stopped:
                return pieces
        if pieces:
            pieces[-1] += stream.end()
        return pieces

    def _spell(self, token: int) -> str:
        return token_text(self.generator.tokenizer, token)

    def recorded_trace(self) -> Trace:
        """The steps so far, if they were recorded."""
        if self._recorder is None:
            raise ValueError("no trace was recorded; pass record_trace=True")
        return self._recorder

    def write_trace(self, path: Path, *, cli: str, python: str) -> None:
        """Write the recorded steps as JSON or, by the extension, as a page with the lines that reproduce it."""
        assert self._recorder is not None
        result = self.result().to_dict()
        about = {
            name: result[name] for name in ("model", "prompt", "truncated", "method", "settings", "max_new_tokens")
        }
        document = self._recorder.document(about)
        if path.suffix.lower() == ".html":
            from regard.inference.generation.trace import search_page

            path.write_text(search_page(document, cli=cli, python=python), encoding="utf-8")
        else:
            path.write_text(
                json.dumps({"generator": GENERATOR, **document}, allow_nan=False, indent=1) + "\n", encoding="utf-8"
            )

    def result(self) -> GenerateResult:
        return GenerateResult(
            model=self.name,
            family=family_name(self.generator.model),
            prompt=self.prompt_text,
            messages=None if self.messages is None else [ChatMessage(**message) for message in self.messages],
            truncated=self.prompt.truncated,
            truncated_text=self.prompt.truncated_text,
            max_new_tokens=self.prompt.max_new_tokens,
            continues=self.generator.continues,
            method=self.config.method,
            settings=self.config,
            texts=self.texts,
            tokens=self.tokens,
            trace=self.trace,
        )


def sampling_of(config: GenerationConfig) -> Sampling:
    return Sampling(**{name: getattr(config, name) for name in SAMPLING})


def prompt_heading(number: int, prompt: str) -> str:
    """The line above the texts of one of several prompts."""
    return f"=== prompt {number + 1}: {prompt}"


def _with_end(stream: Any) -> Iterator[tuple[int, str]]:
    """The pieces of a stream and an empty one: the end of a text may come without a piece."""
    yield from stream
    yield 0, ""


def _displayed(texts: Sequence[GeneratedText], beam: bool) -> list[str]:
    """The texts, with a heading for each of several."""
    if len(texts) == 1:
        return [texts[0].text]
    scores = [f"  score {one.score:.4f}" if beam else "" for one in texts]
    return [f"=== {n}{score}\n{one.text}" for n, (one, score) in enumerate(zip(texts, scores, strict=True), 1)]


def generate(
    model: nn.Module, tokenizer: Tokenizer | None, prompt: str, *, config: GenerationConfig | None = None
) -> Generation:
    """Generate to the end: the text, its tokens with their candidates, and the trace of a beam search."""
    generation = Generation(LoadedModel("", model, tokenizer), prompt, config or GenerationConfig())
    for _ in generation.events():
        pass
    return generation


def next_tokens(
    model: nn.Module, tokenizer: Tokenizer | None, text: str, *, sampling: Sampling | None = None, top: int = TOP
) -> CandidateTokens:
    """The candidates after a text; without `sampling`, with the model's own probabilities."""
    generator = TextGenerator(model, tokenizer)
    sampling, ids = sampling or Sampling(), generator.encode_prompt(text, max_new_tokens=1).ids
    with evaluation_mode(generator.decoder):
        logits, _ = generator.decoder.start(torch.tensor([ids], device=generator.device))
        occurred = torch.zeros_like(logits, dtype=torch.bool)
        occurred[:, ids] = generator.continues
        stages = [(name, values[0]) for name, values in sampling.stages(logits, occurred)]
        return candidate_tokens(logits[0], stages, spell=lambda token: token_text(generator.tokenizer, token), top=top)


def _candidates_along(generator: TextGenerator, prompt: Sequence[int], tokens: Sequence[int]) -> list[CandidateTokens]:
    """The candidates before each of the given tokens, without filters."""
    candidates = []
    with evaluation_mode(generator.decoder):
        logits, state = generator.decoder.start(torch.tensor([list(prompt)], device=generator.device))
        for number, token in enumerate(tokens):
            spell = lambda one: token_text(generator.tokenizer, one)  # noqa: E731
            candidates.append(candidate_tokens(logits[0], [], spell=spell, chosen=token))
            if number + 1 < len(tokens):
                logits, state = generator.decoder.step(torch.tensor([token], device=generator.device), state)
    return candidates
