"""One input, one model, and the outputs of the model that an analysis studies.

A BERT predicts the tokens of its blanks, a GPT the next token, a fine-tuned model its labels. With `at`, a pretrained
model also predicts every token: a BERT with each token masked in turn ("masked") or left in place ("plain"), a GPT what
follows each token ("plain"). A probe runs on the text as it is, on other token embeddings, or on a subset of the
tokens, always in float32.

B copies, T tokens, P targets, O outputs per target, W width.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.checkpoints.loaded_model import LoadedModel
from regard.data.examples import Example
from regard.engine.batches import check_finite
from regard.errors import InputError, check_choice
from regard.inference.generation.text_generator import TextGenerator
from regard.inference.masked_lm import BLANK_PATTERN, MaskedLM, find_blanks
from regard.interpret.attention.maps import check_text, display_token
from regard.models.family import can, describe_model, family_name
from regard.nn.masks import Padded
from regard.nn.pooling import pool_padded
from regard.nn.recording import record
from regard.nn.training import evaluation_mode
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.tasks.inputs import InputBuilder
from regard.tasks.registry import TASKS
from regard.tasks.task import ProblemType, TaskInput
from regard.text import Tokenizer

MODES = ("auto", "blanks", "masked", "plain")
MAX_MASKED_TOKENS = 128  # tokens masked in turn: the cost grows with the square of their number


@dataclass(frozen=True)
class ProbedModel:
    """The model of a probe, as results name it; `labels` is empty if the outputs are the vocabulary."""

    name: str
    family: str
    task: str
    problem_type: ProblemType
    num_layers: int
    num_heads: int
    labels: tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Probe(ABC):
    """An input encoded for a model, with named targets (what is predicted) and outputs (the possible values).

    Attributes:
        task: "fill", "next", or the task of a fine-tuned model.
        read: Computes logits (B, P, O) from the last hidden states (B, T, W).
        positions: The token that each target stands for, if there is one; T stands for the token after the text.
        mask: If given, each position is masked in a row of its own, and `read` gets the states there, (B, P, W).
        ids: What the model reads, (T,).
        tokens: The tokens of the model's vocabulary, or the names of the patches of an image.
        token_texts: The tokens as text; white space is shown as signs.
        special: True for tokens that are not part of the text or the image.
        at: Where a pretrained model predicts: "blanks", "masked" or "plain".
        name: The name of the model, for the results.
    """

    task: str
    texts: tuple[str, ...]
    model: nn.Module
    encoder: Any
    ids: Tensor
    tokens: tuple[str, ...]
    token_texts: tuple[str, ...]
    special: tuple[bool, ...]
    targets: tuple[str, ...]
    outputs: tuple[str, ...]
    read: Callable[[Tensor], Tensor]
    problem_type: ProblemType = "single_label_classification"
    segments: Tensor | None = None
    positions: tuple[int, ...] = ()
    mask: int | None = None
    at: str = "blanks"
    name: str = ""

    @property
    def rows_per_copy(self) -> int:
        """Rows that the model reads for one copy of the text."""
        return 1 if self.mask is None else len(self.positions)

    @abstractmethod
    def token_embeddings(self) -> Tensor:
        """The embeddings of the tokens, without positions, (T, W)."""

    @abstractmethod
    def baseline(self, name: str | None) -> tuple[str, Tensor]:
        """The name and the embeddings (T, W) of the input without content, by default the first that there is."""

    def output_text(self, name: str) -> str:
        return name

    @property
    def num_layers(self) -> int:
        return int(self.encoder.config.num_hidden_layers)

    @property
    def num_heads(self) -> int:
        return int(self.encoder.config.num_attention_heads)

    @property
    def summary_position(self) -> int:
        """The token whose state stands for the whole text: the last of a GPT, the first of other models."""
        return len(self.ids) - 1 if can(self.encoder, "causal-lm") else 0

    @property
    def predicts_tokens(self) -> bool:
        """Whether the outputs are the vocabulary, not labels."""
        return self.task in ("fill", "next")

    def position_of(self, target: int, output: int) -> int:
        """The position of the token whose state gives an output of a target."""
        if self.positions:
            return self.positions[target] - (self.task == "next")
        is_token = self.task in TASKS and TASKS[self.task].softmax_over_tokens
        return output if is_token else self.summary_position

    def describe(self) -> ProbedModel:
        labels = () if self.predicts_tokens else self.outputs
        family = family_name(self.encoder)
        return ProbedModel(self.name, family, self.task, self.problem_type, self.num_layers, self.num_heads, labels)

    def attention(self) -> NDArray[np.float32]:
        """The attention maps of all layers and heads for the text, (L, H, T, T)."""
        with self.evaluation_mode(), record(self.encoder) as tape:
            self.logits()
            maps = torch.stack([layer[0] for layer in tape.attention("self")])
        return maps.float().cpu().numpy().astype(np.float32)

    def logits(self, inputs: Tensor | None = None, *, segments: Tensor | None = None) -> Tensor:
        """Logits (B, P, O) for ids (B, T) or token embeddings (B, T, W); by default for the text itself."""
        if inputs is None:
            logits = self.logits(self.ids[None], segments=segments)
            check_finite([logits])
            return logits
        if self.mask is not None:
            return self._masked_logits(inputs, self.mask)
        if self.segments is None:
            hidden = self.encoder(inputs, Padded())
        else:
            segments = self.segments.expand(inputs.shape[:2]) if segments is None else segments
            hidden = self.encoder(inputs, Padded(), segments)
        return self.read(hidden).float()

    def _masked_logits(self, ids: Tensor, mask: int) -> Tensor:
        if ids.is_floating_point():
            raise ValueError("a text whose tokens are masked in turn is read by its ids, not by embeddings")
        copies, positions = len(ids), torch.tensor(self.positions, device=ids.device)
        rows = ids.repeat_interleave(len(positions), 0)
        where = torch.arange(len(rows), device=ids.device), positions.repeat(copies)
        rows[where] = mask
        states = self.encoder(rows, Padded())[where]
        return self.read(states.view(copies, len(positions), -1)).float()

    def logits_of_subsets(self, keep: Tensor) -> Tensor:
        """Logits (B, P, O) of copies without some tokens; `keep` (B, T) has the same number of True in each row."""
        rows = self.ids.expand(keep.shape)[keep].view(len(keep), -1)
        segments = None if self.segments is None else self.segments.expand(keep.shape)[keep].view(len(keep), -1)
        return self.logits(rows, segments=segments)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Softmax or, for multi-label outputs, sigmoid in float64; regression values as they are."""
        match self.problem_type:
            case "single_label_classification":
                return logits.double().softmax(-1)
            case "multi_label_classification":
                return logits.double().sigmoid()
        return logits.double()

    def output_index(self, name: str) -> int:
        """The index of an output; InputError if there is none of this name."""
        if name not in self.outputs:
            check_choice("label", name, self.outputs)
        return self.outputs.index(name)

    @contextmanager
    def evaluation_mode(self, *, gradients: bool = False) -> Iterator[None]:
        """Evaluation mode without dropout, and without gradients unless requested."""
        with evaluation_mode(self.model), torch.inference_mode(not gradients), torch.set_grad_enabled(gradients):
            yield


