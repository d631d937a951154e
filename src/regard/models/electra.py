"""ELECTRA: a BERT that learns to find the tokens which a small masked language model, its generator, replaced."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from torch import Tensor, nn

from regard.models import bert
from regard.models.family import Checkpoint, Family, PretrainingRecipe, shape
from regard.nn.block import ACTIVATIONS
from regard.nn.training import normal_init


@dataclass(frozen=True)
class ElectraConfig(bert.BertConfig):
    """ELECTRA base by default."""

    family: str = "electra"


class ReplacedTokenHead(nn.Module):
    """One logit per token: positive if it was replaced."""

    def __init__(self, width: int, activation: str) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.activation = ACTIVATIONS[activation]
        self.output = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.output(self.activation(self.linear(x)))
        return logits.squeeze(-1)


class Electra(bert.Bert):
    """`model(ids, layout)` returns the last hidden state, as for `Bert`.

    A generator has the head `model.mlm_head(hidden)` (B, T, V), a discriminator `model.discriminator(hidden)` (B, T).
    """

    def __init__(self, config: bert.BertConfig, *, output_heads: Collection[str] | None = None) -> None:
        super().__init__(config, output_heads=output_heads)
        wanted = output_heads is None or "discriminator" in output_heads
        self.discriminator = ReplacedTokenHead(config.hidden_size, config.hidden_act) if wanted else None
        if self.discriminator is not None:
            normal_init(self.discriminator)


class ElectraWithGenerator(nn.Module):
    """A discriminator and the generator that it is trained with, a quarter as wide. They share their embeddings."""

    def __init__(self, discriminator: Electra) -> None:
        super().__init__()
        self.config, self.discriminator = discriminator.config, discriminator
        self.generator = Electra(generator_config(discriminator.config), output_heads=("mlm_head",))
        shared, own = discriminator.embedding, self.generator.embedding
        own.tokens, own.positions, own.segments = shared.tokens, shared.positions, shared.segments
        assert self.generator.mlm_head is not None
        self.generator.mlm_head.tied = [shared.tokens]


def generator_config(config: bert.BertConfig) -> bert.BertConfig:
    """Return the config of a generator: a quarter of the heads, with their width, and of the feed-forward layers."""
    heads = max(config.num_attention_heads // 4, 1)
    width, embedding = config.hidden_size // config.num_attention_heads * heads, config.embedding_size
    return replace(
        config,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=max(config.intermediate_size // 4, 1),
        embedding_size=None if (embedding or config.hidden_size) == width else embedding or config.hidden_size,
    )


SMALL = {"embedding_size": 128, **shape(256, 12, 4)}
FAMILY = Family(
    name="electra",
    title="an ELECTRA",
    year=2020,
    description="BERT trained to find replaced tokens; heads: masked language model (generator), discriminator",
    model_class=Electra,
    config_class=ElectraConfig,
    capabilities=frozenset({"text-encoder", "masked-lm", "replaced-token-detection", "segments", "fine-tuning"}),
    stacks=("encoder",),
    output_heads=("mlm_head", "discriminator"),
    pooler_activation="gelu",
    mlm_activation="gelu",
    checkpoints=(
        Checkpoint("google/electra-small-discriminator", 13_549_057, SMALL, ("discriminator",)),
        Checkpoint("google/electra-base-discriminator", 109_483_009, {}, ("discriminator",)),
        Checkpoint("google/electra-large-discriminator", 335_142_913, shape(1024, 24, 16), ("discriminator",)),
    ),
    pretraining=PretrainingRecipe(
        name="electra",
        objective="replaced-token-detection",
        config_fields=bert.config_fields,
        token_ids={"pad_token_id": "pad_token_id"},
        defaults={"objective": {"sentence_pairs": "none"}},
        unused=(
            "objective.mean_noise_span_length",
            "objective.replacement_probabilities",
            "objective.sentence_pairs",
            "objective.short_seq_prob",
        ),
        trained_model=ElectraWithGenerator,
    ),
)
