"""The models that Figure 1 can show: what each reads for a text, its forward pass and the predictions of its loss."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from regard.checkpoints.loaded_model import require_tokenizer
from regard.errors import InputError
from regard.files.json_files import read_json
from regard.inference.causal_lm import opening_ids
from regard.inference.masked_lm import BLANK_PATTERN, MaskedLM
from regard.inference.translation.subwords import Subwords
from regard.interpret.attention.maps import display_token
from regard.interpret.attention.recording import TextTokenizer
from regard.interpret.attribution.probe import special_ids
from regard.known import DEFAULT_MODEL, builtin_folder, builtin_names
from regard.models.family import can, describe_model, family_name
from regard.nn.attention import Attention
from regard.nn.block import Block, FeedForward, Residual
from regard.nn.embedding import TextEmbedding
from regard.nn.masks import Padded
from regard.nn.stack import Stack
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
        special = special_ids(self.masked_lm.tokenizer)
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
        self.opening = opening_ids(model, self.tokenizer)

    def read(self, text: str, target: str | None = None, *, max_tokens: int) -> FigureInput:
        if target is not None:
            raise InputError("this model continues one text and has no target; leave the target out")
        all_ids = [*self.opening, *self.tokenizer.encode(text, add_special_tokens=False).ids]
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


def _difference_from_figure_1(model: nn.Module) -> str | None:
    """What a model computes that the boxes of Figure 1 do not show, or None."""
    for module in model.modules():
        if isinstance(module, TextEmbedding) and module.project is not None:
            return "a linear layer follows its embeddings"
        if isinstance(module, Stack) and module.relative is not None:
            return "a relative position bias is added to its attention scores"
        if isinstance(module, Stack) and len(set(module.layers)) < len(module.layers):
            return "its layers share their weights"
        if isinstance(module, Stack) and any(type(layer) is not Block for layer in module.layers):
            return "its layers compute attention and feed-forward network side by side"
        if isinstance(module, Attention) and (module.positions is not None or module.window is not None):
            return "its attention has rotary positions or a window"
        if isinstance(module, Attention) and module.score is not None:
            return "its attention scores are not products of queries and keys alone"
        if isinstance(module, Attention) and module.query_norm is not None:
            return "its attention has norms of queries and keys"
        if isinstance(module, Attention) and getattr(module.project, "bias", True) is None:
            return "its attention has no biases"
        if isinstance(module, FeedForward) and module.gated:
            return "its feed-forward layers are gated"
        if isinstance(module, Residual) and not isinstance(module.norm, nn.LayerNorm):
            return "its norms are not layer norms"
    return None


def figure_model_of(model: nn.Module, tokenizer: TextTokenizer) -> FigureModel:
    """The model with its tokenizer; InputError if Figure 1 cannot show it."""
    if can(model, "recurrent") and isinstance(tokenizer, Subwords):
        raise InputError(f"this {family_name(model)} model has no Transformer layers, so it has no Figure 1")
    if difference := _difference_from_figure_1(model):
        raise InputError(
            f"Figure 1 is the Transformer of 2017, and {describe_model(model)} differs from it: {difference}. Choose a "
            "BERT, a DistilBERT, a RoBERTa, a GPT-2 or a translator; `regard look` shows the attention of this one"
        )
    if isinstance(tokenizer, Subwords):
        return EncoderDecoderFigureModel(model, tokenizer)
    if can(model, "causal-lm"):
        return DecoderFigureModel(model, tokenizer)
    if can(model, "text-encoder"):
        return EncoderFigureModel(model, tokenizer)
    description = describe_model(model)
    raise InputError(f"Figure 1 shows a BERT, a GPT or a translator that is a Transformer; this is {description}")


def default_figure_model() -> str:
    """A built-in translator that is a Transformer, which has both halves of the figure: one whose norms follow the
    sublayers, as in the paper, if there is one."""
    folders = {name: builtin_folder(name) for name in builtin_names()}
    translators = {name: folder for name, folder in folders.items() if (folder / "translate.json").is_file()}
    configs = {name: read_json(folder / "config.json") for name, folder in translators.items()}
    transformers = [name for name, config in configs.items() if "norm_first" in config]
    return min(transformers, key=lambda name: bool(configs[name]["norm_first"]), default=DEFAULT_MODEL)
