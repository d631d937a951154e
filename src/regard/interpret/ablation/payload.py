"""Surgery as a page takes it: the view "ablation". What the model says at every place with and without some heads and
layers, and what becomes of it when each head alone is missing.

Knows the page's names and which lines of the command line and Python say the same. Knows no HTML.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

from regard.checkpoints.ready import family_of
from regard.interpret.ablation.ablation import (
    Ablation,
    AblationEffect,
    HeadEffect,
    HeadSweep,
    OutputChange,
    ablate,
    sweep_heads,
)
from regard.interpret.attribution.probe import Probe, probe_modes, subsample_targets

__all__ = ["MAX_SWEEP_TARGETS", "ablation_payload", "sweep_subsample"]

MAX_SWEEP_TARGETS = 8  # tokens that are hidden in turn while every head is tried: each is a text of its own to read
TOP = 6  # outputs of a place that are told


def sweep_subsample(trial: Probe) -> tuple[Probe, HeadSweep]:
    """Every head alone, at as many places as somebody can wait for, and the trial of these places."""
    few = subsample_targets(trial, MAX_SWEEP_TARGETS)
    return few, sweep_heads(few)


def ablation_payload(
    name: str,
    trial: Probe,
    *,
    heads: Collection[tuple[int, int]] = (),
    layers: Collection[int] = (),
    at: str = "blanks",
    tried: tuple[Probe, HeadSweep] | None = None,
) -> dict[str, object]:
    """The document of the view "ablation" for a trial of the model `name`, asked `at` one of the ways there are.

    `tried` is what `swept` said of the trial, where that is known.
    """
    found = ablate(trial, heads=heads, layers=layers, top=TOP)
    few, every = tried or sweep_subsample(trial)
    spell = _Spelling(trial)
    return {
        "view": "ablation",
        "model": {
            "name": name,
            "family": family_of(trial.encoder),
            "task": trial.task,
            "kind": trial.kind,
            "depth": trial.num_layers,
            "heads": trial.num_heads,
        },
        "texts": list(trial.texts),
        "tokens": [trial.token_text(number) for number in trial.ids.tolist()],
        "special": list(trial.special),
        "at": at,
        "ways": list(probe_modes(trial.model)) if trial.task in ("fill", "next") else ["blanks"],
        "spots": list(trial.positions),
        "gone": {"heads": [list(head) for head in found.heads], "layers": list(found.layers)},
        "effects": [spell.effect(effect) for effect in found.effects],
        "sweep": {
            "measure": every.measure,
            "places": [trial.targets.index(place) for place in few.targets],
            "heads": [spell.ranked(one) for one in sorted(every.ranked, key=lambda one: (one.layer, one.head))],
        },
        "cli": _command(name, trial, found, at),
        "python": _python(name, trial, found, at),
    }


class _Spelling:
    """Numbers in six figures, and tokens of a vocabulary as people read them."""

    def __init__(self, trial: Probe) -> None:
        self._trial = trial
        self._words = trial.task in ("fill", "next")

    def effect(self, effect: AblationEffect) -> dict[str, object]:
        return {
            "place": effect.place,
            "before": self._name(effect.before),
            "after": self._name(effect.after),
            "strength": _short(effect.strength),
            "distance": _short(effect.distance),
            "likeliest": [self._change(one) for one in effect.likeliest],
            "changes": [self._change(one) for one in effect.changes],
            "successors": [self._change(one) for one in effect.successors],
        }

    def ranked(self, one: HeadEffect) -> dict[str, object]:
        return {
            "layer": one.layer,
            "head": one.head,
            "strength": _short(one.strength),
            "distance": _short(one.distance),
            "changed": len(one.changed),
            "strengths": [_short(value) for value in one.strengths],
            "after": [self._name(name) for name in one.after],
        }

    def _change(self, one: OutputChange) -> dict[str, object]:
        return {"output": self._name(one.output), "before": _short(one.before), "after": _short(one.after)}

    def _name(self, name: str) -> str:
        number = self._trial.tokenizer.vocabulary.get(name) if self._words else None
        return name if number is None else self._trial.token_text(number).strip()


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def _command(name: str, trial: Probe, found: Ablation, at: str) -> str:
    options = [] if at == "blanks" else ["--at", at]
    options += ["--heads", _named(found.heads, trial.num_heads)] if found.heads else []
    options += ["--layers", ",".join(map(str, found.layers))] if found.layers else []
    texts = ["--", *trial.texts] if any(text.startswith("-") for text in trial.texts) else list(trial.texts)
    return shlex.join(["regard", "ablate", "--model", name, *options, "--output", "page.html", *texts])


def _named(heads: Sequence[tuple[int, int]], each: int) -> str:
    """As `--heads` reads them, with 4.* for all heads of layer 4."""
    names: list[str] = []
    for layer in sorted({layer for layer, _ in heads}):
        own = [head for one, head in heads if one == layer]
        names += [f"{layer}.*"] if len(own) == each else [f"{layer}.{head}" for head in own]
    return ",".join(names)


def _python(name: str, trial: Probe, found: Ablation, at: str) -> str:
    asked = ", ".join([repr(name), *map(repr, trial.texts)]) + ("" if at == "blanks" else f", at={at!r}")
    gone = bool(found.heads or found.layers)
    said = f"ablate(trial, heads={list(found.heads)!r}, layers={list(found.layers)!r}, top={TOP})"
    wanted = "ablation import ablate" if gone else "payload import sweep_subsample"
    return (
        f"from regard.interpret.ablation.{wanted}\n"
        "from regard.interpret.attribution.probe import open_probe\n"
        f"trial = open_probe({asked})\n{said if gone else 'sweep_subsample(trial)[1]'}"
    )
