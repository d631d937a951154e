"""`GenerationConfig`: how a text is generated, with the option names of transformers. Does not import torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

SAMPLING = ("repetition_penalty", "temperature", "top_k", "top_p", "min_p")
BEAM_SEARCH = ("length_penalty", "early_stopping")


class GenerationConfig(BaseModel):
    """Sampling, or beam search if `num_beams` is above 1; options of the other method must keep their defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    max_new_tokens: int = Field(
        default=200,
        ge=1,
        description="Maximum number of tokens to generate.",
        json_schema_extra={"cli": {"metavar": "N"}},
    )
    temperature: float = Field(
        default=0.8,
        ge=0,
        description="Below 1 sharpens, above 1 flattens the distribution; 0 always takes the likeliest token.",
        json_schema_extra={"cli": {"flags": ["-t"], "metavar": "T"}},
    )
    top_p: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description="Keep the fewest likeliest tokens whose probabilities sum to P.",
        json_schema_extra={"cli": {"metavar": "P"}},
    )
    top_k: int | None = Field(
        default=None, ge=1, description="Keep the K likeliest tokens.", json_schema_extra={"cli": {"metavar": "K"}}
    )
    min_p: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Keep tokens at least P times as likely as the likeliest.",
        json_schema_extra={"cli": {"metavar": "P"}},
    )
    repetition_penalty: float = Field(
        default=1.0,
        gt=0,
        description="Above 1, tokens that occurred already become less likely.",
        json_schema_extra={"cli": {"metavar": "R"}},
    )
    seed: int = Field(
        default=0,
        ge=0,
        le=2**63 - 1,
        description="The same seed gives the same result.",
        json_schema_extra={"cli": {"metavar": "N"}},
    )
    num_return_sequences: int = Field(
        default=1, ge=1, description="Number of texts.", json_schema_extra={"cli": {"flags": ["-n"], "metavar": "N"}}
    )
    num_beams: int = Field(
        default=1,
        ge=1,
        description="Number of beams; above 1, beam search replaces sampling.",
        json_schema_extra={"cli": {"flags": ["-b"], "metavar": "N"}},
    )
    length_penalty: float = Field(
        default=1.0,
        ge=-10,
        le=10,
        description="For beam search: above 0 favors long texts.",
        json_schema_extra={"cli": {"metavar": "A"}},
    )
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

    @property
    def method(self) -> Literal["beam", "greedy", "sample"]:
        if self.num_beams > 1:
            return "beam"
        return "greedy" if self.temperature == 0 else "sample"
