"""`GenerationConfig`: how a text is generated, with the option names of transformers. Does not import torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

SAMPLING = ("repetition_penalty", "temperature", "top_k", "top_p", "min_p")
BEAM_SEARCH = ("length_penalty", "early_stopping")


def _option(default: Any, metavar: str, description: str, *, flags: Sequence[str] = (), **limits: Any) -> Any:
    cli: Any = {"metavar": metavar, "flags": [*flags]}
    return Field(default, description=description, json_schema_extra={"cli": cli}, **limits)


class GenerationConfig(BaseModel):
    """Sampling, or beam search if `num_beams` is above 1; options of the other method must keep their defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    max_new_tokens: int = _option(200, "N", "Maximum number of tokens to generate.", ge=1)
    temperature: float = _option(
        0.8,
        "T",
        "Below 1 sharpens, above 1 flattens the distribution; 0 always takes the likeliest token.",
        flags=["-t"],
        ge=0,
    )
    top_p: float = _option(0.9, "P", "Keep the fewest likeliest tokens whose probabilities sum to P.", gt=0, le=1)
    top_k: int | None = _option(None, "K", "Keep the K likeliest tokens.", ge=1)
    min_p: float = _option(0.0, "P", "Keep tokens at least P times as likely as the likeliest.", ge=0, le=1)
    repetition_penalty: float = _option(1.0, "R", "Above 1, tokens that occurred already become less likely.", gt=0)
    seed: int = _option(0, "N", "The same seed gives the same result.", ge=0, le=2**63 - 1)
    num_return_sequences: int = _option(1, "N", "Number of texts.", flags=["-n"], ge=1)
    num_beams: int = _option(1, "N", "Number of beams; above 1, beam search replaces sampling.", flags=["-b"], ge=1)
    length_penalty: float = _option(1.0, "A", "For beam search: above 0 favors long texts.", ge=-10, le=10)
    early_stopping: bool = Field(default=False, description="For beam search: stop as soon as enough texts are found.")
    stop: list[str] = Field(
        default=[],
        description="Stop before this text; can be given several times.",
        json_schema_extra={"cli": {"metavar": "TEXT", "repeat": True}},
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if "" in self.stop:
            raise ValueError("a stop string is empty, and would end every text before it begins")
        names: tuple[str, ...] = SAMPLING
        hint = "is for sampling, not for beam search (num_beams above 1)"
        if self.num_beams == 1:
            names, hint = BEAM_SEARCH, "is for beam search; set num_beams above 1"
        for name in names:
            if getattr(self, name) != GenerationConfig.model_fields[name].default:
                raise ValueError(f"{name} {hint}")
        if 1 < self.num_beams < self.num_return_sequences:
            raise ValueError(
                f"num_return_sequences is {self.num_return_sequences} with {self.num_beams} beams; use more beams or "
                "request fewer sequences"
            )
        return self

    def config(self) -> GenerationConfig:
        """The settings without the fields of a subclass."""
        return GenerationConfig(**{name: getattr(self, name) for name in GenerationConfig.model_fields})

    @property
    def method(self) -> Literal["beam", "greedy", "sample"]:
        if self.num_beams > 1:
            return "beam"
        return "greedy" if self.temperature == 0 else "sample"