@dataclass(frozen=True, eq=False, kw_only=True)
class TextProbe(Probe):
    """A text encoded for a model."""

    tokenizer: Tokenizer

    def token_embeddings(self) -> Tensor:
        embeddings: Tensor = self.encoder.embedding.tokens(self.ids)
        return embeddings

    def baseline(self, name: str | None) -> tuple[str, Tensor]:
        """[MASK] or [PAD] in place of every token that is not special, or zero embeddings for all tokens."""
        ids = {"mask": self.tokenizer.mask_token_id, "pad": self.tokenizer.pad_token_id}
        if name is None:
            name = "mask" if ids["mask"] is not None else "pad" if ids["pad"] is not None else "zero"
        check_choice("baseline", name, (*ids, "zero"))
        embeddings = self.token_embeddings().detach()
        if name == "zero":
            return name, torch.zeros_like(embeddings)
        if ids[name] is None:
            raise InputError(f"the baseline is {name}, and this model's tokenizer has no such token; use zero")
        token: Tensor = self.encoder.embedding.tokens.weight[ids[name]].detach()
        special = torch.tensor(self.special, device=embeddings.device)
        return name, torch.where(special[:, None], embeddings, token)

    def output_text(self, name: str) -> str:
        return display_token(self.tokenizer, self.tokenizer.id(name)).strip() if self.predicts_tokens else name

    def output_index(self, name: str) -> int:
        if name not in self.outputs and self.predicts_tokens:
            self.tokenizer.id(name)  # its error suggests similar tokens instead of listing them all
        return super().output_index(name)


