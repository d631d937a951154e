"""Surgery: attention heads or whole layers are taken out of a model, and its answers before and after are compared.

A head that is knocked out adds nothing; a layer that is left out hands on what it was given. Knows trials and
distributions. Knows nothing of pages or the command line. Layers and heads count from 0.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import asdict, dataclass

import torch.nn.functional as F
from torch import Tensor

from regard.checkpoints.ready import BUDGET, grouped
from regard.errors import InputError
from regard.interpret.ablation.edits import KnockOutOnePerCopy, parse_heads, parse_layers, skip_layers
from regard.interpret.attribution.probe import Probe
from regard.nn import knock_out, record

__all__ = [
    "Ablation",
    "AblationEffect",
    "HeadEffect",
    "HeadSweep",
    "OutputChange",
    "ablate",
    "kl_divergence",
    "output_distance",
    "sweep_heads",
]


@dataclass(frozen=True)
class OutputChange:
    """The probability of one output, or its value, before and after."""

    output: str
    before: float
    after: float


@dataclass(frozen=True)
class AblationEffect:
    """What became of the answer at one place: `before` and `after` are the likeliest outputs, or "" of a value.

    `divergence` is Kullback and Leibler's of the new distribution from the old one in nats, over all outputs; of
    labels that exclude nothing, the sum of theirs; of a value None. `distance` is the total variation, from 0 to 1; of
    labels that exclude nothing the greatest change; of a value its change. `likeliest` are the outputs that led before,
    `changes` those that changed most, `successors` those that lead after; all have the same length.
    """

    place: str
    before: str
    after: str
    divergence: float | None
    distance: float
    likeliest: tuple[OutputChange, ...]
    changes: tuple[OutputChange, ...]
    successors: tuple[OutputChange, ...]

    @property
    def strength(self) -> float:
        """What heads are ranked by: the divergence, or a value's change."""
        return self.distance if self.divergence is None else self.divergence


