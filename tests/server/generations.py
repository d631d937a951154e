"""Texts that the library generates, formatted as on the page, and a gate that pauses generation."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import regard
from regard.cancellation import Cancelled, check_cancelled
from regard.generation_config import GenerationConfig
from regard.interpret.generation import CandidateRecorder, Generation, generate

__all__ = ["PROMPT", "Gate", "candidate_cells", "generated", "token_texts", "visible"]

PROMPT = "the <b>film</b>"


class Gate:
    """Lets a number of tokens through, then waits until it is opened or the client disconnects."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tokens: int) -> None:
        self.opened, self.left, self.reached = threading.Event(), threading.Event(), threading.Event()
        self.tokens = 0
        sample = CandidateRecorder.sample

        def slow(recorder: CandidateRecorder, *arguments: Any, **named: Any) -> None:
            sample(recorder, *arguments, **named)
            self.tokens += 1
            if self.tokens == tokens + 1:
                self.reached.set()
                self.wait()

        monkeypatch.setattr(CandidateRecorder, "sample", slow)

    def wait(self) -> None:
        while not self.opened.wait(0.02):
            try:
                check_cancelled()
            except Cancelled:
                self.left.set()
                raise


def generated(
    folder: str, prompt: str = PROMPT, *, beam: int = 0, seed: int = 0, tokens: int = 12, **sampling: Any
) -> Generation:
    beams = {"num_beams": beam, "num_return_sequences": beam} if beam else {}
    config = GenerationConfig(seed=seed, max_new_tokens=tokens, **beams, **sampling)
    return generate(*regard.load(folder), prompt, config=config)


def token_texts(generation: Generation) -> list[str]:
    return [token.text or visible(token.name) for token in generation.tokens]


def visible(token: str) -> str:
    """White space as visible characters."""
    return token.translate(str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"}))


def candidate_cells(generation: Generation, at: int) -> list[list[str | None]]:
    return [
        [
            f"{number(bar.scaled_probability)}; the model's own probability: {number(bar.probability)}",
            "" if bar.cumulative_probability is None else number(bar.cumulative_probability),
            *([] if generation.config.num_beams > 1 else [number(bar.sampling_probability)]),
        ]
        for bar in generation.tokens[at].candidates
    ]


def number(value: float) -> str:
    """A number as JavaScript writes it."""
    if value == int(value):
        return str(int(value))
    text = repr(value)
    if "e" in text:
        digits, power = text.split("e")
        if int(power) >= -6:
            return f"{value:.{-int(power) + len(digits.replace('.', '').lstrip('-')) - 1}f}"
        return f"{digits}e{int(power)}"
    return text
