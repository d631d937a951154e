"""Pretraining objectives: masked, causal and bidirectional language modeling, T5's spans, ELECTRA's replaced tokens.

`prepare` converts a micro-batch to tensors of constant shape, and the module converts those to losses, so that it can
be compiled and distributed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.data.corpus import train_tokenizer
from regard.data.masking import IGNORE_INDEX, Masking
from regard.errors import InputError
from regard.models.family import Objective, describe_family
from regard.nn.masks import Layout, Packed, Padded, first_token_indices
from regard.text import Tokenizer
from regard.training.recipes.pretraining import evaluate
from regard.training.recipes.pretraining.config import ModelSection, PretrainingConfig
from regard.training.recipes.pretraining.micro_batches import MicroBatch, MicroBatches, PositionShift
from regard.training.recipes.pretraining.row_sampler import RowSampler, SentencePairs, TextChunks
from regard.training.recipes.pretraining.span_corruption import (
    SpanCorruption,
    SpanSizes,
    sentinels_of,
    train_with_sentinels,
)
from regard.training.recipes.pretraining.token_stream import TokenStream

DISCRIMINATOR_WEIGHT = 50.0  # of ELECTRA's loss per token, which is much smaller than that of the generator
ALL_MASKED = (1.0, 0.0, 0.0)
ALIGNED = 64  # GPUs multiply matrices faster if their sides are multiples of this
MAX_ELEMENTS = 2**31 - 1  # of a tensor: kernels index with 32 bits
Scores = dict[str, evaluate.Score]


@dataclass(frozen=True, eq=False)
class PretrainingDataset:
    """Text to train on, held-out text, the tokenizer of both, and a digest of the training text."""

    text: TokenStream
    held_out: TokenStream
    tokenizer: Tokenizer
    digest: str


class PretrainingObjective(nn.Module, ABC):
    """What a model learns: the rows of text it reads, its losses, its scores, and what it needs of a tokenizer.

    `forward` returns the loss to minimize as "loss", and its parts by name.
    """

    special_tokens: ClassVar[tuple[str, ...]]  # roles of the tokens that the tokenizer must have
    train_tokenizer: ClassVar[Callable[..., Tokenizer]] = staticmethod(train_tokenizer)

    @classmethod
    def from_config(
        cls, config: PretrainingConfig, model: Any, tokenizer: Tokenizer, device: torch.device | None = None
    ) -> PretrainingObjective:
        return cls(model)

    @staticmethod
    @abstractmethod
    def micro_batches(config: PretrainingConfig, dataset: PretrainingDataset, tokens: int) -> MicroBatches:
        """Micro-batches of `tokens` tokens."""

    @abstractmethod
    def prepare(self, batch: MicroBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """The keyword arguments of `forward`."""

    @staticmethod
    @abstractmethod
    def scores(model: Any, config: PretrainingConfig, dataset: PretrainingDataset) -> Scores:
        """Scores on held-out text by name."""

    @staticmethod
    def check_held_out(config: PretrainingConfig, dataset: PretrainingDataset) -> None:
        """InputError if the held-out text is too short to evaluate on; found before training."""

    @staticmethod
    def trained_models(model: Any) -> dict[str, nn.Module]:
        """The models to save, by their folder in the output folder; the one without a name is the result."""
        return {"": model}

    @staticmethod
    @abstractmethod
    def flops_per_token(config: PretrainingConfig, vocabulary: int) -> float:
        """FLOPs of matrix products and attention, forward and backward, per token read."""

    @classmethod
    def missing_tokens(cls, tokenizer: Tokenizer) -> list[str]:
        """The special tokens that the tokenizer lacks."""
        return [role for role in cls.special_tokens if getattr(tokenizer, f"{role}_token_id") is None]

    @staticmethod
    def prepare_text(text: TokenStream, tokenizer: Tokenizer) -> TokenStream:
        """The text as the model reads it."""
        return text


class MaskedLanguageModeling(PretrainingObjective):
    """BERT's: predict masked tokens and, for pairs, whether B follows A."""

    special_tokens = ("cls", "sep", "mask", "pad")
    replacements: ClassVar[tuple[float, float, float] | None] = None  # in place of those of the settings

    def __init__(self, model: Any, masking: Masking, *, length: int) -> None:
        super().__init__()
        self.model, self.masking, self.length = model, masking, length

    @classmethod
    def from_config(
        cls, config: PretrainingConfig, model: Any, tokenizer: Tokenizer, device: torch.device | None = None
    ) -> MaskedLanguageModeling:
        settings = config.objective
        masking = masking_for(
            tokenizer,
            rate=settings.mlm_probability,
            replace=cls.replacements or settings.replacement_probabilities,
            whole_words=settings.whole_word_mask,
            device=device,
        )
        return cls(model, masking, length=config.data.max_length)

    @staticmethod
    def micro_batches(config: PretrainingConfig, dataset: PretrainingDataset, tokens: int) -> MicroBatches:
        length, seed, kind = config.data.max_length, config.run.seed, config.objective.sentence_pairs
        shuffle = config.data.shuffle_shards
        if kind == "none":
            rows: RowSampler = TextChunks(dataset.text, tokens=length - 2, seed=seed, shuffle_shards=shuffle)
        else:
            short = config.objective.short_seq_prob
            rows = SentencePairs(
                dataset.text, tokens=length - 3, seed=seed, kind=kind, short=short, shuffle_shards=shuffle
            )
        shift, probability = None, config.data.position_shift_probability
        if probability:
            shift = PositionShift(probability, config.model.max_position_embeddings - length, seed)
        return MicroBatches(rows, dataset.tokenizer, tokens=tokens, pairs=kind != "none", shift=shift)

    def prepare(self, batch: MicroBatch, generator: torch.Generator) -> dict[str, Tensor]:
        masked = self.masking(batch.ids, generator, num_positions=round(batch.ids.numel() * self.masking.rate))
        given = {
            "ids": masked.ids,
            "masked_positions": masked.positions,
            "targets": masked.targets,
            "segments": batch.segments,
            "labels": batch.labels,
            "starts": batch.starts,
            "positions": batch.positions,
        }
        return {name: value for name, value in given.items() if value is not None}

    def forward(
        self,
        ids: Tensor,
        masked_positions: Tensor,
        targets: Tensor,
        segments: Tensor | None = None,
        labels: Tensor | None = None,
        starts: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> dict[str, Tensor]:
        layout: Layout = Padded()
        if starts is not None and positions is not None:
            # On a CPU the lengths group rows of equal length; a GPU kernel reads the starts.
            sizes = None if ids.is_cuda else tuple(size for size in starts.diff().tolist() if size)
            layout = Packed(sizes, starts, positions, self.length)
        return self._losses(ids, layout, segments, masked_positions, targets, labels)

    def _losses(
        self,
        ids: Tensor,
        layout: Layout,
        segments: Tensor | None,
        masked_positions: Tensor,
        targets: Tensor,
        labels: Tensor | None,
    ) -> dict[str, Tensor]:
        model: Any = self.model  # has the heads that are used
        # Only masked tokens go through the output layer, which is as wide as the vocabulary, and through most of the
        # last layer, together with the first token of each row, which represents the pair.
        rows = masked_positions if labels is None else torch.cat([masked_positions, first_token_indices(ids, layout)])
        hidden = model(ids, layout, segments, output_positions=rows)
        vectors = model.mlm_head.vectors(hidden[: len(masked_positions)])
        losses = {"mlm": token_loss(vectors, model.mlm_head.weight, model.mlm_head.bias, targets)}
        if labels is not None:
            losses["nsp"] = mean_loss(model.nsp_head(model.pooler.vectors(hidden[len(masked_positions) :])), labels)
        return losses | {"loss": torch.stack(list(losses.values())).sum()}

    @staticmethod
    def scores(model: Any, config: PretrainingConfig, dataset: PretrainingDataset) -> Scores:
        length, text, tokenizer = config.data.max_length, dataset.held_out, dataset.tokenizer
        masking = masking_for(tokenizer, rate=config.objective.mlm_probability, replace=ALL_MASKED)
        scores = {"mlm": evaluate.masked_lm_score(model, masking, text, tokenizer, length=length)}
        if config.objective.sentence_pairs == "next":
            scores["nsp"] = evaluate.next_sentence_score(model, text, tokenizer, length=length)
        return scores

    @staticmethod
    def check_held_out(config: PretrainingConfig, dataset: PretrainingDataset) -> None:
        length, text, tokenizer = config.data.max_length, dataset.held_out, dataset.tokenizer
        evaluate.rows_with_special_tokens(text, tokenizer, length=length, rows=1)
        if config.objective.sentence_pairs == "next":
            evaluate.next_sentence_pairs(text, tokenizer, length=length, count=2)

    @staticmethod
    def flops_per_token(config: PretrainingConfig, vocabulary: int) -> float:
        size = config.model.hidden_size
        output = (2.0 * size * vocabulary + 2 * size**2) * config.objective.mlm_probability
        return 3.0 * (_layer_flops(config) + output)


class ReplacedTokenDetection(MaskedLanguageModeling):
    """ELECTRA's: a generator predicts masked tokens, which are replaced by samples of its predictions; the
    discriminator finds the tokens that differ from the text. The generator learns from its own loss only."""

    replacements = ALL_MASKED

    @staticmethod
    def trained_models(model: Any) -> dict[str, nn.Module]:
        return {"": model.discriminator, "generator": model.generator}

    def _losses(
        self,
        ids: Tensor,
        layout: Layout,
        segments: Tensor | None,
        masked_positions: Tensor,
        targets: Tensor,
        labels: Tensor | None,
    ) -> dict[str, Tensor]:
        generator, discriminator = self.model.generator, self.model.discriminator
        vectors = generator.mlm_head.vectors(generator(ids, layout, segments, output_positions=masked_positions))
        words = token_loss(vectors, generator.mlm_head.weight, generator.mlm_head.bias, targets)
        with torch.no_grad():
            weight, bias = generator.mlm_head.weight, generator.mlm_head.bias
            logits = (F.linear(part, weight, bias) for part in split_rows(vectors, len(weight)))
            samples = torch.cat([evaluate.sample_tokens(part) for part in logits])
        replaced, is_replaced = evaluate.replace_tokens(ids, masked_positions, targets, samples)
        found = discriminator.discriminator(discriminator(replaced, layout, segments))
        replacements = F.binary_cross_entropy_with_logits(found.float(), is_replaced.float())
        return {"mlm": words, "replaced": replacements, "loss": words + DISCRIMINATOR_WEIGHT * replacements}

    @staticmethod
    def scores(model: Any, config: PretrainingConfig, dataset: PretrainingDataset) -> Scores:
        length, text, tokenizer = config.data.max_length, dataset.held_out, dataset.tokenizer
        masking = masking_for(tokenizer, rate=config.objective.mlm_probability, replace=ALL_MASKED)
        words = evaluate.masked_lm_score(model.generator, masking, text, tokenizer, length=length)
        replaced = evaluate.replaced_token_score(model, masking, text, tokenizer, length=length)
        return {"mlm": words, "replaced": replaced}

    @staticmethod
    def flops_per_token(config: PretrainingConfig, vocabulary: int) -> float:
        model = config.model
        heads = max(model.num_attention_heads // 4, 1)
        size = model.hidden_size // model.num_attention_heads * heads
        changes = {"hidden_size": size, "intermediate_size": model.intermediate_size // 4, "num_attention_heads": heads}
        generator = config.model_copy(update={"model": model.model_copy(update=changes)})
        # The output layer of the generator is as wide as the embeddings; it computes predictions twice, to sample them.
        output = (2.0 * model.hidden_size * vocabulary * (1 + 1 / 3)) * config.objective.mlm_probability
        projection = 2.0 * model.hidden_size * size
        return 3.0 * (_layer_flops(config) + _layer_flops(generator) + output + projection + 2 * model.hidden_size**2)


class CausalLanguageModeling(PretrainingObjective):
    """GPT's: predict each token from those before it. A token ends each document."""

    special_tokens = ("eos",)

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    @staticmethod
    def micro_batches(config: PretrainingConfig, dataset: PretrainingDataset, tokens: int) -> MicroBatches:
        # The model reads all tokens but the last and predicts all but the first.
        return _bare_micro_batches(config, dataset, tokens, size=config.data.max_length + 1)

    def prepare(self, batch: MicroBatch, generator: torch.Generator) -> dict[str, Tensor]:
        return {"ids": batch.ids[:, :-1], "targets": batch.ids[:, 1:].long()}

    def forward(self, ids: Tensor, targets: Tensor) -> dict[str, Tensor]:
        model: Any = self.model
        loss = token_loss(model(ids).flatten(0, 1), model.output_weight, model.output_bias, targets.flatten())
        return {"lm": loss, "loss": loss}

    @staticmethod
    def scores(model: Any, config: PretrainingConfig, dataset: PretrainingDataset) -> Scores:
        return {"lm": evaluate.next_token_score(model, dataset.held_out, length=config.data.max_length)}

    @staticmethod
    def flops_per_token(config: PretrainingConfig, vocabulary: int) -> float:
        return 3.0 * (_layer_flops(config) + 2.0 * config.model.hidden_size * vocabulary)

    @staticmethod
    def prepare_text(text: TokenStream, tokenizer: Tokenizer) -> TokenStream:
        assert tokenizer.eos_token_id is not None
        return text.with_end_tokens(tokenizer.eos_token_id)


class SpanDenoising(PretrainingObjective):
    """T5's: predict the dropped spans, each after its sentinel."""

    special_tokens = ("pad", "eos")
    train_tokenizer = staticmethod(train_with_sentinels)

    def __init__(self, model: Any, corruption: SpanCorruption) -> None:
        super().__init__()
        self.model, self.corruption = model, corruption

    @classmethod
    def from_config(
        cls, config: PretrainingConfig, model: Any, tokenizer: Tokenizer, device: torch.device | None = None
    ) -> SpanDenoising:
        return cls(model, _span_corruption(config, tokenizer, device))

    @staticmethod
    def micro_batches(config: PretrainingConfig, dataset: PretrainingDataset, tokens: int) -> MicroBatches:
        # The text fills the encoder's rows after its spans are dropped.
        return _bare_micro_batches(config, dataset, tokens, size=_span_sizes(config).tokens)

    def prepare(self, batch: MicroBatch, generator: torch.Generator) -> dict[str, Tensor]:
        corrupted = self.corruption(batch.ids, generator)
        decoder_ids = F.pad(corrupted.targets[:, :-1], (1, 0), value=self.model.begin)
        return {"ids": corrupted.inputs, "decoder_ids": decoder_ids, "targets": corrupted.targets}

    def forward(self, ids: Tensor, decoder_ids: Tensor, targets: Tensor) -> dict[str, Tensor]:
        model: Any = self.model
        hidden = model(ids, decoder_ids)
        if model.config.scale_decoder_outputs:
            hidden = hidden * model.config.hidden_size**-0.5
        weight = (model.output or model.embedding.tokens).weight
        loss = token_loss(hidden.flatten(0, 1), weight, None, targets.flatten())
        return {"spans": loss, "loss": loss}

    @staticmethod
    def scores(model: Any, config: PretrainingConfig, dataset: PretrainingDataset) -> Scores:
        corruption = _span_corruption(config, dataset.tokenizer)
        return {"spans": evaluate.span_score(model, corruption, dataset.held_out)}

    @staticmethod
    def check_held_out(config: PretrainingConfig, dataset: PretrainingDataset) -> None:
        evaluate.chunks(dataset.held_out, length=_span_sizes(config).tokens, rows=1)

    @staticmethod
    def flops_per_token(config: PretrainingConfig, vocabulary: int) -> float:
        model, length, targets = config.model, config.data.max_length, _span_sizes(config).targets
        size, depth, layers = model.hidden_size, model.num_hidden_layers, _layer_flops(config)
        # Cross-attention: the keys and values of the encoder's states are computed once per decoder layer.
        cross = 2 * depth * 2 * size**2
        decoder = layers + 4 * depth * targets * size + cross
        return 3.0 * (layers + cross + (decoder + 2.0 * size * vocabulary) * targets / length)

    @classmethod
    def missing_tokens(cls, tokenizer: Tokenizer) -> list[str]:
        sentinels = [] if sentinels_of(tokenizer) else ["dropped spans (<extra_id_0>)"]
        return super().missing_tokens(tokenizer) + sentinels


class BidirectionalLanguageModeling(PretrainingObjective):
    """ELMo's: predict each token from those before it, and from those after it. Special tokens enclose rows."""

    special_tokens = ("cls", "sep")

    def __init__(self, model: Any) -> None:
        super().__init__()
        assert model.output is not None
        self.model = model

    @staticmethod
    def micro_batches(config: PretrainingConfig, dataset: PretrainingDataset, tokens: int) -> MicroBatches:
        rows = TextChunks(
            dataset.text,
            tokens=config.data.max_length - 2,
            seed=config.run.seed,
            shuffle_shards=config.data.shuffle_shards,
        )
        return MicroBatches(rows, dataset.tokenizer, tokens=tokens, pairs=False)

    def prepare(self, batch: MicroBatch, generator: torch.Generator) -> dict[str, Tensor]:
        return {"ids": batch.ids}

    def forward(self, ids: Tensor) -> dict[str, Tensor]:
        model: Any = self.model
        ahead, back = model(ids).chunk(2, dim=-1)
        words = ids[:, 1:-1].flatten().long()
        output = model.output
        losses = {
            "forwards": token_loss(ahead[:, :-2].flatten(0, 1), output.weight, output.bias, words),
            "backwards": token_loss(back[:, 2:].flatten(0, 1), output.weight, output.bias, words),
        }
        return losses | {"loss": (losses["forwards"] + losses["backwards"]) / 2}

    @staticmethod
    def scores(model: Any, config: PretrainingConfig, dataset: PretrainingDataset) -> Scores:
        text, tokenizer = dataset.held_out, dataset.tokenizer
        ahead, back = evaluate.bidirectional_scores(model, text, tokenizer, length=config.data.max_length)
        return {"forwards": ahead, "backwards": back}

    @staticmethod
    def check_held_out(config: PretrainingConfig, dataset: PretrainingDataset) -> None:
        length = config.data.max_length
        evaluate.rows_with_special_tokens(dataset.held_out, dataset.tokenizer, length=length, rows=1)

    @staticmethod
    def flops_per_token(config: PretrainingConfig, vocabulary: int) -> float:
        model = config.model
        size, cells = model.hidden_size, model.intermediate_size
        lstms = model.num_hidden_layers * (8 * cells * size + (cells * size if cells > size else 0))
        return 3.0 * 2 * (2 * lstms + 2.0 * size * vocabulary)


_OBJECTIVES: dict[Objective, type[PretrainingObjective]] = {
    "masked-lm": MaskedLanguageModeling,
    "replaced-token-detection": ReplacedTokenDetection,
    "causal-lm": CausalLanguageModeling,
    "span-corruption": SpanDenoising,
    "bidirectional-lm": BidirectionalLanguageModeling,
}


def objective_class(config: PretrainingConfig) -> type[PretrainingObjective]:
    return _OBJECTIVES[config.recipe.objective]


def _bare_micro_batches(
    config: PretrainingConfig, dataset: PretrainingDataset, tokens: int, *, size: int
) -> MicroBatches:
    """Rows of `size` tokens of running text, without special tokens."""
    if config.data.position_shift_probability:
        title = describe_family(config.model.family)
        raise InputError(f"data.position_shift_probability is for a BERT; the rows of {title} begin at position 0")
    rows = TextChunks(dataset.text, tokens=size, seed=config.run.seed, shuffle_shards=config.data.shuffle_shards)
    tokens = tokens // config.data.max_length * size
    return MicroBatches(rows, dataset.tokenizer, tokens=tokens, pairs=False, bare=True)


def _span_sizes(config: PretrainingConfig) -> SpanSizes:
    objective = config.objective
    return SpanSizes.filling(
        config.data.max_length, rate=objective.mlm_probability, span=objective.mean_noise_span_length
    )


def _span_corruption(
    config: PretrainingConfig, tokenizer: Tokenizer, device: torch.device | None = None
) -> SpanCorruption:
    assert tokenizer.eos_token_id is not None
    sentinels = sentinels_of(tokenizer)
    return SpanCorruption(_span_sizes(config), sentinels=sentinels, end=tokenizer.eos_token_id, device=device)


def _layer_flops(config: PretrainingConfig) -> float:
    """FLOPs of the layers of an encoder or decoder, forward, per token."""
    model = config.model
    return 2 * layer_parameters(model) + 4 * model.num_hidden_layers * config.data.max_length * model.hidden_size


def layer_parameters(model: ModelSection) -> int:
    """Parameters of the matrices in the layers of a Transformer."""
    return model.num_hidden_layers * (4 * model.hidden_size**2 + 2 * model.hidden_size * model.intermediate_size)


def masking_for(
    tokenizer: Tokenizer,
    *,
    rate: float = 0.15,
    replace: tuple[float, float, float] = (0.8, 0.1, 0.1),
    whole_words: bool = False,
    device: torch.device | None = None,
) -> Masking:
    """Masking for a tokenizer's ids, except its special tokens."""
    assert tokenizer.mask_token_id is not None
    special = torch.zeros(tokenizer.size, dtype=torch.bool)
    roles = (
        tokenizer.cls_token_id,
        tokenizer.sep_token_id,
        tokenizer.pad_token_id,
        tokenizer.mask_token_id,
        tokenizer.unk_token_id,
    )
    special[[id for id in roles if id is not None]] = True
    continues = None
    if whole_words:
        continues = torch.tensor([tokenizer.token(id).startswith("##") for id in range(tokenizer.size)])
        if not continues.any():
            raise InputError(
                "whole words can be masked only with a WordPiece vocabulary, and this one has no ## pieces"
            )
        continues = continues.to(device)
    return Masking(special.to(device), mask=tokenizer.mask_token_id, rate=rate, replace=replace, continues=continues)


def token_loss(vectors: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    """Mean cross-entropy over the vocabulary, which is padded on a GPU with entries of probability 0.

    Ignored targets do not count; 0 if all are ignored.
    """
    more = -len(weight) % ALIGNED
    if vectors.is_cuda and more:
        bias = weight.new_zeros(len(weight)) if bias is None else bias
        weight, bias = F.pad(weight, (0, 0, 0, more)), F.pad(bias, (0, more), value=-1e4)
    parts = zip(split_rows(vectors, len(weight)), split_rows(targets, len(weight)), strict=True)
    sums = [_summed_loss(F.linear(part, weight, bias), words) for part, words in parts]
    return torch.stack(sums).sum() / _target_count(targets)


def split_rows(rows: Tensor, vocabulary: int) -> tuple[Tensor, ...]:
    """The rows in parts whose logits over the vocabulary a kernel can index."""
    return torch.split(rows, -(-len(rows) // -(-len(rows) * vocabulary // MAX_ELEMENTS)))


def mean_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy over targets that are not ignored; 0 if all are ignored."""
    return _summed_loss(logits, targets) / _target_count(targets)


def _summed_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.float(), targets, ignore_index=IGNORE_INDEX, reduction="sum")


def _target_count(targets: Tensor) -> Tensor:
    return (targets != IGNORE_INDEX).sum().clamp(min=1)
