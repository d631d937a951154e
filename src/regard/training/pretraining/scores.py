"""How a model of each family does on text that was kept from it, as a report has it: score by name, numbers by name.

Knows which questions a family is asked. Knows nothing of how they are asked.
"""

from __future__ import annotations

from dataclasses import asdict

from regard.models.elmo import Elmo
from regard.models.gpt import Gpt
from regard.models.t5 import T5
from regard.training.pretraining import evaluate
from regard.training.pretraining.build import PretrainableModel, corruption_for
from regard.training.pretraining.config import PretrainingConfig
from regard.training.pretraining.dataset import Dataset
from regard.training.pretraining.objectives import masking_for

__all__ = ["held_out_scores", "refuse_short"]


def held_out_scores(
    model: PretrainableModel, config: PretrainingConfig, material: Dataset
) -> dict[str, dict[str, float]]:
    length, tokenizer, text = config.data.max_length, material.tokenizer, material.held_out
    if isinstance(model, Gpt):
        return {"words": _numbers(evaluate.next_words(model, text, length=length))}
    if isinstance(model, T5):
        return {"spans": _numbers(evaluate.dropped_spans(model, corruption_for(config, tokenizer), text))}
    if isinstance(model, Elmo):
        ahead, back = evaluate.both_ways(model, text, tokenizer, length=length)
        return {"forwards": _numbers(ahead), "backwards": _numbers(back)}
    asked = masking_for(tokenizer, rate=config.objective.mlm_probability, replace=(1.0, 0.0, 0.0))
    scores = {"words": asdict(evaluate.words(model, asked, text, tokenizer, length=length))}
    if config.objective.sentence_pairs == "next":
        scores["pairs"] = asdict(evaluate.pairs(model, text, tokenizer, length=length))
    return scores


def refuse_short(config: PretrainingConfig, material: Dataset) -> None:
    """InputError where the text that was kept is too short for the questions."""
    text, tokenizer, length = material.held_out, material.tokenizer, config.data.max_length
    if config.model.family in ("bert", "elmo"):
        evaluate.blanked(text, tokenizer, length=length, rows=1)
    if config.model.family == "t5":
        evaluate.stretches(text, length=corruption_for(config, tokenizer).sizes.tokens, rows=1)
    if config.objective.sentence_pairs == "next":
        evaluate.next_pairs(text, tokenizer, length=length, count=2)


def _numbers(found: evaluate.PerplexityScore) -> dict[str, float]:
    return {"loss": found.loss, "perplexity": found.perplexity, "count": found.count}
