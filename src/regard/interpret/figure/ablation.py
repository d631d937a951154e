"""Component ablation: the effect of removing the mask, the positions, the scaling or the residuals of a model.

Components are removed by forward hooks while a block runs. Losses are means of -ln p, in nats, over the text and over a
few built-in sentences.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from regard.errors import InputError, check_choice
from regard.interpret.figure.figure_model import FigureInput, FigureModel
from regard.interpret.hooks import Hook, forward_hooks
from regard.nn.attention import Attention, attention_weights
from regard.nn.block import Residual
from regard.nn.embedding import TextEmbedding
from regard.nn.kernels import repeat_heads
from regard.nn.masks import Context, Padded, attention_mask

COMPONENTS = ("mask", "positions", "scaling", "residual")
NUM_BEST = 3  # likeliest tokens of each prediction
LossCache: TypeAlias = dict[tuple[str, ...], float | None]  # removed components -> loss over the built-in sentences
ENGLISH = (
    "The old man walked to the house by the river.",
    "She opened the window because it was warm.",
    "The children went to school in the morning.",
    "He wrote a letter to his brother.",
    "The king and the queen lived in a castle.",
)
# The same in three languages; each pair of languages serves translators in both directions.
PAIRS: dict[str, tuple[str, ...]] = {
    "en": (
        "The dog sleeps in the garden.",
        "I would like to go home now.",
        "Where is the nearest station?",
        "My sister has bought a new car.",
        "We have known each other for many years.",
    ),
    "de": (
        "Der Hund schläft im Garten.",
        "Ich möchte jetzt nach Hause gehen.",
        "Wo ist der nächste Bahnhof?",
        "Meine Schwester hat ein neues Auto gekauft.",
        "Wir kennen uns seit vielen Jahren.",
    ),
    "fr": (
        "Le chien dort dans le jardin.",
        "Je voudrais rentrer à la maison maintenant.",
        "Où est la gare la plus proche ?",
        "Ma sœur a acheté une nouvelle voiture.",
        "Nous nous connaissons depuis de nombreuses années.",
    ),
}
LANGUAGES = re.compile(rf"(?:^|[^a-z])({'|'.join(PAIRS)})-({'|'.join(PAIRS)})(?:[^a-z][^/]*)?/?$")


@dataclass(frozen=True)
class TokenPrediction:
    """One predicted position: the right token (None at a blank), its probability, and the likeliest tokens."""

    token: str | None
    probability: float | None
    best: list[tuple[str, float]]


@dataclass(frozen=True)
class AblationOutcome:
    """With some components removed: the losses of the text and of the built-in sentences, and the model's output."""

    without: list[str]
    loss: float | None
    sentences_loss: float | None
    output: str
    predictions: list[TokenPrediction]


@dataclass(frozen=True)
class ComponentAblation:
    """The intact model first, then components removed alone, then all that are removed together, if several."""

    measure: str
    outcomes: list[AblationOutcome]
    sentences: list[tuple[str, str | None]]
    remarks: list[str]

    def find(self, without: Collection[str]) -> AblationOutcome:
        return next(outcome for outcome in self.outcomes if set(outcome.without) == set(without))


def built_in_sentences(name: str, *, translates: bool) -> list[tuple[str, str | None]]:
    """Texts, each with its translation if the model translates.

    The languages of a translator are part of its name, such as regard-de-en; other names have no sentences.
    """
    if not translates:
        return [(text, None) for text in ENGLISH]
    languages = LANGUAGES.search(name)
    return [] if languages is None else list(zip(PAIRS[languages[1]], PAIRS[languages[2]], strict=True))


def check_components(names: Collection[str]) -> tuple[str, ...]:
    """The components in the order of COMPONENTS, each once; InputError for an unknown name."""
    for name in sorted(names):
        check_choice("component", name, COMPONENTS)
    return tuple(name for name in COMPONENTS if name in names)


