"""What one answer of a model may stand on, in three ways beside each other: an attention map, integrated gradients and
gradient x input.

Knows trials. Judges nothing: `honesty` does.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from regard.errors import InputError
from regard.interpret.attribution.attention_map import attention_map
from regard.interpret.attribution.gradients import Attribution, gradient_times_input, integrated_gradients
from regard.interpret.attribution.probe import OutputKind, Probe
from regard.interpret.faithfulness.faithfulness import Faithfulness
from regard.models import Gpt

__all__ = ["Evidence", "evidence_of", "gather_evidence"]


@dataclass(frozen=True)
class Evidence:
    """`label` at `place` has `probability`, which is the value itself where the `kind` of answer is a value.

    `weights` are what the token number `token` looks at in `layer`, in one `head` or, None, in the mean of all.
    """

    kind: OutputKind
    place: str
    label: str
    probability: float
    token: int
    layer: int
    head: int | None
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    weights: tuple[float, ...]
    gradient: Attribution
    integrated: Attribution

    def document(self) -> dict[str, object]:
        return asdict(self)


def gather_evidence(
    trial: Probe, *, label: str | None = None, layer: int | None = None, head: int | None = None
) -> Evidence:
    """For an output by its name (the likeliest) at the first place, and the map of a layer (the last) and a head."""
    if trial.task in ("tag", "answer"):
        raise InputError(
            f"a model for {trial.task} gives many answers of one text; `regard predict DIR INPUT --page FILE` shows "
            "what each of them stands on"
        )
    gradient = gradient_times_input(trial, output=label)
    number = trial.outputs.index(gradient.output)
    blank = trial.positions[0] if trial.task == "fill" else None
    with trial.evaluating():
        shown = attention_map(trial, layer=layer, head=head, token=blank)
        share = trial.probabilities(trial.logits())[0, 0, number].item()
    return Evidence(
        kind=trial.kind,
        place=trial.targets[0],
        label=gradient.output,
        probability=share,
        token=_speaker(trial) if blank is None else blank,
        layer=shown.layer,
        head=shown.head,
        tokens=trial.tokens,
        special=trial.special,
        weights=tuple(shown.weights.tolist()),
        gradient=gradient,
        integrated=integrated_gradients(trial, output=gradient.output),
    )


def evidence_of(trial: Probe, found: Faithfulness) -> Evidence:
    """What the honesty meter has judged."""
    return Evidence(
        kind=trial.kind,
        place=trial.targets[0],
        label=found.label,
        probability=found.probability,
        token=_speaker(trial),
        layer=found.layer,
        head=found.head,
        tokens=found.tokens,
        special=trial.special,
        weights=found.weights,
        gradient=found.gradient,
        integrated=found.integrated,
    )


def _speaker(trial: Probe) -> int:
    return len(trial.ids) - 1 if isinstance(trial.encoder, Gpt) else 0