@dataclass(frozen=True)
class Ablation:
    """The effect at each place of taking out `heads`, as (layer, head), and `layers`, all at once."""

    task: str
    texts: tuple[str, ...]
    tokens: tuple[str, ...]
    heads: tuple[tuple[int, int], ...]
    layers: tuple[int, ...]
    effects: tuple[AblationEffect, ...]

    def document(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class HeadEffect:
    """One head alone: the mean strength and distance over all places, and the places whose best output changed.

    `strengths` and `after` are of each place: the strength there, and the best output, "" of a value.
    """

    layer: int
    head: int
    strength: float
    distance: float
    changed: tuple[str, ...]
    strengths: tuple[float, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class HeadSweep:
    """Every head taken out alone, the strongest effect first. `measure` names the strength: divergence or change."""

    task: str
    texts: tuple[str, ...]
    tokens: tuple[str, ...]
    places: tuple[str, ...]
    depth: int
    heads: int
    measure: str
    ranked: tuple[HeadEffect, ...]

    def document(self) -> dict[str, object]:
        return asdict(self)


def ablate(
    trial: Probe, *, heads: Collection[tuple[int, int]] = (), layers: Collection[int] = (), top: int = 10
) -> Ablation:
    """Take out heads and layers together; of each place the `top` outputs that led and that changed most are told."""
    if top < 1:
        raise InputError(f"top is {top}; expected the number of outputs to list, at least 1")
    named = ",".join(f"{layer}.{head}" for layer, head in heads)
    gone = parse_heads(named, depth=trial.num_layers, heads=trial.num_heads) if heads else ()
    left = parse_layers(",".join(map(str, layers)), depth=trial.num_layers) if layers else ()
    # Of a layer that is left out no head is asked.
    silent = [(layer, head) for layer, head in gone if layer not in left]
    with trial.evaluating():
        before = trial.logits()[0]
        with ExitStack() as stack:
            stack.enter_context(skip_layers(trial.encoder, left))
            if silent:
                stack.enter_context(record(trial.encoder, edit=knock_out(silent)))
            after = trial.logits()[0]
    pairs = zip(trial.targets, before, after, strict=True)
    effects = tuple(_effect(trial, place, old, new, top) for place, old, new in pairs)
    return Ablation(trial.task, trial.texts, trial.tokens, gone, left, effects)


def sweep_heads(trial: Probe) -> HeadSweep:
    """Take out every head alone, many copies of the text at a time."""
    every = parse_heads("*.*", depth=trial.num_layers, heads=trial.num_heads)
    found = []
    with trial.evaluating():
        before = trial.logits()[0]
        for group in grouped(every, BUDGET[trial.ids.device.type] // (trial.rows_per_copy * len(trial.ids))):
            alone = KnockOutOnePerCopy([head for head in group for _ in range(trial.rows_per_copy)])
            with record(trial.encoder, edit=alone):
                after = trial.logits(trial.ids.expand(len(group), -1))
            found += [_ranked(trial, head, before, row) for head, row in zip(group, after, strict=True)]
    found.sort(key=lambda one: (-one.strength, one.layer, one.head))
    measure = "change" if trial.kind == "value" else "divergence"
    return HeadSweep(
        trial.task, trial.texts, trial.tokens, trial.targets, trial.num_layers, trial.num_heads, measure, tuple(found)
    )


def _ranked(trial: Probe, head: tuple[int, int], before: Tensor, after: Tensor) -> HeadEffect:
    divergences, distances = kl_divergence(trial, before, after), output_distance(trial, before, after)
    strength = distances if divergences is None else divergences
    changed: tuple[str, ...] = ()
    best = tuple("" for _ in trial.targets)
    if trial.kind != "value":
        same = (before.argmax(-1) == after.argmax(-1)).tolist()
        changed = tuple(place for place, kept in zip(trial.targets, same, strict=True) if not kept)
        best = tuple(trial.outputs[number] for number in after.argmax(-1).tolist())
    means = strength.mean().item(), distances.mean().item()
    return HeadEffect(*head, *means, changed, tuple(strength.tolist()), best)


def _effect(trial: Probe, place: str, before: Tensor, after: Tensor, top: int) -> AblationEffect:
    old, new = trial.probabilities(before), trial.probabilities(after)
    listed = min(top, len(old))

    def changes(order: Tensor) -> tuple[OutputChange, ...]:
        return tuple(OutputChange(trial.outputs[i], old[i].item(), new[i].item()) for i in order.tolist())

    best = ["" if trial.kind == "value" else trial.outputs[int(one.argmax())] for one in (old, new)]
    apart = kl_divergence(trial, before, after)
    return AblationEffect(
        place=place,
        before=best[0],
        after=best[1],
        divergence=None if apart is None else apart.item(),
        distance=output_distance(trial, before, after).item(),
        likeliest=changes(old.topk(listed).indices),
        changes=changes((new - old).abs().topk(listed).indices),
        successors=changes(new.topk(listed).indices),
    )


def kl_divergence(trial: Probe, before: Tensor, after: Tensor) -> Tensor | None:
    """Kullback and Leibler's, of the last dimension, None of values; never below 0, which rounding could make it."""
    old, new = before.double(), after.double()
    if trial.kind == "value":
        return None
    if trial.kind == "one":
        return F.kl_div(new.log_softmax(-1), old.log_softmax(-1), reduction="none", log_target=True).sum(-1).clamp(0)
    yes = F.kl_div(F.logsigmoid(new), F.logsigmoid(old), reduction="none", log_target=True)
    no = F.kl_div(F.logsigmoid(-new), F.logsigmoid(-old), reduction="none", log_target=True)
    return (yes + no).sum(-1).clamp(0)


def output_distance(trial: Probe, before: Tensor, after: Tensor) -> Tensor:
    """Of the last dimension: the total variation, the greatest change of a label, or a value's change."""
    change = (trial.probabilities(after) - trial.probabilities(before)).abs()
    return change.sum(-1) / 2 if trial.kind == "one" else change.amax(-1)