def missing_components(model: nn.Module) -> dict[str, str]:
    """The components that this model does not have, each with the reason."""
    attentions = [module for module in model.modules() if isinstance(module, Attention)]
    embeddings = [module for module in model.modules() if isinstance(module, TextEmbedding)]
    missing = {}
    if not any(attention.causal for attention in attentions):
        missing["mask"] = "an encoder has no causal mask: every token attends to every other"
    if all(embedding.positions is None for embedding in embeddings):
        missing["positions"] = "this model adds no positions to its embeddings"
    if all(attention.scale == 1.0 for attention in attentions):
        missing["scaling"] = "this model does not scale its scores"
    return missing


@contextmanager
def without_components(model: nn.Module, components: Collection[str]) -> Iterator[None]:
    """Run the model without some of its components, in this thread, while the block runs.

    `mask`: decoders see the future. `positions`: zeros are added for them. `scaling`: scores are not divided by the
    square root of the head's width. `residual`: the input of a sublayer is not added to its output.
    Batches must be padded, and decoding must not use a cache.
    """
    missing = missing_components(model)
    for name in check_components(components):
        if name in missing:
            raise InputError(f"cannot remove {name!r}: {missing[name]}")
    hooks = [(module, hook) for module in model.modules() if (hook := _hook(module, components)) is not None]
    if "positions" in components:
        positions = [module.positions for module in model.modules() if isinstance(module, TextEmbedding)]
        hooks += [(one, _zeros) for one in positions if one is not None]
    with forward_hooks(hooks):
        yield


def _zeros(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor) -> Tensor:
    return torch.zeros_like(result)


def _hook(module: nn.Module, components: Collection[str]) -> Hook | None:
    if isinstance(module, Residual) and "residual" in components:
        return _sublayer_alone
    if isinstance(module, Attention):
        unmasked, unscaled = "mask" in components and module.causal, "scaling" in components
        if unmasked or unscaled:
            return lambda module, args, kwargs, result: _attention(
                module, args, kwargs, causal=module.causal and not unmasked, scaled=not unscaled
            )
    return None


def _sublayer_alone(module: Residual, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor) -> Tensor:
    """norm(branch(x)), or branch(norm(x)) in a pre-norm model, after the branch's own norm if it has one."""
    x, branch, *rest = args
    output: Tensor = branch(module.norm(x) if module.first else x, *rest, **kwargs)
    output = output if module.post_norm is None else module.post_norm(output)
    return output if module.first else module.norm(output).to(output.dtype)


def _attention(
    module: Attention, args: tuple[Any, ...], kwargs: dict[str, Any], *, causal: bool, scaled: bool
) -> Tensor:
    x, context = args[0], Context.of(args[1])
    memory = context.memory
    keys = context.layout if memory is None else (context.memory_layout or Padded())
    if not isinstance(keys, Padded) or context.cache is not None:
        raise ValueError("without a mask or scaling, a model needs a padded batch and no cache")
    query, key, value = (part.transpose(1, 2) for part in module.heads_of(x, context))
    key, value = repeat_heads(key, module.heads), repeat_heads(value, module.heads)
    mask = attention_mask(keys, query, query.shape[2], key.shape[2], causal=causal, window=module.window)
    scale = module.score_scale(query) if scaled else 1.0
    weights = attention_weights(query, key, scale=scale, score=module.score, bias=context.bias, mask=mask)
    mixed = (weights.to(value.dtype) @ value).transpose(1, 2).flatten(-2)
    result: Tensor = module.output(context.select(mixed))
    return result


