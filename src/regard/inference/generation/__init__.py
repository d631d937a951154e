"""Text generation: one greedy search, one beam search and one sampler for every family with a decoder.

Reading order: decoder, beam_search, sampling, trace, text_generator.
"""

from __future__ import annotations

from regard.inference.generation.beam_search import Beam, Hypothesis, beam_search, greedy_search
from regard.inference.generation.decoder import Decoder, as_decoder
from regard.inference.generation.sampling import Sampling, sample
from regard.inference.generation.text_generator import (
    EncodedPrompt,
    GeneratedText,
    GenerationStream,
    TextGenerator,
    TextStream,
)
from regard.inference.generation.trace import Trace

__all__ = [
    "Beam",
    "Decoder",
    "EncodedPrompt",
    "GeneratedText",
    "GenerationStream",
    "Hypothesis",
    "Sampling",
    "TextGenerator",
    "TextStream",
    "Trace",
    "as_decoder",
    "beam_search",
    "greedy_search",
    "sample",
]