def probe_model(loaded: LoadedModel, text: str, second: str | None = None, *, at: str = "blanks") -> TextProbe:
    """Probe a loaded model, fine-tuned or pretrained, with a text; see `task_probe` and `pretrained_probe`."""
    check_text(text)
    if loaded.fine_tuned is not None:
        probe = task_probe(loaded.fine_tuned, text, second, at=at)
    else:
        probe = pretrained_probe(loaded.model, loaded.tokenizer, text, second, at=at)
    return replace(probe, name=loaded.name)


def pretrained_probe(
    model: nn.Module, tokenizer: Tokenizer | None, text: str, second: str | None = None, *, at: str = "blanks"
) -> TextProbe:
    """Probe a pretrained model at the blanks (BERT) or the end (GPT) of a text, or at every token.

    "auto" is "masked" if the model and the length of the text allow it, else "plain".
    """
    check_choice("--at", at, MODES)
    if not (can(model, "text-encoder") or can(model, "causal-lm")):
        raise InputError(
            f"expected a BERT or a GPT, or what `regard train` made of one, and this is {describe_model(model)} model"
        )
    if second is not None:
        raise InputError(
            f"a second text is for a fine-tuned model that reads two, and this is a pretrained {family_name(model)} "
            "model; leave it out"
        )
    if at not in ("auto", *probe_modes(model)):
        raise InputError(f"{describe_model(model)} model has no masked tokens: 'masked' is for a BERT; use 'plain'")
    if can(model, "causal-lm"):
        return _next_token(model, tokenizer, text, "plain" if at == "auto" else at)
    if at != "auto":
        return _masked(model, tokenizer, text, at)
    plain = _masked(model, tokenizer, text, "plain")
    return plain if len(plain.positions) > MAX_MASKED_TOKENS else _masked(model, tokenizer, text, "masked")


def probe_modes(model: nn.Module) -> tuple[str, ...]:
    """Values of `at` that a pretrained model supports, the most informative first."""
    if can(model, "causal-lm"):
        return "plain", "blanks"
    return ("masked", "plain", "blanks") if can(model, "text-encoder") else ("blanks",)


