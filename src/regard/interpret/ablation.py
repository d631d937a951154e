"""Ablation: removes attention heads or whole layers from a model, and compares its predictions before and after.

A removed head adds nothing to the residual stream; a removed layer passes its input on. Layers count from 1, heads
from 0.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import PrivateAttr
from torch import Tensor, nn

from regard.data.batch import in_groups
from regard.errors import InputError
from regard.inference.causal_lm import BATCH_TOKENS
from regard.interpret.attribution.probe import Probe, ProbedModel, TextProbe, probe_modes
from regard.interpret.hooks import forward_hooks
from regard.models.family import family_of
from regard.nn.masks import Context
from regard.nn.recording import Site, ablate_heads, check_head, check_layer, record
from regard.render.result import Result, Table, round_floats
from regard.render.terminal import padded

HEAD = re.compile(r"(-?\d{1,9}|\*)\.(\d{1,9}|\*)")
LAYER = re.compile(r"-?\d{1,9}")
MAX_VIEW_OUTPUTS = 6  # outputs of a target that the page lists


@dataclass(frozen=True)
class OutputChange:
    """The probability (or the value) of one output before and after."""

    output: str
    before: float
    after: float


@dataclass(frozen=True)
class AblationEffect:
    """How the prediction of one target changes; `before` and `after` are the likeliest outputs, "" for a value.

    `divergence` is the Kullback-Leibler divergence of the new distribution from the old one in nats, over all outputs;
    for multi-label outputs the sum over the labels, for a value None. `distance` is the total variation distance, from
    0 to 1; for multi-label outputs the largest change, for a value its change. `strength` is the divergence, or the
    change of a value. `likeliest` led before, `successors` lead after, `changes` changed most; all have one length.
    """

    target: str
    before: str
    after: str
    divergence: float | None
    distance: float
    strength: float
    likeliest: tuple[OutputChange, ...]
    changes: tuple[OutputChange, ...]
    successors: tuple[OutputChange, ...]


@dataclass(frozen=True)
class HeadEffect:
    """One head removed alone: mean strength and distance over all targets, and the targets whose best output changed.

    `strengths` and `after` have one entry per target: the strength there, and the best output, "" for a value.
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
    """Every head removed alone, the strongest effect first. `measure` names the strength: divergence or change."""

    measure: str
    targets: tuple[str, ...]
    ranked: tuple[HeadEffect, ...]


class AblationResult(Result):
    """The effect on each target of removing `heads`, as (layer, head), and `layers`, all at once; and the sweep."""

    page_view: ClassVar[str | None] = "ablation"

    model: ProbedModel
    texts: tuple[str, ...]
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    positions: tuple[int, ...]
    at: str
    modes: tuple[str, ...]
    heads: tuple[tuple[int, int], ...]
    layers: tuple[int, ...]
    effects: tuple[AblationEffect, ...]
    sweep: HeadSweep | None
    _token_texts: tuple[str, ...] = PrivateAttr(())  # tokens and outputs as people read them
    _output_texts: dict[str, str] = PrivateAttr(default_factory=dict)
    _top: int = PrivateAttr(10)

    def to_text(self) -> str:
        return "\n".join(self._ranking() if not self.heads and not self.layers else self._changes())

    def _changes(self) -> Iterator[str]:
        yield from self.texts
        removed = [f"heads {', '.join(f'{layer}.{head}' for layer, head in self.heads)}"] if self.heads else []
        removed += [f"layers {', '.join(map(str, self.layers))}"] if self.layers else []
        yield f"without {' and '.join(removed)}"
        for effect in self.effects:
            yield ""
            if effect.divergence is None:
                yield f"{effect.target}: changed by {effect.distance:.4f}"
                yield from _table(effect.likeliest, "z11.4f")
                continue
            same = effect.before == effect.after
            best = f"{effect.before} stays the likeliest" if same else f"{effect.before} becomes {effect.after}"
            numbers = f"divergence {effect.divergence:.4f} nats, total variation {effect.distance:.3f}"
            yield f"{effect.target}: {best}; {numbers}"
            yield "  likeliest before"
            yield from _table(effect.likeliest, "9.3%")
            if {one.output for one in effect.changes} != {one.output for one in effect.likeliest}:
                yield "  changed most"
                yield from _table(effect.changes, "9.3%")

    def _ranking(self) -> Iterator[str]:
        yield from self.texts
        if self.sweep is None:
            yield "no head or layer is removed"
            return
        ranked = self.sweep.ranked[: self._top]
        count = self.model.num_layers * self.model.num_heads
        yield f"each of {count} heads removed alone; the {len(ranked)} whose removal changes the prediction most"
        yield ""
        yield f"  {'head':>6}{self.sweep.measure:>13}{'distance':>11}  best output changes at"
        for one in ranked:
            name = f"{one.layer}.{one.head}"
            yield f"  {name:>6}{one.strength:13.5f}{one.distance:11.4f}  {', '.join(one.changed)}".rstrip()

    def to_table(self) -> Table:
        ranked = self.sweep.ranked if self.sweep else ()
        return ("layer", "head", "strength", "distance"), [(o.layer, o.head, o.strength, o.distance) for o in ranked]

    def view_data(self) -> dict[str, object]:
        """The page shows tokens as text, and six outputs of each target."""
        if self.sweep is None:
            raise InputError("the page shows every head removed alone; leave out --no-sweep")

        def text(name: str) -> str:
            return self._output_texts.get(name, name)

        def with_texts(changes: tuple[OutputChange, ...]) -> tuple[OutputChange, ...]:
            return tuple(replace(one, output=text(one.output)) for one in changes[:MAX_VIEW_OUTPUTS])

        effects = tuple(
            replace(
                effect,
                before=text(effect.before),
                after=text(effect.after),
                likeliest=with_texts(effect.likeliest),
                changes=with_texts(effect.changes),
                successors=with_texts(effect.successors),
            )
            for effect in self.effects
        )
        ranked = tuple(replace(one, after=tuple(map(text, one.after))) for one in self.sweep.ranked)
        update = {"tokens": self._token_texts, "effects": effects, "sweep": replace(self.sweep, ranked=ranked)}
        return round_floats(self.model_copy(update=update).to_dict())


