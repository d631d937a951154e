"""Builds the parts of a run from its settings: the model, the objective and the micro-batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from regard.checkpoints import loading
from regard.errors import InputError
from regard.files.folder_lock import describe_changes
from regard.models.bert import Bert, BertConfig
from regard.models.elmo import Elmo, ElmoConfig
from regard.models.gpt2 import Gpt, GptConfig
from regard.models.t5 import T5, T5Config
from regard.text import Tokenizer
from regard.training.pretraining.config import PretrainingConfig
from regard.training.pretraining.dataset import PretrainingDataset
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
from regard.training.pretraining.span_corruption import SpanCorruption, SpanSizes, sentinels_of

PretrainableModel = Bert | Gpt | T5 | Elmo
FAMILIES = {"bert": "bert", "gpt": "gpt2", "t5": "t5", "elmo": "elmo"}  # the names that models have
DROPOUTS = ("dropout", "attention_dropout")
# Settings whose names differ from those of the models' configurations.
SHAPE = {"activation": "hidden_act"}


def new_model(config: PretrainingConfig, tokenizer: Tokenizer) -> PretrainableModel:
    """A model with new weights. A BERT that reads single texts has no heads for pairs."""
    settings, size, pad = _settings(config), tokenizer.size, tokenizer.pad_token_id or 0
    match config.model.family:
        case "gpt":
            return Gpt(
                GptConfig(
                    **settings,
                    vocab_size=size,
                    bos_token_id=tokenizer.bos_token_id,
                    eos_token_id=tokenizer.eos_token_id,
                )
            )
        case "t5":
            assert tokenizer.pad_token_id is not None and tokenizer.eos_token_id is not None
            special: dict[str, Any] = {
                "pad_token_id": pad,
                "decoder_start_token_id": pad,
                "eos_token_id": tokenizer.eos_token_id,
            }
            return T5(T5Config(**settings, vocab_size=size, **special))
        case "elmo":
            return Elmo(ElmoConfig(**settings, vocab_size=size))
    return Bert(BertConfig(**settings, vocab_size=size, pad_token_id=pad), heads=_heads(config))


def _settings(config: PretrainingConfig) -> dict[str, Any]:
    """The fields of the model's configuration."""
    model = config.model
    fields = {SHAPE.get(key, key): value for key, value in model if key != "family"}
    if model.family not in ("elmo", "t5"):
        return fields
    shared = ["hidden_size", "num_hidden_layers", "dropout"]
    if model.family == "elmo":
        return {key: fields[key] for key in shared} | {"cell_size": model.intermediate_size, "num_characters": 0}
    shared += ["num_attention_heads", "intermediate_size", "hidden_act"]
    return {key: fields[key] for key in shared} | {
        "num_decoder_layers": model.num_hidden_layers,
        "head_dim": model.hidden_size // model.num_attention_heads,
    }


def pretrained_model(config: PretrainingConfig, tokenizer: Tokenizer, name: str) -> PretrainableModel:
    """A pretrained model to continue from; its shape and vocabulary must match the settings."""
    found, vocabulary = loading.load(name)
    if not isinstance(found, PretrainableModel) or found.config.family != FAMILIES[config.model.family]:
        raise InputError(f"{name} is no {config.model.family}; start from a model of that family")
    if vocabulary is None or vocabulary.vocabulary != tokenizer.vocabulary:
        raise InputError(f"{name} has another vocabulary than the corpus; set vocabulary.path to that model's folder")
    settings = _settings(config)
    dropouts = {key: value for key, value in settings.items() if key in DROPOUTS}
    wanted = {key: value for key, value in settings.items() if key not in DROPOUTS}
    if different := describe_changes({key: getattr(found.config, key) for key in wanted}, wanted):
        raise InputError(f"{name} has another shape than [model]: {'; '.join(different)}. Set [model] to its shape")
    new = _alike(found, config, dropouts)
    missing = new.load_state_dict(found.state_dict(), strict=False).missing_keys
    if missing:
        heads = ", ".join(sorted({key.split(".")[0] for key in missing}))
        raise InputError(
            f"{name} lacks heads that this run trains: {heads}; start from a model that was pretrained for it"
        )
    return new


def _alike(found: PretrainableModel, config: PretrainingConfig, dropouts: dict[str, Any]) -> PretrainableModel:
    """A model like `found` with other dropout, and with the heads that are trained."""
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
    """The span corruption of a T5."""
    assert tokenizer.eos_token_id is not None
    return SpanCorruption(_sizes(config), sentinels=sentinels_of(tokenizer), end=tokenizer.eos_token_id, device=device)


def _sizes(config: PretrainingConfig) -> SpanSizes:
    return SpanSizes.filling(
        config.data.max_length, rate=config.objective.mlm_probability, span=config.objective.mean_noise_span_length
    )


def micro_batches_for(config: PretrainingConfig, dataset: PretrainingDataset, tokens: int) -> MicroBatches:
    """Micro-batches of `tokens` tokens."""
    length, seed, family = config.data.max_length, config.run.seed, config.model.family
    if family in ("gpt", "t5"):
        if config.data.position_shift_probability:
            raise InputError(
                f"data.position_shift_probability is for a BERT; a {family.upper()}'s rows begin at position 0"
            )
        # A GPT reads all tokens but the last and predicts all but the first. A T5's text fills the encoder's rows
        # after its spans are dropped.
        size = length + 1 if family == "gpt" else _sizes(config).tokens
        rows: RowSampler = TextChunks(dataset.text, tokens=size, seed=seed)
        return MicroBatches(rows, dataset.tokenizer, tokens=tokens // length * size, pairs=False, bare=True)
    kind = config.objective.sentence_pairs
    if kind == "none":
        rows = TextChunks(dataset.text, tokens=length - 2, seed=seed)
    else:
        rows = SentencePairs(
            dataset.text, tokens=length - 3, seed=seed, kind=kind, short=config.objective.short_seq_prob
        )
    shift = (
        PositionShift(config.data.position_shift_probability, config.model.max_position_embeddings - length, seed)
        if config.data.position_shift_probability
        else None
    )
    return MicroBatches(rows, dataset.tokenizer, tokens=tokens, pairs=kind != "none", shift=shift)
