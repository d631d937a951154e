"""From settings to the parts of a run: the model, what it is to learn, and the portions that it reads.

Knows which class a setting means. Knows no files but a model to start from, and trains nothing.
"""

from __future__ import annotations

import torch

from regard import loading
from regard.errors import InputError
from regard.models.bert import Bert, BertConfig
from regard.models.gpt import Gpt, GptConfig
from regard.pretrain.config import Config
from regard.pretrain.objectives import Causal, MaskedWords, Objective, masking_for
from regard.pretrain.portions import Portions
from regard.pretrain.prepare import Material
from regard.pretrain.rows import Pairs, Rows, Stretches
from regard.text import Tokenizer

__all__ = ["half_type", "new_model", "objective_for", "portions_for", "started_model"]


def new_model(config: Config, tokenizer: Tokenizer) -> Bert | Gpt:
    """A model with weights of chance. A BERT that reads single texts has no heads for pairs."""
    settings = config.model.model_dump(exclude={"family"})
    if config.model.family == "gpt":
        return Gpt(GptConfig(**settings, vocabulary=tokenizer.size, begin=tokenizer.bos, end=tokenizer.eos))
    heads = ("masked",) if config.objective.pairs == "none" else None
    return Bert(BertConfig(**settings, vocabulary=tokenizer.size, padding=tokenizer.pad or 0), heads=heads)


def started_model(config: Config, tokenizer: Tokenizer, name: str) -> Bert | Gpt:
    """The model of that name, to be trained on; it must have the shape and the vocabulary that are asked for."""
    found, vocabulary = loading.load(name)
    new = new_model(config, tokenizer)
    if type(found) is not type(new):
        raise InputError(f"{name} is no {config.model.family}; start from a model of that family")
    if vocabulary is None or vocabulary.vocabulary != tokenizer.vocabulary:
        raise InputError(f"{name} has another vocabulary than the corpus; set vocabulary.path to that model's folder")
    missing = new.load_state_dict(found.state_dict(), strict=False) if _fits(new, found) else None
    if missing is None:
        raise InputError(f"{name} has another shape than [model] says; give its width, depth, heads, ffn and positions")
    return new


def _fits(new: torch.nn.Module, found: torch.nn.Module) -> bool:
    wanted, has = new.state_dict(), found.state_dict()
    return wanted.keys() <= has.keys() and all(has[name].shape == tensor.shape for name, tensor in wanted.items())


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
        # A row is a token longer than the model reads, for it has to tell the last one too.
        rows: Rows = Stretches(material.text, tokens=length + 1, seed=seed)
        count = tokens // length
        return Portions(rows, material.tokenizer, tokens=count * (length + 1), pairs=False, bare=True)
    kind = config.objective.pairs
    if kind == "none":
        rows = Stretches(material.text, tokens=length - 2, seed=seed)
    else:
        rows = Pairs(material.text, tokens=length - 3, seed=seed, kind=kind, short=config.objective.short_pairs)
    return Portions(rows, material.tokenizer, tokens=tokens, pairs=kind != "none")


def half_type(config: Config, device: torch.device) -> torch.dtype | None:
    """What matrix products are computed in; None: float32, as weights always are."""
    precision = config.run.precision
    if precision == "auto":
        return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else None
    return torch.bfloat16 if precision == "bf16" else None