def ablate(
    probe: TextProbe,
    *,
    heads: Collection[tuple[int, int]] = (),
    layers: Collection[int] = (),
    top: int = 10,
    sweep: HeadSweep | None = None,
) -> AblationResult:
    """Remove heads and layers together, and report the `top` outputs of each target; `sweep` becomes part of it."""
    pairs = {(check_layer(layer, probe.num_layers), check_head(head, probe.num_heads)) for layer, head in heads}
    heads, layers = tuple(sorted(pairs)), tuple(sorted({check_layer(layer, probe.num_layers) for layer in layers}))
    silent = [(layer, head) for layer, head in heads if layer not in layers]
    with probe.evaluation_mode():
        before = probe.logits()[0]
        with ExitStack() as stack:
            stack.enter_context(skip_layers(probe.encoder, layers))
            if silent:
                stack.enter_context(record(probe.encoder, edit=ablate_heads(silent)))
            after = probe.logits()[0]
    effects = tuple(_effect(probe, *one, top) for one in zip(probe.targets, before, after, strict=True))
    result = AblationResult(
        model=probe.describe(),
        texts=probe.texts,
        tokens=probe.tokens,
        special=probe.special,
        positions=probe.positions,
        at=probe.at,
        modes=probe_modes(probe.model) if probe.predicts_tokens else ("blanks",),
        heads=heads,
        layers=layers,
        effects=effects,
        sweep=sweep,
    )
    result._top = top
    result._token_texts = probe.token_texts
    if probe.predicts_tokens:
        outputs = {c.output for e in effects for c in (*e.likeliest, *e.changes, *e.successors)}
        outputs |= {name for one in (sweep.ranked if sweep else ()) for name in one.after}
        known = probe.tokenizer.vocabulary
        result._output_texts = {name: probe.output_text(name) for name in outputs if name in known}
    return result


