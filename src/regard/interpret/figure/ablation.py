"""Component ablation: the effect of removing the mask, the positions, the scaling or the residuals of a model.

Components are removed by forward hooks while a block runs. Losses are means of -ln p, in nats, over the text and over a
few built-in sentences.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from regard.checkpoints.loaded_model import require_tokenizer
from regard.errors import InputError, check_choice
from regard.inference.masked_lm import BLANK_PATTERN, MaskedLM
from regard.inference.translation.subwords import Subwords
from regard.interpret.attention.maps import display_token
from regard.interpret.attention.recording import TextTokenizer
from regard.models.family import can, describe_model, family_name
from regard.nn.attention import Attention, attention_weights
from regard.nn.block import Residual
from regard.nn.embedding import TextEmbedding
from regard.nn.masks import Context, Padded, attention_mask, select_rows
from regard.text import Tokenizer

NUM_CONTINUED = 8  # tokens that a decoder appends to a text
MIN_TOKENS = 2  # of a text
Predictions: TypeAlias = tuple[Tensor, list[int | None]]  # logits (N, V), and the right tokens where they are known


@dataclass(frozen=True)
class FigureInput:
    """The ids of the encoder and of the decoder, empty if the model has none, and the decoder's `target_ids`.

    `truncated` tokens did not fit.
    """

    source_ids: tuple[int, ...]
    decoder_ids: tuple[int, ...]
    target_ids: tuple[int, ...] | None
    target: str | None = None
    truncated: int = 0


class FigureModel(ABC):
    """A model with the tokenizer of each half of the figure that it has."""

    measure: str

    def __init__(self, model: Any, tokenizers: dict[str, Tokenizer]) -> None:
        self.model, self.tokenizers = model, tokenizers

    @abstractmethod
    def read(self, text: str, target: str | None = None, *, max_tokens: int) -> FigureInput: ...

    @abstractmethod
    def run(self, inputs: FigureInput) -> Tensor:
        """The logits (T, V) of the forward pass that the figure shows."""

    @abstractmethod
    def predict(self, inputs: FigureInput) -> Predictions:
        """The predictions over which the loss is measured."""

    @abstractmethod
    def generate(self, inputs: FigureInput, logits: Tensor) -> str:
        """The model's own greedy output; `logits` are those of `predict`."""

    def tokens(self, inputs: FigureInput, part: str) -> list[str]:
        ids = inputs.source_ids if part == "encoder" else inputs.decoder_ids
        return [display_token(self.tokenizers[part], token_id) for token_id in ids]

    def token_text(self, token_id: int) -> str:
        """An output token as text."""
        return display_token(list(self.tokenizers.values())[-1], token_id)

    def tensor(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor([list(ids)], device=next(self.model.parameters()).device)


class EncoderFigureModel(FigureModel):
    """A masked language model: every token is masked in turn and predicted."""

    measure = "mean of -ln p over the tokens of the text, each masked in turn and predicted from all others"

    def __init__(self, model: nn.Module, tokenizer: Tokenizer | None) -> None:
        self.masked_lm = MaskedLM.from_model(model, tokenizer, purpose="Figure 1 of an encoder")
        super().__init__(self.masked_lm.model, {"encoder": self.masked_lm.tokenizer})

    def read(self, text: str, target: str | None = None, *, max_tokens: int) -> FigureInput:
        if target is not None:
            raise InputError("this model reads one text and generates none; leave the target out")
        tokenizer, mask = self.masked_lm.tokenizer, self.masked_lm.mask_id
        encoding = tokenizer.encode(re.sub(BLANK_PATTERN, lambda _: tokenizer.token(mask), text), max_length=max_tokens)
        return FigureInput(tuple(encoding.ids), (), None, truncated=encoding.num_truncated)

    def run(self, inputs: FigureInput) -> Tensor:
        result: Tensor = self.masked_lm.head(self.model(self.tensor(inputs.source_ids), Padded()))[0]
        return result

    def predict(self, inputs: FigureInput) -> Predictions:
        positions, mask = self._positions(inputs), self.masked_lm.mask_id
        rows = self.tensor(inputs.source_ids).repeat(len(positions), 1)
        diagonal = torch.arange(len(positions), device=rows.device), torch.tensor(positions, device=rows.device)
        rows[diagonal] = mask
        hidden = self.model(rows, Padded())
        targets = [inputs.source_ids[position] for position in positions]
        return self.masked_lm.head(hidden[diagonal]), [None if one == mask else one for one in targets]

    def generate(self, inputs: FigureInput, logits: Tensor) -> str:
        ids, best = list(inputs.source_ids), logits.argmax(-1).tolist()
        for position, token_id in zip(self._positions(inputs), best, strict=True):
            ids[position] = token_id
        return self.masked_lm.tokenizer.decode(ids).strip()

    def _positions(self, inputs: FigureInput) -> list[int]:
        tokenizer = self.masked_lm.tokenizer
        special = {
            tokenizer.cls_token_id,
            tokenizer.sep_token_id,
            tokenizer.bos_token_id,
            tokenizer.eos_token_id,
            tokenizer.pad_token_id,
        } - {None}
        positions = [position for position, token_id in enumerate(inputs.source_ids) if token_id not in special]
        if not positions:
            raise InputError("the text has no token that could be predicted; expected at least a word")
        return positions


class DecoderFigureModel(FigureModel):
    """A causal language model: every token is predicted from those before it."""

    measure = "mean of -ln p over the tokens of the text, each predicted from those before it"

    def __init__(self, model: Any, tokenizer: Tokenizer | None) -> None:
        self.tokenizer = require_tokenizer(model, tokenizer)
        super().__init__(model, {"decoder": self.tokenizer})
        known = (model.config.bos_token_id, self.tokenizer.bos_token_id)
        self.begin = [one for one in known if one is not None and one < model.config.vocab_size][:1]

    def read(self, text: str, target: str | None = None, *, max_tokens: int) -> FigureInput:
        if target is not None:
            raise InputError("this model continues one text and has no target; leave the target out")
        all_ids = [*self.begin, *self.tokenizer.encode(text, add_special_tokens=False).ids]
        ids = tuple(all_ids[:max_tokens])
        if len(ids) < MIN_TOKENS:
            raise InputError(f"the text is {len(ids)} token; expected at least {MIN_TOKENS}, so that one is predicted")
        return FigureInput((), ids, ids[1:], truncated=len(all_ids) - len(ids))

    def run(self, inputs: FigureInput) -> Tensor:
        logits: Tensor = self.model.logits(self.model(self.tensor(inputs.decoder_ids), Padded()))[0]
        return logits

    def predict(self, inputs: FigureInput) -> Predictions:
        return self.run(inputs)[:-1], list(inputs.decoder_ids[1:])

    def generate(self, inputs: FigureInput, logits: Tensor) -> str:
        ids = list(inputs.decoder_ids)
        for _ in range(min(NUM_CONTINUED, self.model.config.max_position_embeddings - len(ids))):
            ids.append(int(self.model.logits(self.model(self.tensor(ids), Padded())[0, -1]).argmax()))
        return self.tokenizer.decode(ids).strip()


class EncoderDecoderFigureModel(FigureModel):
    """A translator: every token of the translation is predicted from the source and those before it."""

    measure = "mean of -ln p over the tokens of the translation, each predicted from the source and those before it"

    def __init__(self, model: Any, subwords: Subwords) -> None:
        super().__init__(model, {"encoder": subwords.source, "decoder": subwords.target})
        self.subwords = subwords

    def read(self, text: str, target: str | None = None, *, max_tokens: int) -> FigureInput:
        source, truncated = self._truncate(self.subwords.encode_sources([text])[0], max_tokens)
        if target is None:
            target_ids = [*self._greedy(source, max_tokens - 1), self.subwords.end]
        else:
            target_ids, more = self._truncate(self.subwords.encode_targets([target])[0], max_tokens)
            truncated += more
        decoder_ids = (self.model.begin, *target_ids[:-1])
        target = self.subwords.decode(target_ids[:-1])
        return FigureInput(tuple(source), decoder_ids, tuple(target_ids), target, truncated)

    def run(self, inputs: FigureInput) -> Tensor:
        hidden = self.model(self.tensor(inputs.source_ids), self.tensor(inputs.decoder_ids))
        logits: Tensor = self.model.logits(hidden)[0]
        return logits

    def predict(self, inputs: FigureInput) -> Predictions:
        return self.run(inputs), list(inputs.target_ids or ())

    def generate(self, inputs: FigureInput, logits: Tensor) -> str:
        return self.subwords.decode(self._greedy(inputs.source_ids, 2 * len(inputs.source_ids) + 10))

    def _truncate(self, ids: Sequence[int], max_tokens: int) -> tuple[list[int], int]:
        excess = max(0, len(ids) - max_tokens)
        return ([*ids[: max_tokens - 1], self.subwords.end] if excess else list(ids)), excess

    def _greedy(self, source: Sequence[int], max_new_tokens: int) -> list[int]:
        """Without a cache: a decoder that sees the future must read all tokens again at every step."""
        memory = self.model.encode(self.tensor(source))
        ids = [self.model.begin]
        for _ in range(max(1, max_new_tokens)):
            hidden = self.model.decode(self.tensor(ids), memory)
            ids.append(int(self.model.logits(hidden[0, -1]).argmax()))
            if ids[-1] == self.subwords.end:
                return ids[1:-1]
        return ids[1:]


def figure_model_of(model: nn.Module, tokenizer: TextTokenizer) -> FigureModel:
    """The model with its tokenizer; InputError if Figure 1 cannot show it."""
    if isinstance(tokenizer, Subwords):
        if can(model, "recurrent"):
            raise InputError(f"this {family_name(model)} model has no Transformer layers, so it has no Figure 1")
        return EncoderDecoderFigureModel(model, tokenizer)
    if can(model, "causal-lm"):
        return DecoderFigureModel(model, tokenizer)
    if can(model, "text-encoder"):
        return EncoderFigureModel(model, tokenizer)
    description = describe_model(model)
    raise InputError(f"Figure 1 shows a BERT, a GPT or a translator that is a Transformer; this is {description}")


COMPONENTS = ("mask", "positions", "scaling", "residual")
NUM_BEST = 3  # likeliest tokens of each prediction
LossCache: TypeAlias = dict[tuple[str, ...], float | None]  # removed components -> loss over the built-in sentences
Hook = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], Any]
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
LANGUAGES = re.compile(rf"(?:^|[^a-z])({'|'.join(PAIRS)})-({'|'.join(PAIRS)})/?$")


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
    """The intact model first, then each component removed alone, then all that are removed together, if several."""

    measure: str
    outcomes: list[AblationOutcome]
    sentences: list[tuple[str, str | None]]
    remarks: list[str]

    def find(self, without: Collection[str]) -> AblationOutcome:
        return next(outcome for outcome in self.outcomes if set(outcome.without) == set(without))


