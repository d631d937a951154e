"""The view "faithfulness" as a payload. Three ways to say which words count, and the six
tests with their verdict where the model is a classifier.

Knows the page's names and which lines of the command line and Python say the same. Knows no HTML.
"""

from __future__ import annotations

import shlex
from dataclasses import asdict

from regard.checkpoints.ready import family_of
from regard.interpret.attribution.evidence import Evidence, evidence_of, gather_evidence
from regard.interpret.attribution.gradients import Attribution
from regard.interpret.attribution.probe import Probe
from regard.interpret.faithfulness.checks import PERMUTED
from regard.interpret.faithfulness.faithfulness import REQUIRED_PASSES, Faithfulness, measure_faithfulness
from regard.interpret.faithfulness.wording import VERDICTS, meanings

__all__ = ["EXAMPLE_WITH_BLANK", "faithfulness_payload", "has_verdict", "no_verdict_reason", "pretrained_payload"]

# For models that are not tuned: what a pretrained model can be asked about.
EXAMPLE_WITH_BLANK = "Thank you so much, this is the _ help I ever got in New York."


def has_verdict(trial: Probe) -> bool:
    """Whether the meter has a verdict on what this trial shows."""
    return trial.task in ("classify", "pair") and len(trial.outputs) > 1


def no_verdict_reason(trial: Probe) -> str:
    """Why there is none."""
    what = {"fill": "fills in blanks", "next": "goes on with texts"}.get(trial.task, f"does {trial.task}")
    return (
        f"This model {what} and has no classes, so there is no verdict: the meter judges what "
        "`regard train classify` and `pair` write."
    )


def faithfulness_payload(
    name: str,
    trial: Probe,
    *,
    label: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    seed: int = 0,
    found: Faithfulness | Evidence | None = None,
) -> dict[str, object]:
    """The document of the view "faithfulness"; the arguments are those of `measure_faithfulness`.

    `found` is what was measured with these arguments, where that is known.
    """
    judged = has_verdict(trial)
    if found is None and judged:
        found = measure_faithfulness(trial, label=label, layer=layer, head=head, seed=seed)
    elif found is None:
        found = gather_evidence(trial, label=label, layer=layer, head=head)
    ground = evidence_of(trial, found) if isinstance(found, Faithfulness) else found
    words = trial.task in ("fill", "next")
    return {
        "view": "faithfulness",
        "model": {
            "name": name,
            "family": family_of(trial.encoder),
            "task": trial.task,
            "kind": trial.kind,
            "depth": trial.num_layers,
            "heads": trial.num_heads,
            "labels": [] if words else list(trial.outputs),
        },
        "texts": list(trial.texts),
        "asked": {"label": label, "layer": layer, "head": head},
        "grounds": _grounds(trial, ground, words),
        "verdict": _verdict(trial, found) if isinstance(found, Faithfulness) else None,
        "notes": [] if judged else [no_verdict_reason(trial)],
        "cli": _command(name, trial, label, layer, head, seed),
        "python": _python(name, trial, label, layer, head, seed),
    }


def pretrained_payload(name: str, text: str, why: str, *, example: str | None = None) -> dict[str, object]:
    """The view for a pretrained model that cannot even say a word for the text, with the reason.

    `example` is a text for which it can.
    """
    return {
        "view": "faithfulness",
        "model": None,
        "texts": [text],
        "asked": {"label": None, "layer": None, "head": None},
        "grounds": None,
        "verdict": None,
        "notes": [
            f"{name} was pretrained and not tuned for a task: it has no classes, so there is no verdict.",
            f"It could show what one of its words stands on, but: {why}",
        ],
        "example": None if example is None else {"model": name, "text": example},
        "cli": "regard train classify --train FILE --output DIR",
        "python": "import regard\nregard.fit('classify', 'FILE', output='DIR')",
    }


def _grounds(trial: Probe, found: Evidence, words: bool) -> dict[str, object]:
    return {
        "place": found.place,
        "label": trial.token_text(trial.tokenizer.id(found.label)).strip() if words else found.label,
        "probability": _short(found.probability),
        "token": found.token,
        "layer": found.layer,
        "head": found.head,
        "tokens": [trial.token_text(number) for number in trial.ids.tolist()],
        "special": list(found.special),
        "weights": [_short(value) for value in found.weights],
        "gradient": _scores(found.gradient),
        "integrated": _scores(found.integrated),
    }


def _scores(found: Attribution) -> dict[str, object]:
    return {
        "scores": [_short(score) for score in found.scores],
        "value": _short(found.value),
        "baseline": found.baseline,
        "start": None if found.start is None else _short(found.start),
        "steps": found.steps,
        "error": None if found.error is None else _short(found.error),
    }


def _verdict(trial: Probe, found: Faithfulness) -> dict[str, object]:
    means = meanings(len(trial.outputs), several=trial.kind == "several")
    return {
        "verdict": found.verdict,
        "flagged": found.flagged,
        "means": VERDICTS[found.verdict],
        "other": found.other,
        "special_weight": _short(found.special_weight),
        "needed": REQUIRED_PASSES,
        "decisive": PERMUTED,
        "seed": found.seed,
        "checks": [
            {
                **asdict(check),
                "passed": check.passed,
                "done": means[check.name].done,
                "means": means[check.name].passed if check.passed else means[check.name].failed,
            }
            for check in found.checks
        ],
    }


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def _command(name: str, trial: Probe, label: str | None, layer: int | None, head: int | None, seed: int) -> str:
    options = [] if label is None else [f"--label={label}"]
    options += [] if layer is None else ["--layer", str(layer)]
    options += [] if head is None else ["--head", str(head)]
    options += ["--seed", str(seed)] if seed else []
    given = [name, *trial.texts]
    plain = ["--", *given] if any(one.startswith("-") for one in given) else given
    return shlex.join(["regard", "honesty", *options, "--output", "page.html", *plain])


def _python(name: str, trial: Probe, label: str | None, layer: int | None, head: int | None, seed: int) -> str:
    asked = ", ".join([repr(name), *map(repr, trial.texts)])
    chosen = {"label": label, "layer": layer, "head": head}
    said = "".join(f", {key}={value!r}" for key, value in chosen.items() if value is not None)
    judged = has_verdict(trial)
    doing, where = "gather_evidence", "attribution.evidence"
    if judged:
        doing, where = "measure_faithfulness", "faithfulness.faithfulness"
    return (
        f"from regard.interpret.{where} import {doing}\n"
        "from regard.interpret.attribution.probe import open_probe\n"
        f"{doing}(open_probe({asked}){said}{f', seed={seed}' if seed and judged else ''})"
    )
