"""Inference: masked and causal language models, next-sentence prediction, embedding, generation and translation.

Reading order: windows, masked_lm, causal_lm, perplexity, line_scores, benchmark, then the packages.
"""

from __future__ import annotations

from regard.inference.masked_lm import Assignment, Candidate, FillResult, fill_blanks
from regard.inference.next_sentence import NextSentence, predict_next_sentence
from regard.inference.perplexity import Perplexity, measure_perplexity, read_text_file

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
