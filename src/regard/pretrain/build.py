"""From settings to the parts of a run: the model, what it is to learn, and the portions that it reads.

Knows which class a setting means. Knows no files but a model to start from, and trains nothing.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from regard import loading
from regard.errors import InputError
from regard.models.bert import Bert, BertConfig
from regard.models.gpt import Gpt, GptConfig
from regard.pretrain.config import Config
from regard.pretrain.objectives import Causal, MaskedWords, Objective, masking_for
from regard.pretrain.portions import Portions, Shift
from regard.pretrain.prepare import Material
from regard.pretrain.rows import Pairs, Rows, Stretches
from regard.text import Tokenizer
from regard.unfinished import changes

__all__ = ["new_model", "objective_for", "portions_for", "started_model"]


def new_model(config: Config, tokenizer: Tokenizer) -> Bert | Gpt:
    """A model with weights of chance. A BERT that reads single texts has no heads for pairs."""
    settings = config.model.model_dump(exclude={"family"})
    if config.model.family == "gpt":
        return Gpt(GptConfig(**settings, vocabulary=tokenizer.size, begin=tokenizer.bos, end=tokenizer.eos))
    return Bert(BertConfig(**settings, vocabulary=tokenizer.size, padding=tokenizer.pad or 0), heads=_heads(config))


def started_model(config: Config, tokenizer: Tokenizer, name: str) -> Bert | Gpt:
    """The model of that name, to be trained on; it must have the shape and the vocabulary that are asked for."""
    found, vocabulary = loading.load(name)
    family = {"bert": "bert", "gpt": "gpt2"}[config.model.family]
    if not isinstance(found, Bert | Gpt) or found.config.family != family:
        raise InputError(f"{name} is no {config.model.family}; start from a model of that family")
    if vocabulary is None or vocabulary.vocabulary != tokenizer.vocabulary:
        raise InputError(f"{name} has another vocabulary than the corpus; set vocabulary.path to that model's folder")
    dropouts = config.model.model_dump(include={"dropout", "attention_dropout"})
    wanted = config.model.model_dump(exclude={"family", *dropouts})
    if different := changes({key: getattr(found.config, key) for key in wanted}, wanted):
        raise InputError(f"{name} has another shape than [model] says: {'; '.join(different)}. Set [model] as it was")
    new: Bert | Gpt
    if isinstance(found, Gpt):
        new = Gpt(replace(found.config, **dropouts))
    else:
        new = Bert(replace(found.config, **dropouts), heads=_heads(config))
    missing = new.load_state_dict(found.state_dict(), strict=False).missing_keys
    if missing:
        heads = ", ".join(sorted({key.split(".")[0] for key in missing}))
        raise InputError(f"{name} lacks what this run trains: {heads}; start from a model that was pretrained for it")
    return new


def _heads(config: Config) -> tuple[str, ...] | None:
    return ("masked",) if config.objective.pairs == "none" else None


def objective_for(config: Config, model: Bert | Gpt, tokenizer: Tokenizer, device: torch.device) -> Objective:
    if isinstance(model, Gpt):
        return Causal(model)
    settings = config.objective
    masking = masking_for(
        tokenizer,
        rate=settings.mask_rate,
        replace=settings.replace,
        whole_words=settings.whole_words,
        device=device,
    )
    return MaskedWords(model, masking, length=config.data.length)


def portions_for(config: Config, material: Material, tokens: int) -> Portions:
    """Portions of `tokens` tokens."""
    length, seed = config.data.length, config.run.seed
    if config.model.family == "gpt":
        if config.data.shifted:
            raise InputError("data.shifted is for a BERT; a GPT's rows begin at position 0")
        # A row is a token longer than the model reads, for it has to tell the last one too.
        rows: Rows = Stretches(material.text, tokens=length + 1, seed=seed)
        count = tokens // length
        return Portions(rows, material.tokenizer, tokens=count * (length + 1), pairs=False, bare=True)
    kind = config.objective.pairs
    if kind == "none":
        rows = Stretches(material.text, tokens=length - 2, seed=seed)
    else:
        rows = Pairs(material.text, tokens=length - 3, seed=seed, kind=kind, short=config.objective.short_pairs)
    shift = Shift(config.data.shifted, config.model.positions - length, seed) if config.data.shifted else None
    return Portions(rows, material.tokenizer, tokens=tokens, pairs=kind != "none", shift=shift)