def built_in_sentences(name: str, *, translates: bool) -> list[tuple[str, str | None]]:
    """Texts, each with its translation if the model translates.

    The languages of a translator are the end of its name, such as regard-de-en; other names have no sentences.
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
    own_thread = threading.get_ident()

    def in_this_thread(hook: Hook) -> Hook:
        """Hooks are shared by all threads."""

        def guarded(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
            return hook(module, args, kwargs, result) if threading.get_ident() == own_thread else None

        return guarded

    with ExitStack() as hooks:
        for module in model.modules():
            hook = _hook(module, components)
            if hook is not None:
                hooks.callback(module.register_forward_hook(in_this_thread(hook), with_kwargs=True).remove)
            if "positions" in components and isinstance(module, TextEmbedding) and module.positions is not None:
                zeros = in_this_thread(lambda module, args, kwargs, result: torch.zeros_like(result))
                hooks.callback(module.positions.register_forward_hook(zeros, with_kwargs=True).remove)
        yield


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
    """norm(branch(x)), or branch(norm(x)) in a pre-norm model."""
    x, branch, *rest = args
    output: Tensor = branch(module.norm(x) if module.first else x, *rest, **kwargs)
    return output if module.first else module.norm(output).to(output.dtype)


def _attention(
    module: Attention, args: tuple[Any, ...], kwargs: dict[str, Any], *, causal: bool, scaled: bool
) -> Tensor:
    x, context = args[0], Context.of(args[1])
    memory = context.memory
    keys = context.layout if memory is None else (context.memory_layout or Padded())
    if not isinstance(keys, Padded) or context.cache is not None:
        raise ValueError("without a mask or scaling, a model needs a padded batch and no cache")
    query, key, value = (
        one.unflatten(-1, (module.heads, -1)).transpose(1, 2)
        for one in module.project(x, x if memory is None else memory)
    )
    mask = attention_mask(keys, query, query.shape[2], key.shape[2], causal=causal)
    scale = module.score_scale(query) if scaled else 1.0
    weights = attention_weights(query, key, scale=scale, score=module.score, bias=context.bias, mask=mask)
    mixed = (weights.to(value.dtype) @ value).transpose(1, 2).flatten(-2)
    result: Tensor = module.output(mixed if context.rows is None else select_rows(mixed, context.rows))
    return result


def ablate_components(
    figure_model: FigureModel,
    inputs: FigureInput,
    without: Sequence[str],
    *,
    sentences: Sequence[tuple[str, str | None]],
    max_tokens: int,
    loss_cache: LossCache | None = None,
) -> ComponentAblation:
    """Remove each component alone, and those in `without` together; over the text and over the built-in sentences.

    `loss_cache` holds losses over the built-in sentences that were measured before, and receives the new ones.
    """
    missing = missing_components(figure_model.model)
    removals: list[tuple[str, ...]] = [(), *((name,) for name in COMPONENTS if name not in missing)]
    if len(without) > 1:
        removals.append(tuple(without))
    losses = {} if loss_cache is None else loss_cache
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
