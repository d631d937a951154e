"""A text as it is written, token by token, with what else might have been said at each place; one, or several at once.

Knows writers, what a sampler and a beam search report of their steps, and the page's document. Knows nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from regard.inference.generation.decoder import inference_mode
from regard.inference.generation.logits_filters import Sampling
from regard.inference.generation.text_generator import FinishReason, GeneratedText, TextGenerator
from regard.inference.generation.text_stream import TextStream, token_text
from regard.inference.generation.trace import TraceDocument
from regard.interpret.generation.candidates import CandidateTokens, candidate_tokens
from regard.interpret.generation.config import GenerationConfig, reproduce_lines
from regard.interpret.generation.prompts import CAVEAT
from regard.interpret.generation.recorders import BeamSearchProgress, CandidateRecorder, GeneratedToken, OnEvent
from regard.models.family import family_name
from regard.text import Tokenizer

__all__ = ["Generation", "generate", "generate_side_by_side", "generation_payload", "next_tokens"]


@dataclass
class Generation:
    """One text behind a prompt: as far as it has come, and how it goes on. `name` is the model's.

    `texts` is what the writer has made of it, of a search with several texts all of them, best first.
    """

    writer: TextGenerator
    prompt_text: str
    config: GenerationConfig
    name: str = ""
    tokens: list[GeneratedToken] = field(default_factory=list)
    reason: FinishReason = "interrupted"
    trace: TraceDocument | None = None
    texts: list[GeneratedText] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.prompt = self.writer.encode_prompt(self.prompt_text, max_new_tokens=self.config.max_tokens)

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)

    def steps(self, tell: OnEvent = lambda news: None) -> Iterator[list[GeneratedToken]]:
        """Go on to the end: the tokens as they come. A search has none until its end, and tells how far it is."""
        found = self._sampled() if self.config.beam is None else self._searched(tell)
        for tokens in found:
            self.tokens += tokens
            yield tokens

    def document(self, *, page: str = "page.html") -> dict[str, object]:
        """For JSON; `page` is the file that its command line writes."""
        cli, python = reproduce_lines(self.name, self.prompt_text, self.config, page=page)
        return {
            "model": {"name": self.name, "family": family_name(self.writer.model)},
            "settings": self.config.document(),
            "continues": self.writer.continues,
            "cut": self.prompt.truncated,
            "lost": self.prompt.truncated_text,
            "max_tokens": self.prompt.max_new_tokens,
            "tokens": [token.document() for token in self.tokens],
            "reason": self.reason,
            "trace": self.trace,
            "cli": cli,
            "python": python,
        }

    def _sampled(self) -> Iterator[list[GeneratedToken]]:
        heard = CandidateRecorder(self._spell)
        wish = self.config
        writing = self.writer.stream(
            self.prompt, sampling=wish.sampling, seed=wish.seed, stop_strings=wish.stops, trace=heard
        )
        self.texts += writing.texts
        for _, piece in writing:
            yield heard.taken(piece)
        self.reason = writing.texts[0].reason
        if heard.waiting:  # an end token, which adds no text
            yield heard.taken("")

    def _searched(self, tell: OnEvent) -> Iterator[list[GeneratedToken]]:
        assert self.config.beam is not None
        watched = BeamSearchProgress(self.writer.tokenizer, of=self.prompt.max_new_tokens, tell=tell)
        self.texts += self.writer.beam_search(
            self.prompt, beam=self.config.beam, stop_strings=self.config.stops, trace=watched
        )
        self.trace = watched.document()
        if not self.texts:
            return
        best = self.texts[0]
        self.reason = best.reason
        pieces = self._pieces(best)
        tokens = best.tokens[: len(pieces)]
        found = _along(self.writer, self.prompt.ids, tokens, Sampling())
        yield [
            GeneratedToken(token, piece, self._spell(token), bars)
            for token, piece, bars in zip(tokens, pieces, found, strict=True)
        ]

    def _pieces(self, best: GeneratedText) -> list[str]:
        """What each token adds to the text, as far as a stop string."""
        said = TextStream(
            self.writer.tokenizer,
            prompt_ids=self.prompt.ids if self.writer.continues else [],
            stop_strings=self.config.stops,
        )
        pieces: list[str] = []
        for token in best.tokens:
            pieces.append(said.push(token))
            if said.stopped:
                return pieces
        if pieces:
            pieces[-1] += said.end()
        return pieces

    def _spell(self, token: int) -> str:
        return token_text(self.writer.tokenizer, token)


def generate(
    model: nn.Module, tokenizer: Tokenizer | None, prompt: str, *, config: GenerationConfig | None = None
) -> Generation:
    """Write to the end: the text, its tokens with their bars, and the trace of a search."""
    speech = Generation(TextGenerator(model, tokenizer), prompt, config or GenerationConfig())
    for _ in speech.steps():
        pass
    return speech


def generate_side_by_side(speeches: Sequence[Generation], tell: OnEvent) -> None:
    """Write them all to the end, those by chance side by side, then the searches.

    `tell` gets {"tokens": {number of the speech: tokens}} for each round, of a search {"searched": {number: how far it
    is}}, and {"over": {number: how it ended}}. Where it raises, everything stops.
    """
    chance = [number for number, speech in enumerate(speeches) if speech.config.beam is None]
    searches = [number for number in range(len(speeches)) if number not in chance]
    for group in (chance, *([number] for number in searches)):
        going = {number: speeches[number].steps(_numbered(tell, number)) for number in group}
        while going:
            news: dict[str, object] = {}
            for number, steps in list(going.items()):
                found = next(steps, None)
                if found is None:
                    del going[number]
                    speech = speeches[number]
                    tell({"over": {str(number): {"reason": speech.reason, "trace": speech.trace}}})
                else:
                    news[str(number)] = [token.document() for token in found]
            if news:
                tell({"tokens": news})


def next_tokens(
    model: nn.Module, tokenizer: Tokenizer | None, text: str, *, sampling: Sampling | None = None, top: int = 15
) -> CandidateTokens:
    """What may come behind a text; without `sampling` as the model has it."""
    writer = TextGenerator(model, tokenizer)
    sampling, ids = sampling or Sampling(), writer.encode_prompt(text, max_new_tokens=1).ids
    with inference_mode(writer.decoder):
        logits, _ = writer.decoder.start(torch.tensor([ids], device=writer.device))
        said = _heard(logits, ids) if writer.continues else None
        stages = [(name, numbers[0]) for name, numbers in sampling.stages(logits, said)]
        return candidate_tokens(logits[0], stages, spell=lambda token: token_text(writer.tokenizer, token), top=top)


def generation_payload(prompt: str, speeches: Sequence[Generation]) -> dict[str, object]:
    """The document of the view "generation"."""
    pages = ["page.html", *(f"page-{number}.html" for number in range(2, len(speeches) + 1))]
    runs = [speech.document(page=page) for speech, page in zip(speeches, pages, strict=True)]
    return {
        "view": "generation",
        "prompt": prompt,
        "caveat": CAVEAT,
        "runs": runs,
        "cli": "\n".join(str(run["cli"]) for run in runs),
        "python": "\n\n".join(str(run["python"]) for run in runs),
    }


def _along(
    writer: TextGenerator, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling
) -> list[CandidateTokens]:
    """The bars before each of the tokens, which are said whatever the model thinks of them."""
    found = []
    with inference_mode(writer.decoder):
        logits, state = writer.decoder.start(torch.tensor([list(prompt)], device=writer.device))
        for number, token in enumerate(tokens):
            stages = [(name, numbers[0]) for name, numbers in sampling.stages(logits)]
            spell = lambda one: token_text(writer.tokenizer, one)  # noqa: E731
            found.append(candidate_tokens(logits[0], stages, spell=spell, chosen=token))
            if number + 1 < len(tokens):
                logits, state = writer.decoder.step(torch.tensor([token], device=writer.device), state)
    return found


def _heard(logits: Tensor, ids: Sequence[int]) -> Tensor:
    said = torch.zeros_like(logits, dtype=torch.bool)
    said[:, list(ids)] = True
    return said


def _numbered(tell: OnEvent, number: int) -> OnEvent:
    return lambda news: tell({"searched": {str(number): news}})
