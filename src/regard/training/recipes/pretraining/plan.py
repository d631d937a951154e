"""The expected loss of a run, from a curve fitted to finished runs."""

from __future__ import annotations

from regard.training.recipes.pretraining.config import PretrainingConfig
from regard.training.recipes.pretraining.objectives import layer_parameters

# The runs behind the curve: parameters of the layers, vocabulary size, and tokens read.
MEASURED_LAYERS, MEASURED_VOCABULARY, MEASURED_TOKENS = 10_616_832, 30_522, (5e7, 5e9)
CURVE = (2.05, 1.62, 0.42)  # irreducible loss, reducible loss at 100 million tokens, exponent


def expected_loss(config: PretrainingConfig, vocabulary: int, tokens: int) -> float | None:
    """The masked language modeling loss to expect after `tokens` tokens; None if no comparable run was measured.

    The curve is fitted to runs on English text with 6 layers of 384, a vocabulary of 30,522 and Muon.
    """
    comparable = (
        config.recipe.objective == "masked-lm"
        and config.optimizer.name == "muon"
        and config.objective.mlm_probability == 0.15
        and 1 / 2 <= layer_parameters(config.model) / MEASURED_LAYERS <= 2
        and 3 / 4 <= vocabulary / MEASURED_VOCABULARY <= 4 / 3
        and MEASURED_TOKENS[0] <= tokens <= MEASURED_TOKENS[1]
    )
    least, size, power = CURVE
    return least + size * (tokens / 1e8) ** -power if comparable else None
