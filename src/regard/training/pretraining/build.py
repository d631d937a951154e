"""From settings to the parts of a run: the model, what it is to learn, and the portions that it reads.

Knows which class a setting means. Knows no files but a model to start from, and trains nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from regard.checkpoints import loading
from regard.errors import InputError
from regard.files.folder_lock import describe_changes
from regard.models.bert import Bert, BertConfig
from regard.models.elmo import Elmo, ElmoConfig
from regard.models.gpt import Gpt, GptConfig
from regard.models.t5 import T5, T5Config
from regard.text import Tokenizer
from regard.training.pretraining.config import PretrainingConfig
from regard.training.pretraining.dataset import Dataset
from regard.training.pretraining.micro_batches import MicroBatches, PositionShift
from regard.training.pretraining.objectives import (
    BidirectionalLanguageModeling,
    CausalLanguageModeling,
    MaskedLanguageModeling,
    PretrainingObjective,
    SpanDenoising,
    masking_for,
)
from regard.training.pretraining.row_sampler import RowSampler, SentencePairs, TextChunks
from regard.training.pretraining.sentinels import sentinels_of
from regard.training.pretraining.span_corruption import SpanCorruption, SpanSizes

__all__ = [
    "SHAPE",
    "PretrainableModel",
    "corruption_for",
    "new_model",
    "objective_for",
    "portions_for",
    "started_model",
]

PretrainableModel = Bert | Gpt | T5 | Elmo
FAMILIES = {"bert": "bert", "gpt": "gpt2", "t5": "t5", "elmo": "elmo"}  # of the models, which differ in one name
DROPOUTS = ("dropout", "attention_dropout")
# Settings that the models' own configurations call otherwise.
SHAPE = {"activation": "hidden_act"}


def new_model(config: PretrainingConfig, tokenizer: Tokenizer) -> PretrainableModel:
    """A model with weights of chance. A BERT that reads single texts has no heads for pairs."""
    settings, size = _settings(config), tokenizer.size
    match config.model.family:
        case "gpt":
            return Gpt(GptConfig(**settings, vocab_size=size, bos_token_id=tokenizer.bos, eos_token_id=tokenizer.eos))
        case "t5":
            assert tokenizer.pad is not None and tokenizer.eos is not None
            pad = tokenizer.pad
            return T5(
                T5Config(
                    **settings,
                    vocab_size=size,
                    pad_token_id=pad,
                    decoder_start_token_id=pad,
                    eos_token_id=tokenizer.eos,
                )
            )
        case "elmo":
            return Elmo(ElmoConfig(**settings, vocab_size=size))
    return Bert(BertConfig(**settings, vocab_size=size, pad_token_id=tokenizer.pad or 0), heads=_heads(config))


def _settings(config: PretrainingConfig) -> dict[str, Any]:
    """The shape of a model in its own family's words."""
    model = config.model
    shared: dict[str, Any] = {
        "hidden_size": model.hidden_size,
        "num_hidden_layers": model.num_hidden_layers,
        "dropout": model.dropout,
    }
    if model.family == "elmo":
        return shared | {"cell_size": model.intermediate_size, "num_characters": 0}
    if model.family == "t5":
        shared |= {
            "num_attention_heads": model.num_attention_heads,
            "intermediate_size": model.intermediate_size,
            "hidden_act": model.activation,
        }
        return shared | {
            "num_decoder_layers": model.num_hidden_layers,
            "head_dim": model.hidden_size // model.num_attention_heads,
        }
    return {SHAPE.get(key, key): value for key, value in model if key != "family"}


