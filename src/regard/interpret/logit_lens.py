"""The logit lens: what each layer of a language model would predict if it were the last one.

The hidden state of every layer goes through the model's own final norm and output head (nostalgebraist, 2020,
"interpreting GPT: the logit lens"). The last layer is the model's own prediction. A causal model predicts the token
after each position, a masked model the token at each position.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import takewhile
from typing import Any, ClassVar, Literal

import torch
from pydantic import BaseModel, Field
from torch import Tensor, nn

from regard.checkpoints.loaded_model import LoadedModel, require_tokenizer
from regard.errors import InputError
from regard.escaping import escape_controls
from regard.inference.causal_lm import begin_token
from regard.inference.masked_lm import BLANK_PATTERN
from regard.interpret.attention.maps import check_text, display_token
from regard.interpret.residual_stream import last_stack
from regard.models.family import can, describe_model, family_name
from regard.nn.masks import Padded
from regard.nn.training import evaluation_mode
from regard.render.result import Result, Table, round_floats
from regard.render.terminal import padded, probability_table
from regard.text import Encoding, Tokenizer

MAX_TOKENS = 256  # of a table that one can still read
ROWS = 64  # positions whose logits are computed at a time
LISTED = 40  # positions that the terminal lists


class LensCandidate(BaseModel):
    """A token with the probability that a layer gives it."""

    token: str
    id: int
    probability: float


class LensPrediction(BaseModel):
    """What one layer predicts at one position: the likeliest candidates, and the final answer's rank, from 1, and
    probability. The final answer is the likeliest token of the last layer."""

    candidates: list[LensCandidate]
    rank: int
    probability: float


class LensLayer(BaseModel):
    """The predictions of one layer at every position; layer 0 is the output of the embeddings."""

    layer: int
    predictions: list[LensPrediction]


class LogitLens(Result):
    """What each layer would predict at each position.

    `tokens` are what the model read, `special` marks those that the tokenizer added. `predicts` is "next" for a causal
    model, whose prediction at a position is the token after it, and "same" for a masked model. `position` is the one
    that the text shows in full, and where the page opens.
    """

    page_view: ClassVar[str | None] = "lens"

    model: str = ""
    family: str
    text: str
    predicts: Literal["next", "same"]
    tokens: list[str]
    special: list[bool]
    layers: list[LensLayer]
    position: int
    truncated: int = 0
    notes: list[str] = Field(default_factory=list)

    def answer(self, position: int) -> LensCandidate:
        """The model's own prediction at a position."""
        return self.layers[-1].predictions[position].candidates[0]

    def decided(self, position: int) -> int:
        """The first layer from which on every layer has the final answer as its likeliest token."""
        ranks = [layer.predictions[position].rank for layer in reversed(self.layers)]
        return len(self.layers) - len(list(takewhile(lambda rank: rank == 1, ranks)))

    def to_text(self) -> str:
        what = "the token after each position" if self.predicts == "next" else "the token at each position"
        name_heading, *names = padded(["token", *self.tokens])
        answers = [self.answer(position).token for position in range(len(names))]
        answer_heading, *answers = padded(["final answer", *answers])
        lines = [f"{self.model or self.family} predicts {what}; layer: the first that settles on the final answer", ""]
        lines.append(f"  {'':>4}  {name_heading}  {answer_heading}  probability  layer")
        first = max(0, min(self.position - LISTED // 2, len(names) - LISTED))
        for position in range(first, min(len(names), first + LISTED)):
            mark = ">" if position == self.position else " "
            probability = self.answer(position).probability
            row = f"{mark} {position:>4}  {names[position]}  {answers[position]}"
            lines.append(f"{row}  {probability:11.1%}  {self.decided(position):5}")
        if len(names) > LISTED:
            lines.append(f"  {len(names) - LISTED:,} other positions are in --json, --output and --position")
        token = escape_controls(self.tokens[self.position])
        lines += ["", f"position {self.position}, {token!r}: what each layer would predict"]
        for layer in self.layers:
            found = layer.predictions[self.position]
            name = "layer 0 (embeddings)" if layer.layer == 0 else f"layer {layer.layer}"
            lines.append(f"\n{name}: the final answer has rank {found.rank:,} and {found.probability:.3%}")
            lines += probability_table([(one.token, one.probability) for one in found.candidates])
        return "\n".join(lines)

    def to_table(self) -> Table:
        """One row for each layer and position, with the likeliest token."""
        headers = ["layer", "position", "token", "prediction", "probability", "answer", "answer_rank"]
        return [*headers, "answer_probability"], [
            [layer.layer, position, self.tokens[position], found.candidates[0].token, found.candidates[0].probability,
             self.answer(position).token, found.rank, found.probability]
            for layer in self.layers
            for position, found in enumerate(layer.predictions)
        ]  # fmt: skip

    def view_data(self) -> dict[str, Any]:
        return round_floats(self.to_dict())


def logit_lens(
    loaded: LoadedModel,
    text: str,
    *,
    top: int = 5,
    position: int | None = None,
    max_tokens: int = MAX_TOKENS,
) -> LogitLens:
    """Apply the model's final norm and output head to the hidden state of every layer at every position.

    In a text for a masked model, `_` and `[MASK]` are masks. `position` defaults to the first mask, or the last token
    of the text; negative ones count from the end. Texts are truncated to `max_tokens` and the model's positions.
    """
    check_text(text)
    model: Any = loaded.model
    head, tokenizer = output_head(model), require_tokenizer(*loaded)
    limit = min(max_tokens, model.config.max_position_embeddings)
    encoding = _encode(model, tokenizer, text, limit)
    device = next(model.parameters()).device
    with evaluation_mode(model):
        states = [x[0] for x in hidden_states_before_head(model, torch.tensor([encoding.ids], device=device))]
        answers = torch.cat([head(rows).argmax(-1) for rows in torch.split(states[-1], ROWS)])
        layers = [
            LensLayer(layer=number, predictions=_predictions(head, state, answers, tokenizer, top))
            for number, state in enumerate(states)
        ]
    causal = can(model, "causal-lm")
    notes = []
    if encoding.num_truncated:
        notes.append(f"{encoding.num_truncated:,} tokens were truncated; {len(encoding):,} remain")
    return LogitLens(
        model=loaded.name,
        family=family_name(model),
        text=text,
        predicts="next" if causal else "same",
        tokens=[display_token(tokenizer, number) for number in encoding.ids],
        special=list(encoding.special_tokens_mask),
        layers=layers,
        position=_position(encoding, position, tokenizer.mask_token_id),
        truncated=encoding.num_truncated,
        notes=notes,
    )


def output_head(model: Any) -> Callable[[Tensor], Tensor]:
    """The function from the last hidden state to logits over the vocabulary; InputError if the model has none."""
    if can(model, "causal-lm"):
        head: Callable[[Tensor], Tensor] = model.logits
    elif can(model, "masked-lm"):
        head = model.mlm_head
    else:
        raise InputError(
            f"a logit lens needs a model that predicts tokens from its last layer, a GPT or a BERT with its masked "
            f"LM head, and this is {describe_model(model)} model; take a pretrained model such as regard-gpt"
        )
    return head


def hidden_states_before_head(model: Any, ids: Tensor) -> list[Tensor]:
    """Every hidden state (B, T, W) as the output head would receive it: after the final norm, if the model has one."""
    *inner, last = model.states(ids, Padded())
    return [*map(last_stack(model).norm, inner), last]  # the last one has been through the norm


def _encode(model: nn.Module, tokenizer: Tokenizer, text: str, limit: int) -> Encoding:
    if not can(model, "causal-lm") and tokenizer.mask_token_id is not None:
        mask = tokenizer.token(tokenizer.mask_token_id)
        text = re.sub(BLANK_PATTERN, lambda _: mask, text)
    encoding = tokenizer.encode(text, max_length=limit)
    if not encoding.ids:
        begin = begin_token(model, tokenizer)
        raise InputError(f"{text!r} has no tokens{'' if begin is None else ' of its own'}; expected at least a word")
    return encoding


def _position(encoding: Encoding, position: int | None, mask: int | None) -> int:
    count = len(encoding)
    if position is not None:
        if not -count <= position < count:
            raise InputError(f"no position {position}: the text has {count} tokens, 0 to {count - 1}")
        return position % count
    if mask in encoding.ids:
        return encoding.ids.index(mask)
    words = [number for number, special in enumerate(encoding.special_tokens_mask) if not special]
    return words[-1] if words else count - 1


def _predictions(
    head: Callable[[Tensor], Tensor], state: Tensor, answers: Tensor, tokenizer: Tokenizer, top: int
) -> list[LensPrediction]:
    found: list[LensPrediction] = []
    for rows, right in zip(torch.split(state, ROWS), torch.split(answers, ROWS), strict=True):
        probabilities = head(rows).float().softmax(-1)
        answer = probabilities.gather(1, right[:, None])
        ranks = 1 + (probabilities > answer).sum(-1)
        best = probabilities.topk(min(top, probabilities.shape[-1]))
        for values, ids, rank, own in zip(
            best.values.tolist(), best.indices.tolist(), ranks.tolist(), answer[:, 0].tolist(), strict=True
        ):
            candidates = [
                LensCandidate(token=display_token(tokenizer, number), id=number, probability=value)
                for number, value in zip(ids, values, strict=True)
            ]
            found.append(LensPrediction(candidates=candidates, rank=rank, probability=own))
    return found
