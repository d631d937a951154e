"""Decoding: from a model that gives the logits of the next token to texts, by search or by chance.

One greedy search, one beam and one sampler serve every family. Reading order: speaker, search, filters, sample, said,
trace, writing.
"""

from __future__ import annotations

from regard.inference.generation.filters import Sampling
from regard.inference.generation.said import Said
from regard.inference.generation.sample import sample
from regard.inference.generation.search import Beam, Hypothesis, beam_search, greedy
from regard.inference.generation.speaker import Speaker, speaker_of
from regard.inference.generation.trace import Trace
from regard.inference.generation.writing import Prompt, Text, Writer, Writing

__all__ = [
    "Beam",
    "Hypothesis",
    "Prompt",
    "Said",
    "Sampling",
    "Speaker",
    "Text",
    "Trace",
    "Writer",
    "Writing",
    "beam_search",
    "greedy",
    "sample",
    "speaker_of",
]
