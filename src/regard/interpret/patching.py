"""Activation patching: which activations carry what distinguishes two prompts.

The model reads the corrupted prompt, with one activation replaced by that of the clean prompt: the residual stream
after a layer at one position, or the output of one head at all positions. The restored share of the difference of two
logits is 0 where the activation does not matter and 1 where it carries all of it (Meng et al. 2022, "Locating and
Editing Factual Associations in GPT"; Wang et al. 2022, "Interpretability in the Wild").
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from regard.checkpoints.loaded_model import LoadedModel
from regard.data.batch import in_groups
from regard.errors import InputError
from regard.inference.causal_lm import BATCH_TOKENS, CausalScorer
from regard.interpret.attention.maps import display_token
from regard.interpret.hooks import hook_input
from regard.interpret.residual_stream import answer_token, last_stack, read_prompt, token_names
from regard.models.family import family_name
from regard.nn.masks import Padded
from regard.nn.stack import Stack
from regard.nn.training import evaluation_mode
from regard.render.result import Result, Table, round_floats
from regard.render.story import NumberMatrix, Paragraph, Story

MAX_TOKENS = 128  # of a prompt: each position is a forward pass for every layer
MIN_DIFFERENCE = 1e-4  # of the logit differences of both prompts, relative to their sizes


class PatchingResult(Result):
    """The restored share of the logit difference: 0 as with the corrupted prompt, 1 as with the clean one.

    `residual[layer][position]`: the hidden state after a layer replaced at one position; layer 0 is the output of the
    embeddings. `heads[layer][head]`, from layer 1: the output of a head replaced at all positions. Shares below 0 move
    away from the clean prompt, and those above 1 beyond it.
    """

    page_view: ClassVar[str | None] = "patch"
    view_type: ClassVar[str | None] = "regard.render.story:Story"

    model: str = ""
    family: str
    clean: str
    corrupted: str
    clean_tokens: list[str]
    corrupted_tokens: list[str]
    answer: str
    answer_id: int
    wrong: str
    wrong_id: int
    clean_difference: float
    corrupted_difference: float
    residual: list[list[float]]
    heads: list[list[float]]
    notes: list[str] = Field(default_factory=list)

    def story(self) -> Story:
        pairs = zip(self.clean_tokens, self.corrupted_tokens, strict=True)
        columns = [one if one == other else f"{one.strip()} / {other.strip()}" for one, other in pairs]
        layers = [f"layer {layer}" for layer in range(1, len(self.heads) + 1)]
        name = self.model or self.family
        return Story(
            title="Activation patching",
            blocks=[
                Paragraph(
                    text=f"{name}: the logit of {self.answer!r} minus that of {self.wrong!r} is "
                    f"{self.clean_difference:.3f} after {self.clean!r} and {self.corrupted_difference:.3f} after "
                    f"{self.corrupted!r}. The numbers are the restored share of the change, in percent."
                ),
                NumberMatrix(
                    title="Hidden state of one layer and position from the clean prompt",
                    values=_percent(self.residual),
                    rows=["embeddings", *layers],
                    columns=columns,
                    digits=0,
                ),
                NumberMatrix(
                    title="Output of one head from the clean prompt",
                    values=_percent(self.heads),
                    rows=layers,
                    columns=[str(head) for head in range(len(self.heads[0]))],
                    digits=0,
                ),
            ],
        )

    def to_text(self) -> str:
        return self.story().to_text()

    def to_table(self) -> Table:
        """One row for each patch; `position` or `head` is empty."""
        rows: list[tuple[object, ...]] = [
            (layer, position, None, self.clean_tokens[position], self.corrupted_tokens[position], share)
            for layer, row in enumerate(self.residual)
            for position, share in enumerate(row)
        ]
        rows += [
            (layer, None, head, None, None, share)
            for layer, row in enumerate(self.heads, start=1)
            for head, share in enumerate(row)
        ]
        return ("layer", "position", "head", "clean_token", "corrupted_token", "restored"), rows

    def view_data(self) -> dict[str, Any]:
        return round_floats(self.story().to_dict())


def _percent(restored: list[list[float]]) -> list[list[float]]:
    return [[100 * share for share in row] for row in restored]


class ActivationPatching:
    """A causal model with the activations of two prompts (T,) of the same length; computes patched logits (V,).

    Only the layers from the patched one on run again, since those before it do not change.
    """

    def __init__(self, model: Any, clean: Sequence[int], corrupted: Sequence[int]) -> None:
        if len(clean) != len(corrupted):
            raise InputError(f"the prompts have {len(clean)} and {len(corrupted)} tokens; expected the same number")
        self.model, self.stack = model, last_stack(model)
        self.num_tokens, self.num_layers = len(clean), len(self.stack.layers)
        self.clean_states, self.clean_mixed, self.clean_logits = self._run(clean)
        self.corrupted_states, _, self.corrupted_logits = self._run(corrupted)

    @property
    def num_heads(self) -> int:
        return int(self.stack.layers[0].attention.heads)  # type: ignore[union-attr, arg-type]

    def _run(self, ids: Sequence[int]) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """The hidden states (T, W) before the final norm, the heads of every layer side by side, and the logits."""
        states: list[Tensor] = []
        mixed: list[Tensor] = []
        device = self.model.embedding.tokens.weight.device
        with evaluation_mode(self.model), ExitStack() as hooks:
            for layer in self.stack.layers:
                hooks.enter_context(hook_input(layer, lambda x: states.append(x[0])))
                hooks.enter_context(hook_input(layer.attention.output, lambda x: mixed.append(x[0])))  # type: ignore[union-attr, arg-type]
            hooks.enter_context(hook_input(self.stack.norm, lambda x: states.append(x[0])))
            hidden = self.model(torch.tensor([list(ids)], device=device), Padded())
            return states, mixed, self.model.logits(hidden[0, -1])

    def patch_residual(self, layer: int, positions: Sequence[Collection[int]]) -> Tensor:
        """The logits (N, V) with the hidden state after a layer replaced at each of N sets of positions."""
        rest = Stack(self.stack.layers[layer:], norm=self.stack.norm, relative=self.stack.relative)
        results = []
        with evaluation_mode(self.model):
            for group in in_groups(positions, BATCH_TOKENS[self.clean_logits.device.type] // self.num_tokens):
                chosen = _members(group, self.num_tokens, self.clean_logits.device)
                x = torch.where(chosen[:, :, None], self.clean_states[layer], self.corrupted_states[layer])
                results.append(self._logits(rest, x))
        return torch.cat(results)

    def patch_heads(self, layer: int, heads: Sequence[Collection[int]]) -> Tensor:
        """The logits (N, V) with the outputs of each of N sets of heads of a layer, from 1, replaced."""
        rest = Stack(self.stack.layers[layer - 1 :], norm=self.stack.norm, relative=self.stack.relative)
        clean = self.clean_mixed[layer - 1].view(self.num_tokens, self.num_heads, -1)
        output: Any = self.stack.layers[layer - 1].attention.output  # type: ignore[union-attr]
        results = []
        with evaluation_mode(self.model):
            for group in in_groups(heads, BATCH_TOKENS[clean.device.type] // self.num_tokens):
                chosen = _members(group, self.num_heads, clean.device)

                def replace(mixed: Tensor, chosen: Tensor = chosen) -> Tensor:
                    return torch.where(chosen[:, None, :, None], clean, mixed.view(-1, *clean.shape)).view(mixed.shape)

                x = self.corrupted_states[layer - 1].expand(len(group), -1, -1)
                with hook_input(output, replace):
                    results.append(self._logits(rest, x))
        return torch.cat(results)

    def _logits(self, rest: Stack, x: Tensor) -> Tensor:
        # A stack without layers applies no norm.
        hidden = rest(x, Padded()) if len(rest.layers) else rest.norm(x)
        logits: Tensor = self.model.logits(hidden[:, -1])
        return logits


def _members(sets: Sequence[Collection[int]], size: int, device: torch.device) -> Tensor:
    """Whether each number below `size` is in each set: (N, size)."""
    return torch.tensor([[number in one for number in range(size)] for one in sets], device=device)


def patch_activations(
    loaded: LoadedModel,
    clean: str,
    corrupted: str,
    *,
    answer: str | None = None,
    wrong: str | None = None,
) -> PatchingResult:
    """Patch every layer and position, and every head, of the corrupted prompt with the clean one.

    `answer` and `wrong` are words of one token; by default what the model predicts after the clean and after the
    corrupted prompt. Both prompts must have the same number of tokens.
    """
    scorer = CausalScorer.of(*loaded, doing="activation patching")
    tokens = scorer.tokenizer
    prompts = [read_prompt(scorer, text, max_tokens=MAX_TOKENS) for text in (clean, corrupted)]
    if len(prompts[0]) != len(prompts[1]):
        spelled = " and ".join(f"{len(ids)} ({', '.join(map(repr, token_names(tokens, ids)))})" for ids in prompts)
        raise InputError(
            f"the prompts have {spelled} tokens; expected the same number: replace words by words of as many tokens"
        )
    patching = ActivationPatching(scorer.model, *prompts)
    right = int(patching.clean_logits.argmax()) if answer is None else answer_token(tokens, answer)
    other = int(patching.corrupted_logits.argmax()) if wrong is None else answer_token(tokens, wrong)
    if right == other:
        raise InputError(
            f"the answer and the wrong answer are both {display_token(tokens, right)!r}; "
            "give two different words as answer and wrong"
        )

    def difference(logits: Tensor) -> Tensor:
        return logits[..., right].double() - logits[..., other].double()

    before, after = float(difference(patching.corrupted_logits)), float(difference(patching.clean_logits))
    if abs(after - before) < MIN_DIFFERENCE * max(1.0, abs(after), abs(before)):
        raise InputError(
            f"the logit difference is {after:.4f} after both prompts, so there is nothing to restore; "
            "expected prompts and answers between which the model distinguishes"
        )

    def restored(logits: Tensor) -> list[float]:
        values: list[float] = ((difference(logits) - before) / (after - before)).tolist()
        return values

    # Up to the first token that differs the activations are the same, and there is nothing to replace.
    same = next(index for index, (one, two) in enumerate(zip(*prompts, strict=True)) if one != two)
    positions = [{position} for position in range(same, patching.num_tokens)]
    heads = [{head} for head in range(patching.num_heads)]
    return PatchingResult(
        model=loaded.name,
        family=family_name(loaded.model),
        clean=clean,
        corrupted=corrupted,
        clean_tokens=token_names(tokens, prompts[0]),
        corrupted_tokens=token_names(tokens, prompts[1]),
        answer=display_token(tokens, right),
        answer_id=right,
        wrong=display_token(tokens, other),
        wrong_id=other,
        clean_difference=after,
        corrupted_difference=before,
        residual=[
            [0.0] * same + restored(patching.patch_residual(layer, positions))
            for layer in range(patching.num_layers + 1)
        ],
        heads=[restored(patching.patch_heads(layer, heads)) for layer in range(1, patching.num_layers + 1)],
    )