def subsample_targets(probe: TextProbe, count: int) -> TextProbe:
    """The same probe with at most `count` evenly spaced targets, if each target costs a row of its own."""
    total = len(probe.targets)
    if probe.mask is None or total <= count:
        return probe
    indices = [index * total // count for index in range(count)]
    targets, positions = tuple(probe.targets[i] for i in indices), tuple(probe.positions[i] for i in indices)
    return replace(probe, targets=targets, positions=positions)


def _masked(model: Any, tokenizer: Tokenizer | None, text: str, at: str) -> TextProbe:
    masked = MaskedLM.from_model(
        model, tokenizer, purpose="filling in blanks" if at == "blanks" else "predicting every token"
    )
    names = masked.tokenizer
    if at == "blanks":
        marked = find_blanks(text, names, masked.mask_id)
        ids, positions = marked.ids, tuple(marked.positions)
        several = len(positions) > 1
        targets = [f"blank {number}" for number in range(1, len(positions) + 1)] if several else ["blank"]
    else:
        has_blank = re.search(f"{re.escape(names.token(masked.mask_id))}|{BLANK_PATTERN}", text)
        ids = find_blanks(text, names, masked.mask_id).ids if has_blank else names.encode(text).ids
        special = special_ids(names)
        positions = tuple(position for position, number in enumerate(ids) if number not in special)
        targets = [f"{position} {names.token(ids[position])}" for position in positions]
    _check_length(len(ids), masked.max_length)
    if not positions:
        raise InputError("the text is empty; expected some words")
    if at == "masked" and len(positions) > MAX_MASKED_TOKENS:
        raise InputError(
            f"the text has {len(positions)} tokens, and at most {MAX_MASKED_TOKENS} are masked in turn; "
            "shorten it, or use 'plain'"
        )
    return TextProbe(
        task="fill",
        texts=(text,),
        model=model,
        encoder=model,
        **_encoded(names, ids, masked.head.weight.device),
        targets=tuple(targets),
        outputs=_output_names(names, len(masked.head.weight)),
        read=masked.head if at == "masked" else lambda hidden: masked.head(hidden[:, list(positions)]),
        positions=positions,
        mask=masked.mask_id if at == "masked" else None,
        at=at,
    )


def _next_token(model: Any, tokenizer: Tokenizer | None, text: str, at: str) -> TextProbe:
    """What a GPT predicts after the text or, with "plain", after each token; the first token is never predicted."""
    generator = TextGenerator(model, tokenizer)
    prompt = generator.encode_prompt(text, max_new_tokens=1)
    _check_length(len(prompt.ids) + prompt.truncated, model.config.max_position_embeddings)
    every = [f"{n} {display_token(generator.tokenizer, prompt.ids[n]).strip()}" for n in range(1, len(prompt.ids))]
    plain = at == "plain"
    return TextProbe(
        task="next",
        texts=(text,),
        model=model,
        encoder=model,
        **_encoded(generator.tokenizer, prompt.ids, model.embedding.tokens.weight.device),
        targets=(*every, "next token") if plain else ("next token",),
        outputs=_output_names(generator.tokenizer, model.config.vocab_size),
        read=model.logits if plain else lambda hidden: model.logits(hidden[:, -1:]),
        positions=tuple(range(1, len(prompt.ids) + 1)) if plain else (len(prompt.ids),),
        at=at,
    )


def task_probe(fine_tuned: FineTunedModel, text: str, second: str | None = None, *, at: str = "blanks") -> TextProbe:
    """Probe a fine-tuned model.

    classify and tag take one text, regress one or two, pair two, answer a question and its context.
    """
    check_choice("--at", at, MODES)
    if at not in ("auto", "blanks"):
        raise InputError(f"a fine-tuned model predicts its labels, not every token; leave out 'at', which is {at}")
    task, model, name = fine_tuned.task, fine_tuned.model, fine_tuned.task.name
    if (
        not isinstance(model, EncoderWithHead)
        or not (can(model.encoder, "text-encoder") or can(model.encoder, "causal-lm"))
        or not task.single_sequence
    ):
        names = ", ".join(sorted(one.name for one in TASKS.values() if one.single_sequence))
        raise InputError(
            f"expected a fine-tuned BERT or GPT that does one of {names}; this is "
            f"{describe_model(model.encoder)} model for {name}"
        )
    if model.vectors is not None and model.vectors.num_texts == 2:
        raise InputError(
            "this model encodes the two texts of a pair separately and compares their vectors, and evidence is shown "
            "for models that read a pair as one sequence; train with --no-baseline and without --frozen"
        )
    rows, encoder, tokenizer = fine_tuned.input_builder, model.encoder, fine_tuned.tokenizer
    assert isinstance(rows, InputBuilder)
    assert tokenizer is not None
    example = task.example(text, second)
    item = _item(fine_tuned, rows, example)
    row = item.sequences[0]
    # Counted from the end, so that it is still the last token when tokens are removed.
    at_end = task.pooled and rows.causal and model.vectors is None and row.positions is not None
    read_at = [position - len(row) for position in row.positions or ()] if at_end else row.positions

    def read(hidden: Tensor) -> Tensor:
        if model.mean_pooled:
            mean: Tensor = model.head(hidden.mean(1, keepdim=True))
            return mean
        if model.vectors is not None:
            everything = hidden.new_ones((*hidden.shape[:2], 1), dtype=torch.bool)
            pooled: Tensor = model.head(pool_padded(hidden, everything, model.vectors.pooling)[:, None])[:, None]
            return pooled
        logits: Tensor = model.head(hidden if read_at is None else hidden[:, read_at])
        return logits.transpose(1, 2) if task.softmax_over_tokens else logits

    device = encoder.embedding.tokens.weight.device
    segments = torch.tensor(row.segments, device=device)
    return TextProbe(
        task=name,
        texts=(text,) if second is None else (text, second),
        model=model,
        encoder=encoder,
        **_encoded(tokenizer, row.ids, device),
        segments=segments if can(encoder, "text-encoder") and encoder.embedding.num_segments else None,
        targets=task.targets(example, item),
        outputs=tuple(map(tokenizer.token, row.ids)) if task.softmax_over_tokens else task.labels,
        problem_type=task.problem_type or "single_label_classification",
        read=read,
        positions=() if task.pooled else tuple(row.positions or ()),
    )


def _item(fine_tuned: FineTunedModel, rows: InputBuilder, example: Example) -> TaskInput:
    """The model input of a text; InputError if it takes more than one row or is truncated."""
    items: list[TaskInput] = fine_tuned.task.preprocess([example], rows)
    count = sum(len(item.sequences) for item in items)
    if count != 1:
        why = f"this one takes {count}; shorten it" if count else "this one has no words"
        raise InputError(f"expected a text that fits into one row of the model, and {why}")
    if cut := items[0].sequences[0].num_truncated:
        raise InputError(
            f"the text is {cut} tokens longer than the {fine_tuned.length} that this model reads; shorten it"
        )
    return items[0]


def _encoded(tokenizer: Tokenizer, ids: Sequence[int], device: torch.device) -> dict[str, Any]:
    """The fields of a probe that follow from the ids of its text."""
    special = special_ids(tokenizer)
    return {
        "tokenizer": tokenizer,
        "ids": torch.tensor(ids, device=device),
        "tokens": tuple(map(tokenizer.token, ids)),
        "token_texts": tuple(display_token(tokenizer, number) for number in ids),
        "special": tuple(number in special for number in ids),
    }


def special_ids(tokenizer: Tokenizer) -> set[int | None]:
    """The ids of the tokens that are not part of a text; [MASK] stands for a word."""
    return {
        tokenizer.cls_token_id,
        tokenizer.sep_token_id,
        tokenizer.bos_token_id,
        tokenizer.eos_token_id,
        tokenizer.pad_token_id,
    }


def _output_names(tokenizer: Tokenizer, count: int) -> tuple[str, ...]:
    """A name for each output; the output layer may be wider than the vocabulary."""
    tokens = {number: token for token, number in tokenizer.vocabulary.items()}
    return tuple(tokens.get(number, f"#{number}") for number in range(count))


def _check_length(tokens: int, limit: int) -> None:
    if tokens > limit:
        raise InputError(f"the text has {tokens} tokens, and this model reads {limit}; shorten it by {tokens - limit}")
