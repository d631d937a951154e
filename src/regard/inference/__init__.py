"""Inference: masked and causal language models, next-sentence prediction, embedding, generation and translation.

Reading order: masked_lm, causal_lm, likelihood, benchmark, then the packages.
"""

from __future__ import annotations

from regard.inference.likelihood import Perplexity, measure_perplexity, read_text_file
from regard.inference.masked_lm import (
    Assignment,
    Candidate,
    FillResult,
    NextSentence,
    fill_blanks,
    predict_next_sentence,
)

__all__ = [
    "Assignment",
    "Candidate",
    "FillResult",
    "NextSentence",
    "Perplexity",
    "fill_blanks",
    "measure_perplexity",
    "predict_next_sentence",
    "read_text_file",
]
