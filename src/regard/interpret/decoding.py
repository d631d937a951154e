"""A search or a sampled text step by step: the candidates of every step, for translators and language models."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar, Literal

import torch
from pydantic import Field

from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.generation_config import GenerationConfig
from regard.inference.generation.beam_search import Beam
from regard.inference.generation.decoder import as_decoder
from regard.inference.generation.sampling import sample
from regard.inference.generation.trace import Trace, TraceCandidate, TraceDocument
from regard.inference.translation.subwords import Subwords
from regard.inference.translation.translator import Translator, translator_of
from regard.interpret.generation import Generation, sampling_of
from regard.interpret.translation import one_sentence, source_ids
from regard.render.result import Result, Table

NUM_CANDIDATES = 6  # listed for each prefix


class DecodingSteps(Result):
    """The steps of a search or of sampling: `trace` has the candidates of every prefix and what became of them."""

    page_view: ClassVar[str | None] = "decoding"

    model: str
    text: str
    method: Literal["beam", "greedy", "sample"]
    trace: TraceDocument
    notes: list[str] = Field(default_factory=list)

    def to_table(self) -> Table:
        headers = ["row", "step", "node", "token", "log_probability", "total", "sampling_probability", "fate"]
        fields = ("text", "log_probability", "total", "chance", "fate")  # of a candidate
        return headers, [
            [row["row"], step["step"], choice["node"], *(one.get(name) for name in fields)]
            for row in self.trace["rows"]
            for step in row["steps"]
            for choice in step["choices"]
            for one in choice["candidates"]
        ]

    def to_text(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.model}, {self.method}: {self.text}"
        for row in self.trace["rows"]:
            for step in row["steps"]:
                yield f"\nstep {step['step']}"
                for choice in step["choices"]:
                    listed = "  ".join(_candidate_text(one) for one in choice["candidates"][:NUM_CANDIDATES])
                    yield f"  {choice['node']}: {listed}"
            yield ""
            for result in row["results"]:
                total = result["log_probability"]
                yield f"  ln p {'-inf' if total is None else f'{total:.3f}'}  {result['text']}"


def _candidate_text(one: TraceCandidate) -> str:
    probability = 0.0 if one["log_probability"] is None else math.exp(one["log_probability"])
    mark = {"kept": "*", "ended": "!", "cut": "-", "passed": ""}[one["fate"]]
    return f"{mark}{one['text'].strip()} {probability:.1%}"


def decode_in_steps(loaded: LoadedModel, text: str, config: GenerationConfig) -> DecodingSteps:
    """Translate or continue the text by search or by sampling, and record the candidates of every step."""
    if not text.strip():
        raise InputError("the text is empty; expected a text to translate or to continue")
    text, notes = one_sentence(loaded, text)
    if isinstance(loaded.tokenizer, Subwords):
        trace = _translate(translator_of(loaded), text, config)
    else:
        generation = Generation(loaded, text, config, candidates=False, record_trace=True)
        for _ in generation.events():
            pass
        trace = generation.recorded_trace()
    settings = config.model_dump(exclude_defaults=True)
    document = trace.document({"model": loaded.name, "text": text, "settings": settings})
    return DecodingSteps(model=loaded.name, text=text, method=config.method, trace=document, notes=notes)


def _translate(translator: Translator, text: str, config: GenerationConfig) -> Trace:
    subwords, ids = translator.subwords, source_ids(translator, text)
    trace = Trace(
        top=NUM_CANDIDATES,
        token_text=lambda token: subwords.target.decode([token], skip_special_tokens=False),
        decode=subwords.decode,
    )
    if config.method != "sample":
        beam = Beam(config.num_beams, config.length_penalty, config.num_return_sequences, config.early_stopping)
        translator.translate([text], beam=beam, trace=trace)
        return trace
    source = torch.tensor([ids] * config.num_return_sequences, device=translator.device)
    steps = sample(
        as_decoder(translator.model),
        source,
        sampling=sampling_of(config),
        end=subwords.end,
        max_new_tokens=min(config.max_new_tokens, 2 * len(ids) + 10),
        seed=config.seed,
        trace=trace,
    )
    for _ in steps:
        pass
    return trace
