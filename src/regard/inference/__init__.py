"""Inference: masked and causal language models, next-sentence prediction, embedding, generation and translation.

Reading order: masked_lm, causal_lm, likelihood, benchmark, then the packages.
"""
