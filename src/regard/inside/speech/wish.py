"""How a text is to be written, and the lines that write it again. Knows settings and how they are typed; no model."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, field

from regard.decode.filters import Sampling
from regard.decode.search import Beam

__all__ = ["TEMPERATURE", "TOP_P", "Wish", "lines"]

TEMPERATURE, TOP_P = 0.8, 0.9  # the lecture's demonstration


@dataclass(frozen=True)
class Wish:
    """By chance as `sampling` says, or by a search where there is a `beam`; then sampling and seed mean nothing."""

    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=TEMPERATURE, top_p=TOP_P))
    beam: Beam | None = None
    seed: int = 0
    max_tokens: int = 60

    @property
    def method(self) -> str:
        if self.beam is not None:
            return "beam"
        return "greedy" if self.sampling.temperature == 0 else "sample"

    def document(self) -> dict[str, object]:
        width = 0 if self.beam is None else self.beam.width
        said = {"method": self.method, "seed": self.seed, "max_tokens": self.max_tokens, "beam": width}
        return {**said, **asdict(self.sampling)}


def lines(model: str, prompt: str, wish: Wish) -> tuple[str, str]:
    """The command line and the Python that write the same."""
    sampling, beam = wish.sampling, wish.beam
    options = ["--model", model, "--max-tokens", str(wish.max_tokens)]
    if beam is not None:
        options += ["--beam", str(beam.width), "--nbest", str(beam.nbest)]
        how = f"Wish(beam=Beam(width={beam.width}, nbest={beam.nbest}), max_tokens={wish.max_tokens})"
    else:
        options += ["--temperature", f"{sampling.temperature!r}", "--top-p", f"{sampling.top_p!r}"]
        options += ["--top-k", str(sampling.top_k)] if sampling.top_k is not None else []
        options += ["--min-p", f"{sampling.min_p!r}"] if sampling.min_p else []
        options += ["--repetition", f"{sampling.repetition!r}"] if sampling.repetition != 1 else []
        options += ["--seed", str(wish.seed)]
        given = {name: value for name, value in asdict(sampling).items() if value != asdict(Sampling())[name]}
        said = ", ".join(f"{name}={value!r}" for name, value in given.items())
        how = f"Wish(Sampling({said}), seed={wish.seed}, max_tokens={wish.max_tokens})"
    dashed = prompt.startswith("-")  # it would be read as an option, or as standard input
    command = ["regard", "generate", *([*options, "--", prompt] if dashed else [prompt, *options])]
    python = [
        f"from regard.decode import {'Sampling' if beam is None else 'Beam'}",
        "from regard.inside.speech.speaking import speak",
        "from regard.inside.speech.wish import Wish",
        "from regard.loading import load",
        "",
        f"said = speak(*load({model!r}), {prompt!r}, wish={how})",
        "print(said.text)",
        "print(said.tokens[0].bars)",
    ]
    return " ".join(map(_quoted, command)), "\n".join(python)


def _quoted(text: str) -> str:
    """For a shell; what no text can hold is shown as it would be escaped."""
    return shlex.quote(text.encode("utf-8", "backslashreplace").decode())