def ablate_components(
    figure_model: FigureModel,
    inputs: FigureInput,
    without: Sequence[str],
    *,
    sentences: Sequence[tuple[str, str | None]],
    max_tokens: int,
    losses: LossCache,
    each: bool = True,
) -> ComponentAblation:
    """Remove each component alone, and those in `without` together; over the text and over the built-in sentences.

    Without `each`, only those in `without` are removed. `losses` holds those over the built-in sentences that were
    measured before, and receives the new ones.
    """
    missing = missing_components(figure_model.model)
    alone: list[tuple[str, ...]] = [(name,) for name in COMPONENTS if each and name not in missing]
    removals = list(dict.fromkeys([(), *alone, tuple(without)]))
    for removed in removals:
        if removed not in losses:
            others = [figure_model.read(text, target, max_tokens=max_tokens) for text, target in sentences]
            losses[removed] = _mean_loss(figure_model, others, removed)
    outcomes = [_outcome(figure_model, inputs, removed, losses[removed]) for removed in removals]
    return ComponentAblation(figure_model.measure, outcomes, list(sentences), _remarks(outcomes, len(sentences)))


def _mean_loss(figure_model: FigureModel, inputs: Sequence[FigureInput], removed: tuple[str, ...]) -> float | None:
    with without_components(figure_model.model, removed):
        losses = [loss for one in inputs if (loss := _loss(*figure_model.predict(one))) is not None]
    return sum(losses) / len(losses) if losses else None


def _outcome(
    figure_model: FigureModel, inputs: FigureInput, removed: tuple[str, ...], sentences_loss: float | None
) -> AblationOutcome:
    with without_components(figure_model.model, removed):
        logits, targets = figure_model.predict(inputs)
        output = figure_model.generate(inputs, logits)
    probabilities = logits.float().softmax(-1)
    best = probabilities.topk(min(NUM_BEST, probabilities.shape[-1]))
    predictions = []
    for row, target in enumerate(targets):
        pairs = zip(best.indices[row].tolist(), best.values[row].tolist(), strict=True)
        predictions.append(
            TokenPrediction(
                None if target is None else figure_model.token_text(target),
                None if target is None else float(probabilities[row, target]),
                [(figure_model.token_text(token), probability) for token, probability in pairs],
            )
        )
    return AblationOutcome(list(removed), _loss(logits, targets), sentences_loss, output, predictions)


def _loss(logits: Tensor, targets: Sequence[int | None]) -> float | None:
    """The mean over the positions whose right token is known; None if there are none."""
    known = [(row, token) for row, token in enumerate(targets) if token is not None]
    if not known:
        return None
    rows, tokens = (torch.tensor(column, device=logits.device) for column in zip(*known, strict=True))
    return float(-logits.double().log_softmax(-1)[rows, tokens].mean())


def _remarks(outcomes: Sequence[AblationOutcome], num_sentences: int) -> list[str]:
    """How to read the loss of a model without its mask, which sees the tokens that it should predict."""
    intact = outcomes[0]
    unmasked = next((outcome for outcome in outcomes if outcome.without == ["mask"]), None)
    if unmasked is None:
        return []
    built_in = f"over the {num_sentences} built-in sentence{'s' if num_sentences > 1 else ''}"
    losses = [
        ("for this text", intact.loss, unmasked.loss),
        (built_in, intact.sentences_loss, unmasked.sentences_loss),
    ]
    lower: list[str] = []
    higher: list[str] = []
    for name, before, after in losses:
        if before is not None and after is not None:
            (lower if after < before else higher).append(f"{name} (from {before:.2f} to {after:.2f})")
    if not lower and not higher:
        return []
    sentences = [
        "Without the mask, every position but the last sees the token that it should predict: the loss does not "
        "measure prediction."
    ]
    if lower:
        sentences.append(f"It falls {' and '.join(lower)}: this is a leak, not an improvement.")
    if higher and lower:
        sentences.append(
            f"It does not fall {higher[0]}: trained with the mask, the model makes little use of later tokens."
        )
    elif higher:
        sentences.append(
            f"It does not even fall {' or '.join(higher)}: the model was trained with the mask and has not learned to "
            "use later tokens."
        )
    return [" ".join(sentences)]
