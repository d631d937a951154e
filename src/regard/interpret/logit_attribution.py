"""Direct logit attribution: how much each head, feed-forward network and the embedding add to the logit of a token.

In a pre-norm model the last hidden state is a sum: the embedding and what every head and every feed-forward network
added to it. The final norm divides the sum by one number. With that scale held fixed the logit is linear in the sum,
so that the contributions add up to it (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits").
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.inference.causal_lm import CausalScorer
from regard.interpret.attention.maps import display_token
from regard.interpret.hooks import forward_hooks, hook_input
from regard.interpret.residual_stream import answer_token, last_stack, read_prompt, token_names
from regard.models.family import describe_model, family_name
from regard.nn.block import Residual
from regard.nn.masks import Padded
from regard.nn.training import evaluation_mode
from regard.render.result import Result, Table, round_floats
from regard.render.story import NumberMatrix, Paragraph, Story, StoryBlock, StoryTable

MAX_TOKENS = 1024  # of a prompt
TOLERANCE = 1e-3  # by which the sum may differ from the logit, relative to the sizes of the contributions
LISTED = 10  # contributions that the text lists


class LogitAttribution(Result):
    """Contributions to the logit of `answer` after the prompt or, if there is a `wrong` answer, to the difference.

    `heads[layer][head]` and `feed_forward[layer]` begin with layer 1. `biases` are those of the output projections of
    the attention, of the final norm and of the output layer. All contributions sum to `logit`.
    """

    page_view: ClassVar[str | None] = "logit_attribution"
    view_type: ClassVar[str | None] = "regard.render.story:Story"

    model: str = ""
    family: str
    prompt: str
    tokens: list[str]
    answer: str
    answer_id: int
    wrong: str | None
    wrong_id: int | None
    logit: float
    embedding: float
    heads: list[list[float]]
    feed_forward: list[float]
    biases: float
    notes: list[str] = Field(default_factory=list)

    @property
    def contributions(self) -> list[tuple[str, float]]:
        """Every part with its contribution, in the order of the forward pass."""
        parts = [("embedding", self.embedding)]
        for layer, (heads, fed) in enumerate(zip(self.heads, self.feed_forward, strict=True), start=1):
            parts += [(f"head {layer}.{head}", value) for head, value in enumerate(heads)]
            parts.append((f"feed-forward {layer}", fed))
        return [*parts, ("biases", self.biases)]

    @property
    def what(self) -> str:
        """What is attributed, in words."""
        token = f"the logit of {self.answer!r}"
        return token if self.wrong is None else f"{token} minus that of {self.wrong!r}"

    def story(self) -> Story:
        largest = sorted(self.contributions, key=lambda part: -abs(part[1]))[:LISTED]
        heads = [str(head) for head in range(len(self.heads[0]))]
        name = self.model or self.family
        blocks: list[StoryBlock] = [
            Paragraph(text=f"{name} after {self.prompt!r}: {self.what} is {self.logit:.3f}."),
            StoryTable(
                caption="Largest contributions",
                headers=("part", "contribution"),
                rows=[(part, f"{value:+.3f}") for part, value in largest],
            ),
            NumberMatrix(
                title="Contributions by layer: each head and the feed-forward network",
                values=[[*heads, fed] for heads, fed in zip(self.heads, self.feed_forward, strict=True)],
                rows=[f"layer {layer}" for layer in range(1, len(self.heads) + 1)],
                columns=[*heads, "feed-forward"],
            ),
            Paragraph(text=f"Embedding {self.embedding:+.3f}, biases {self.biases:+.3f}."),
        ]
        return Story(title="Logit attribution", blocks=blocks)

    def to_text(self) -> str:
        return self.story().to_text()

    def to_table(self) -> Table:
        """One row for each part of the model."""
        return ("part", "contribution"), self.contributions

    def view_data(self) -> dict[str, Any]:
        return round_floats(self.story().to_dict())


def attribute_logit(
    loaded: LoadedModel, prompt: str, *, answer: str | None = None, wrong: str | None = None
) -> LogitAttribution:
    """Split the logit of the token after a prompt into the contributions of the parts of a pre-norm causal model.

    `answer` is a word of one token, by default the model's prediction; with `wrong`, the difference of their logits is
    split. InputError for models whose logits are not such a sum.
    """
    model = loaded.model
    scorer = CausalScorer.of(*loaded, doing="logit attribution")
    ids = read_prompt(scorer, prompt, max_tokens=MAX_TOKENS)
    stack: Any = last_stack(model)
    check_pre_norm(model)
    mixed: list[Tensor] = []  # the inputs of the output projections: the heads side by side
    fed: list[Tensor] = []
    ends: list[Tensor] = []  # the embedding and the last hidden state before the norm
    with evaluation_mode(model):
        networks = [(layer.ffn, lambda module, args, kwargs, x: fed.append(x[0, -1])) for layer in stack.layers]
        with ExitStack() as hooks, forward_hooks(networks):
            for layer in stack.layers:
                hooks.enter_context(hook_input(layer.attention.output, lambda x: mixed.append(x[0, -1])))
            hooks.enter_context(hook_input(stack.layers[0], lambda x: ends.append(x[0, -1])))
            hooks.enter_context(hook_input(stack.norm, lambda x: ends.append(x[0, -1])))
            hidden = scorer.model(torch.tensor([ids], device=scorer.device), Padded())[0, -1]
        logits = scorer.model.logits(hidden).double()
        right = int(logits.argmax()) if answer is None else answer_token(scorer.tokenizer, answer)
        other = None if wrong is None else answer_token(scorer.tokenizer, wrong)
        if other == right:
            raise InputError(f"the answer and the wrong answer are both {display_token(scorer.tokenizer, right)!r}")
        weight, output_bias = scorer.model.output_weight, scorer.model.logits(torch.zeros_like(hidden)).double()
        direction, bias, expected = weight[right].double(), output_bias[right], logits[right]
        if other is not None:
            direction = direction - weight[other].double()
            bias, expected = bias - output_bias[other], expected - logits[other]
        pairs = zip(stack.layers, mixed, strict=True)
        outputs = [_head_outputs(layer.attention, x) for layer, x in pairs]
        heads, biases = [one for one, _ in outputs], torch.stack([bias for _, bias in outputs]).sum(0)
        parts = torch.stack([ends[0], *(one for layer in heads for one in layer), *fed, biases])
        scaled, norm_bias = _frozen_norm(stack.norm, parts.double(), ends[1].double())
        values = scaled @ direction
        values[-1] += bias
        if norm_bias is not None:
            values[-1] += norm_bias.double() @ direction
    if not abs(float(values.sum() - expected)) <= TOLERANCE * (1 + float(values.abs().sum())):
        raise InputError(
            f"the contributions sum to {float(values.sum()):.4f} and not to the logit, {float(expected):.4f}: "
            f"{describe_model(model)} model computes more than a sum, and logit attribution does not apply to it"
        )
    depth, num_heads = len(heads), len(heads[0])
    count = depth * num_heads
    listed = values.tolist()
    return LogitAttribution(
        model=loaded.name,
        family=family_name(model),
        prompt=prompt,
        tokens=token_names(scorer.tokenizer, ids),
        answer=display_token(scorer.tokenizer, right),
        answer_id=right,
        wrong=None if other is None else display_token(scorer.tokenizer, other),
        wrong_id=other,
        logit=float(expected),
        embedding=listed[0],
        heads=[listed[1 + start : 1 + start + num_heads] for start in range(0, count, num_heads)],
        feed_forward=listed[1 + count : 1 + count + depth],
        biases=listed[-1],
    )


def check_pre_norm(model: nn.Module) -> None:
    """Raise InputError unless every layer adds to the residual stream and only the end of the stack normalizes it."""
    stack = last_stack(model)
    if not all(one.first for one in stack.modules() if isinstance(one, Residual)):
        raise InputError(
            f"logit attribution needs a pre-norm model, whose layers add to the residual stream, such as GPT-2 or "
            f"Llama; the layers of {describe_model(model)} model normalize the sum itself"
        )
    if not isinstance(stack.norm, nn.LayerNorm | nn.RMSNorm):
        raise InputError(
            f"logit attribution needs a final layer norm or RMS norm; this model has {type(stack.norm).__name__}"
        )


def _head_outputs(attention: Any, mixed: Tensor) -> tuple[list[Tensor], Tensor]:
    """What each head adds to the residual stream, and the bias of the output projection."""
    separate = torch.zeros(attention.heads, attention.heads, len(mixed) // attention.heads).to(mixed)
    separate[range(attention.heads), range(attention.heads)] = mixed.view(attention.heads, -1)
    outputs = attention.output(torch.cat([separate.flatten(1), torch.zeros_like(mixed)[None]]))
    return list(outputs[:-1] - outputs[-1]), outputs[-1]


def _frozen_norm(norm: nn.Module, parts: Tensor, total: Tensor) -> tuple[Tensor, Tensor | None]:
    """The norm of each part with the scale of their `total`, without the bias; and the bias."""
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    bias = None
    if isinstance(norm, nn.LayerNorm):
        parts, total, bias = parts - parts.mean(-1, keepdim=True), total - total.mean(), norm.bias
    eps = torch.finfo(norm.weight.dtype).eps if norm.eps is None else norm.eps
    return parts / (total.square().mean() + eps).sqrt() * norm.weight.double(), bias
