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
from regard.interpret.faithfulness.surgery import EachAlone, heads_named, layers_named, skipping
from regard.interpret.faithfulness.trial import Trial
from regard.nn import knock_out, record

__all__ = ["Ablation", "Change", "Effect", "Ranked", "Sweep", "ablate", "distance", "divergence", "sweep"]


@dataclass(frozen=True)
class Change:
    """The probability of one output, or its value, before and after."""

    output: str
    before: float
    after: float


@dataclass(frozen=True)
class Effect:
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
    likeliest: tuple[Change, ...]
    changes: tuple[Change, ...]
    successors: tuple[Change, ...]

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
    effects: tuple[Effect, ...]

    def document(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class Ranked:
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
class Sweep:
    """Every head taken out alone, the strongest effect first. `measure` names the strength: divergence or change."""

    task: str
    texts: tuple[str, ...]
    tokens: tuple[str, ...]
    places: tuple[str, ...]
    depth: int
    heads: int
    measure: str
    ranked: tuple[Ranked, ...]

    def document(self) -> dict[str, object]:
        return asdict(self)


def ablate(
    trial: Trial, *, heads: Collection[tuple[int, int]] = (), layers: Collection[int] = (), top: int = 10
) -> Ablation:
    """Take out heads and layers together; of each place the `top` outputs that led and that changed most are told."""
    if top < 1:
        raise InputError(f"top is {top}; expected the number of outputs to list, at least 1")
    named = ",".join(f"{layer}.{head}" for layer, head in heads)
    gone = heads_named(named, depth=trial.depth, heads=trial.heads) if heads else ()
    left = layers_named(",".join(map(str, layers)), depth=trial.depth) if layers else ()
    # Of a layer that is left out no head is asked.
    silent = [(layer, head) for layer, head in gone if layer not in left]
    with trial.evaluating():
        before = trial.logits()[0]
        with ExitStack() as stack:
            stack.enter_context(skipping(trial.encoder, left))
            if silent:
                stack.enter_context(record(trial.encoder, edit=knock_out(silent)))
            after = trial.logits()[0]
    pairs = zip(trial.places, before, after, strict=True)
    effects = tuple(_effect(trial, place, old, new, top) for place, old, new in pairs)
    return Ablation(trial.task, trial.texts, trial.tokens, gone, left, effects)


def sweep(trial: Trial) -> Sweep:
    """Take out every head alone, many copies of the text at a time."""
    every = heads_named("*.*", depth=trial.depth, heads=trial.heads)
    found = []
    with trial.evaluating():
        before = trial.logits()[0]
        for group in grouped(every, BUDGET[trial.ids.device.type] // (trial.rows * len(trial.ids))):
            alone = EachAlone([head for head in group for _ in range(trial.rows)])
            with record(trial.encoder, edit=alone):
                after = trial.logits(trial.ids.expand(len(group), -1))
            found += [_ranked(trial, head, before, row) for head, row in zip(group, after, strict=True)]
    found.sort(key=lambda one: (-one.strength, one.layer, one.head))
    measure = "change" if trial.kind == "value" else "divergence"
    return Sweep(trial.task, trial.texts, trial.tokens, trial.places, trial.depth, trial.heads, measure, tuple(found))


def _ranked(trial: Trial, head: tuple[int, int], before: Tensor, after: Tensor) -> Ranked:
    divergences, distances = divergence(trial, before, after), distance(trial, before, after)
    strength = distances if divergences is None else divergences
    changed: tuple[str, ...] = ()
    best = tuple("" for _ in trial.places)
    if trial.kind != "value":
        same = (before.argmax(-1) == after.argmax(-1)).tolist()
        changed = tuple(place for place, kept in zip(trial.places, same, strict=True) if not kept)
        best = tuple(trial.outputs[number] for number in after.argmax(-1).tolist())
    means = strength.mean().item(), distances.mean().item()
    return Ranked(*head, *means, changed, tuple(strength.tolist()), best)


def _effect(trial: Trial, place: str, before: Tensor, after: Tensor, top: int) -> Effect:
    old, new = trial.shares(before), trial.shares(after)
    listed = min(top, len(old))

    def changes(order: Tensor) -> tuple[Change, ...]:
        return tuple(Change(trial.outputs[i], old[i].item(), new[i].item()) for i in order.tolist())

    best = ["" if trial.kind == "value" else trial.outputs[int(one.argmax())] for one in (old, new)]
    apart = divergence(trial, before, after)
    return Effect(
        place=place,
        before=best[0],
        after=best[1],
        divergence=None if apart is None else apart.item(),
        distance=distance(trial, before, after).item(),
        likeliest=changes(old.topk(listed).indices),
        changes=changes((new - old).abs().topk(listed).indices),
        successors=changes(new.topk(listed).indices),
    )


def divergence(trial: Trial, before: Tensor, after: Tensor) -> Tensor | None:
    """Kullback and Leibler's, of the last dimension, None of values; never below 0, which rounding could make it."""
    old, new = before.double(), after.double()
    if trial.kind == "value":
        return None
    if trial.kind == "one":
        return F.kl_div(new.log_softmax(-1), old.log_softmax(-1), reduction="none", log_target=True).sum(-1).clamp(0)
    yes = F.kl_div(F.logsigmoid(new), F.logsigmoid(old), reduction="none", log_target=True)
    no = F.kl_div(F.logsigmoid(-new), F.logsigmoid(-old), reduction="none", log_target=True)
    return (yes + no).sum(-1).clamp(0)


def distance(trial: Trial, before: Tensor, after: Tensor) -> Tensor:
    """Of the last dimension: the total variation, the greatest change of a label, or a value's change."""
    change = (trial.shares(after) - trial.shares(before)).abs()
    return change.sum(-1) / 2 if trial.kind == "one" else change.amax(-1)