def sweep_heads(probe: Probe) -> HeadSweep:
    """Remove every head alone, many copies of the text at a time."""
    every = [(layer, head) for layer in range(1, probe.num_layers + 1) for head in range(probe.num_heads)]
    effects = []
    with probe.evaluation_mode():
        before = probe.logits()[0]
        for group in in_groups(every, BATCH_TOKENS[probe.ids.device.type] // (probe.rows_per_copy * len(probe.ids))):
            heads = [head for head in group for _ in range(probe.rows_per_copy)]
            with record(probe.encoder, edit=partial(_remove_one_per_row, heads=heads)):
                after = probe.logits(probe.ids.expand(len(group), -1))
            effects += [_head_effect(probe, head, before, row) for head, row in zip(group, after, strict=True)]
    effects.sort(key=lambda one: (-one.strength, one.layer, one.head))
    return HeadSweep("change" if probe.problem_type == "regression" else "divergence", probe.targets, tuple(effects))


def _head_effect(probe: Probe, head: tuple[int, int], before: Tensor, after: Tensor) -> HeadEffect:
    divergences, distances = kl_divergence(probe, before, after), output_distance(probe, before, after)
    strengths = distances if divergences is None else divergences
    changed: tuple[str, ...] = ()
    best = tuple("" for _ in probe.targets)
    if probe.problem_type != "regression":
        same = (before.argmax(-1) == after.argmax(-1)).tolist()
        changed = tuple(target for target, equal in zip(probe.targets, same, strict=True) if not equal)
        best = tuple(probe.outputs[index] for index in after.argmax(-1).tolist())
    means = strengths.mean().item(), distances.mean().item()
    return HeadEffect(*head, *means, changed, tuple(strengths.tolist()), best)


def _effect(probe: Probe, target: str, before: Tensor, after: Tensor, top: int) -> AblationEffect:
    old, new = probe.probabilities(before), probe.probabilities(after)
    listed = min(top, len(old))

    def changes(order: Tensor) -> tuple[OutputChange, ...]:
        return tuple(OutputChange(probe.outputs[i], old[i].item(), new[i].item()) for i in order.tolist())

    best = ["" if probe.problem_type == "regression" else probe.outputs[int(one.argmax())] for one in (old, new)]
    divergences, distance = kl_divergence(probe, before, after), output_distance(probe, before, after).item()
    divergence = None if divergences is None else divergences.item()
    return AblationEffect(
        target=target,
        before=best[0],
        after=best[1],
        divergence=divergence,
        distance=distance,
        strength=distance if divergence is None else divergence,
        likeliest=changes(old.topk(listed).indices),
        changes=changes((new - old).abs().topk(listed).indices),
        successors=changes(new.topk(listed).indices),
    )


def _table(changes: Sequence[OutputChange], form: str) -> Iterator[str]:
    for name, one in zip(padded(one.output for one in changes), changes, strict=True):
        yield f"    {name}{one.before:{form}} -> {one.after:{form}}"


def kl_divergence(probe: Probe, before: Tensor, after: Tensor) -> Tensor | None:
    """The Kullback-Leibler divergence over the last dimension, None for values; clamped at 0 against rounding."""
    old, new = before.double(), after.double()
    if probe.problem_type == "regression":
        return None
    if probe.problem_type == "single_label_classification":
        return F.kl_div(new.log_softmax(-1), old.log_softmax(-1), reduction="none", log_target=True).sum(-1).clamp(0)
    yes = F.kl_div(F.logsigmoid(new), F.logsigmoid(old), reduction="none", log_target=True)
    no = F.kl_div(F.logsigmoid(-new), F.logsigmoid(-old), reduction="none", log_target=True)
    return (yes + no).sum(-1).clamp(0)


def output_distance(probe: Probe, before: Tensor, after: Tensor) -> Tensor:
    """Over the last dimension: the total variation distance, the largest change of a label, or a value's change."""
    change = (probe.probabilities(after) - probe.probabilities(before)).abs()
    return change.sum(-1) / 2 if probe.problem_type == "single_label_classification" else change.amax(-1)


def parse_heads(names: str, *, num_layers: int, num_heads: int) -> tuple[tuple[int, int], ...]:
    """Heads named as in `3.1,4.*`: layers from 1 (-1 is the last), heads from 0, * for all; sorted, each once."""
    heads: set[tuple[int, int]] = set()
    for name in (part.strip() for part in names.split(",") if part.strip()):
        match = HEAD.fullmatch(name)
        if match is None:
            raise InputError(
                f"a head is named {name!r}; expected LAYER.HEAD, from layer 1 and head 0, such as 3.1, 4.* or *.0"
            )
        layer, head = match.groups()
        layers = range(1, num_layers + 1) if layer == "*" else [check_layer(int(layer), num_layers)]
        numbers = range(num_heads) if head == "*" else [check_head(int(head), num_heads)]
        heads |= {(i, j) for i in layers for j in numbers}
    if not heads:
        raise InputError(f"no head in {names!r}; expected such as 3.1,4.*, or nothing to try every head alone")
    return tuple(sorted(heads))


def parse_layers(names: str, *, num_layers: int) -> tuple[int, ...]:
    """Layers named as in `2,3`, from 1 (-1 is the last); sorted, without duplicates."""
    layers = [name.strip() for name in names.split(",") if name.strip()]
    for name in layers:
        if LAYER.fullmatch(name) is None:
            raise InputError(f"a layer is named {name!r}; expected its number from 1, such as 2 or 2,3")
    if not layers:
        raise InputError(f"no layer in {names!r}; expected numbers from 1, such as 2,3")
    return tuple(sorted({check_layer(int(name), num_layers) for name in layers}))


def _remove_one_per_row(weights: Tensor, site: Site, *, heads: Sequence[tuple[int, int]]) -> Tensor:
    """An edit of attention weights that removes a different head in every row of the batch."""
    keep = torch.ones(weights.shape[:2], device=weights.device, dtype=weights.dtype)
    for row, (layer, head) in enumerate(heads):
        if layer == site.layer:
            keep[row, head] = 0
    return weights * keep[:, :, None, None]


def skip_layers(encoder: nn.Module, layers: Collection[int]) -> AbstractContextManager[None]:
    """Make layers, numbered from 1, return their input."""
    family = family_of(encoder)
    assert family is not None
    stack: Any = getattr(encoder, family.stacks[0])

    def return_input(module: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any], output: Tensor) -> Tensor:
        return Context.of(inputs[1]).select(inputs[0])

    return forward_hooks((stack.layers[layer - 1], return_input) for layer in layers)
