"""How a text is to be written, and the lines that write it again. Knows settings and how they are typed; no model."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, field

from regard.data.files import STANDARD_INPUT
from regard.inference.generation.beam_search import Beam
from regard.inference.generation.logits_filters import Sampling

__all__ = ["TEMPERATURE", "TOP_P", "GenerationConfig", "reproduce_lines"]

TEMPERATURE, TOP_P = 0.8, 0.9  # the lecture's demonstration


@dataclass(frozen=True)
class GenerationConfig:
    """By chance as `sampling` says, or by a search where there is a `beam`; then sampling and seed mean nothing.

    The text ends before the first of `stops`.
    """

    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=TEMPERATURE, top_p=TOP_P))
    beam: Beam | None = None
    seed: int = 0
    max_tokens: int = 60
    stops: tuple[str, ...] = ()

    @property
    def method(self) -> str:
        if self.beam is not None:
            return "beam"
        return "greedy" if self.sampling.temperature == 0 else "sample"

    def document(self) -> dict[str, object]:
        beam = self.beam
        searched = {
            "beam": 0 if beam is None else beam.num_beams,
            "length_penalty": 1.0 if beam is None else beam.length_penalty,
            "early": beam is not None and beam.early_stopping,
        }
        said = {"method": self.method, "seed": self.seed, "max_tokens": self.max_tokens, "stops": list(self.stops)}
        return {**said, **searched, **asdict(self.sampling)}


def reproduce_lines(model: str, prompt: str, wish: GenerationConfig, *, page: str = "page.html") -> tuple[str, str]:
    """The command line, which also writes the `page`, and the Python that write the same."""
    options = ["--model", model, "--max-tokens", str(wish.max_tokens), *_options(wish), "--page", page]
    python = [
        f"from regard.inference.generation import {'Sampling' if wish.beam is None else 'Beam'}",
        "from regard.interpret.generation.generation import generate",
        "from regard.interpret.generation.config import GenerationConfig",
        "from regard.checkpoints.loading import load",
        "",
        f"result = generate(*load({model!r}), {prompt!r}, config={_written(wish)})",
        "print(result.text)",
        "print(result.tokens[0].candidates)",
    ]
    return _command(prompt, options), "\n".join(python)


def _command(prompt: str, options: list[str]) -> str:
    if prompt == STANDARD_INPUT:  # which no "--" before it makes a text
        return f"printf '%s\\n' {prompt} | {_joined(['regard', 'generate', prompt, *options])}"
    if prompt.startswith("-"):  # it would be read as an option
        return _joined(["regard", "generate", *options, "--", prompt])
    return _joined(["regard", "generate", prompt, *options])


def _options(wish: GenerationConfig) -> list[str]:
    sampling, beam = wish.sampling, wish.beam
    stops = [f"--stop={stop}" for stop in wish.stops]  # one may begin with a dash
    if beam is not None:
        found = ["--beam", str(beam.num_beams), "--nbest", str(beam.num_return_sequences)]
        found += ["--length-penalty", f"{beam.length_penalty!r}"] if beam.length_penalty != 1 else []
        return [*found, *(["--early"] if beam.early_stopping else []), *stops]
    found = ["--temperature", f"{sampling.temperature!r}", "--top-p", f"{sampling.top_p!r}"]
    found += ["--top-k", str(sampling.top_k)] if sampling.top_k is not None else []
    found += ["--min-p", f"{sampling.min_p!r}"] if sampling.min_p else []
    found += ["--repetition", f"{sampling.repetition_penalty!r}"] if sampling.repetition_penalty != 1 else []
    return [*found, "--seed", str(wish.seed), *stops]


def _written(wish: GenerationConfig) -> str:
    beam = wish.beam
    how = f"Sampling({_given(wish.sampling, Sampling())})" if beam is None else f"beam=Beam({_given(beam, None)})"
    seed = f", seed={wish.seed}" if beam is None else ""
    stops = f", stops={wish.stops!r}" if wish.stops else ""
    return f"GenerationConfig({how}{seed}, max_tokens={wish.max_tokens}{stops})"


def _given(one: Sampling | Beam, usual: Sampling | None) -> str:
    """What differs from the usual; of a beam its width and how many texts are always told."""
    before = asdict(usual or Beam()) | ({} if usual else {"num_beams": None, "num_return_sequences": None})
    return ", ".join(f"{name}={value!r}" for name, value in asdict(one).items() if value != before[name])


def _joined(command: list[str]) -> str:
    """For a shell; what no text can hold is shown as it would be escaped."""
    return shlex.join(part.encode("utf-8", "backslashreplace").decode() for part in command)