def started_model(config: PretrainingConfig, tokenizer: Tokenizer, name: str) -> PretrainableModel:
    """The model of that name, to be trained on; it must have the shape and the vocabulary that are asked for."""
    found, vocabulary = loading.load(name)
    if not isinstance(found, PretrainableModel) or found.config.family != FAMILIES[config.model.family]:
        raise InputError(f"{name} is no {config.model.family}; start from a model of that family")
    if vocabulary is None or vocabulary.vocabulary != tokenizer.vocabulary:
        raise InputError(f"{name} has another vocabulary than the corpus; set vocabulary.path to that model's folder")
    settings = _settings(config)
    dropouts = {key: value for key, value in settings.items() if key in DROPOUTS}
    wanted = {key: value for key, value in settings.items() if key not in DROPOUTS}
    if different := describe_changes({key: getattr(found.config, key) for key in wanted}, wanted):
        raise InputError(f"{name} has another shape than [model] says: {'; '.join(different)}. Set [model] as it was")
    new = _alike(found, config, dropouts)
    missing = new.load_state_dict(found.state_dict(), strict=False).missing_keys
    if missing:
        heads = ", ".join(sorted({key.split(".")[0] for key in missing}))
        raise InputError(f"{name} lacks what this run trains: {heads}; start from a model that was pretrained for it")
    return new


def _alike(found: PretrainableModel, config: PretrainingConfig, dropouts: dict[str, Any]) -> PretrainableModel:
    """A model like the one that was found, with new dropouts and the heads that are to be trained."""
    if isinstance(found, Gpt):
        return Gpt(replace(found.config, **dropouts))
    if isinstance(found, Elmo):
        return Elmo(replace(found.config, **dropouts))
    if isinstance(found, T5):
        return T5(replace(found.config, **dropouts), heads=() if found.output is None else ("output",))
    return Bert(replace(found.config, **dropouts), heads=_heads(config))


def _heads(config: PretrainingConfig) -> tuple[str, ...] | None:
    return ("masked",) if config.objective.sentence_pairs == "none" else None


def objective_for(
    config: PretrainingConfig, model: PretrainableModel, tokenizer: Tokenizer, device: torch.device
) -> PretrainingObjective:
    if isinstance(model, Gpt):
        return CausalLanguageModeling(model)
    if isinstance(model, Elmo):
        return BidirectionalLanguageModeling(model)
    if isinstance(model, T5):
        return SpanDenoising(model, corruption_for(config, tokenizer, device))
    settings = config.objective
    masking = masking_for(
        tokenizer,
        rate=settings.mlm_probability,
        replace=settings.replacement_probabilities,
        whole_words=settings.whole_word_mask,
        device=device,
    )
    return MaskedLanguageModeling(model, masking, length=config.data.max_length)


def corruption_for(
    config: PretrainingConfig, tokenizer: Tokenizer, device: torch.device | None = None
) -> SpanCorruption:
    """What drops stretches from the rows of a T5."""
    assert tokenizer.eos is not None
    return SpanCorruption(_sizes(config), sentinels=sentinels_of(tokenizer), end=tokenizer.eos, device=device)


def _sizes(config: PretrainingConfig) -> SpanSizes:
    return SpanSizes.filling(
        config.data.max_length, rate=config.objective.mlm_probability, span=config.objective.mean_noise_span_length
    )


def portions_for(config: PretrainingConfig, material: Dataset, tokens: int) -> MicroBatches:
    """Portions of `tokens` tokens."""
    length, seed, family = config.data.max_length, config.run.seed, config.model.family
    if family in ("gpt", "t5"):
        if config.data.position_shift_probability:
            raise InputError(
                f"data.position_shift_probability is for a BERT; a {family.upper()}'s rows begin at position 0"
            )
        # A GPT's row is a token longer than the model reads, for it has to tell the last one too; a T5's is as much
        # text as, with stretches dropped, fills the encoder's rows.
        size = length + 1 if family == "gpt" else _sizes(config).tokens
        rows: RowSampler = TextChunks(material.text, tokens=size, seed=seed)
        return MicroBatches(rows, material.tokenizer, tokens=tokens // length * size, pairs=False, bare=True)
    kind = config.objective.sentence_pairs
    if kind == "none":
        rows = TextChunks(material.text, tokens=length - 2, seed=seed)
    else:
        rows = SentencePairs(
            material.text, tokens=length - 3, seed=seed, kind=kind, short=config.objective.short_seq_prob
        )
    shift = (
        PositionShift(config.data.position_shift_probability, config.model.max_position_embeddings - length, seed)
        if config.data.position_shift_probability
        else None
    )
    return MicroBatches(rows, material.tokenizer, tokens=tokens, pairs=kind != "none", shift=shift)
