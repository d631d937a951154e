"""What the page can ask about reasons: a model without some heads, and whether a shown map may be read as a reason.

Knows which library function makes each payload, and keeps what was measured of every head alone while a user tries
one after the other. Knows nothing of HTTP.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from regard.errors import InputError
from regard.files.json_files import read_json
from regard.known import DEFAULT_MODEL
from regard.server.arguments import Arguments, Payload, counted, said
from regard.server.model_registry import ModelRegistry

if TYPE_CHECKING:
    from torch import nn

    from regard.interpret.ablation.ablation import HeadSweep
    from regard.interpret.attribution.probe import Probe
    from regard.text import Tokenizer

    Pair = tuple[nn.Module, Tokenizer | None]
    Tried = tuple[Probe, HeadSweep]
    Judged = tuple[nn.Module, Payload]

__all__ = ["honesty", "surgery"]

KEPT = 4  # answers that are remembered

Kept = TypeVar("Kept")

_judged: WeakKeyDictionary[ModelRegistry, dict[tuple[str, ...], Judged]] = WeakKeyDictionary()
_tried: WeakKeyDictionary[ModelRegistry, dict[tuple[str, ...], Tried]] = WeakKeyDictionary()


def surgery(registry: ModelRegistry, arguments: Arguments) -> Payload:
    """Arguments: `model`, `text`, `text_b`, `heads` and `layers` to take out, `at`: masked, plain or blanks."""
    model = said(arguments, "model", DEFAULT_MODEL)
    text, second = said(arguments, "text"), said(arguments, "text_b", "").strip() or None
    heads, layers = said(arguments, "heads", "").strip(), said(arguments, "layers", "").strip()
    with registry.use(model) as pair:
        from regard.interpret.ablation.edits import parse_heads, parse_layers
        from regard.interpret.ablation.payload import ablation_payload
        from regard.interpret.attribution.probe import task_probe

        if registry.entries[model].kind == "tuned":
            trial, at = task_probe(registry.solved(model), text, second), "blanks"
        else:
            trial, at = _asked(pair, text, second, said(arguments, "at", "").strip())
        payload = ablation_payload(
            model,
            trial,
            heads=parse_heads(heads, depth=trial.num_layers, heads=trial.num_heads) if heads else (),
            layers=parse_layers(layers, depth=trial.num_layers) if layers else (),
            at=at,
            tried=_swept(registry, trial, (model, text, second or "", at)),
        )
    return {**payload, **_live(registry, arguments)}


def honesty(registry: ModelRegistry, arguments: Arguments) -> Payload:
    """Arguments: `model`, `text`, `text_b`; `label`, `layer` and `head` where they are not the usual ones."""
    model = said(arguments, "model", DEFAULT_MODEL)
    text, second = said(arguments, "text"), said(arguments, "text_b", "").strip() or None
    label = said(arguments, "label", "") or None
    layer, head = (counted(arguments, name, None, least=0) for name in ("layer", "head"))
    with registry.use(model) as pair:
        from regard.interpret.attribution.probe import pretrained_probe, task_probe
        from regard.interpret.faithfulness.payload import EXAMPLE_WITH_BLANK, faithfulness_payload, pretrained_payload

        if registry.entries[model].kind != "tuned":
            try:
                payload = faithfulness_payload(model, pretrained_probe(*pair, text), layer=layer, head=head)
            except InputError as error:  # no blank in it, say; what is missing first of all is a tuned model
                example = EXAMPLE_WITH_BLANK if _is_asked(pair, EXAMPLE_WITH_BLANK) else None
                payload = pretrained_payload(model, text, str(error), example=example)
            return {**payload, **_live(registry, arguments)}
        # Hundreds of passes: what was just judged is not judged again for its exported page.
        trial = task_probe(registry.solved(model), text, second)
        known = _judged.setdefault(registry, {})
        question = (model, text, second or "", label or "", str(layer), str(head))
        judged = known.pop(question, None)
        if judged is None or judged[0] is not trial.model:
            judged = trial.model, faithfulness_payload(model, trial, label=label, layer=layer, head=head)
        _remember(known, question, judged)
    return {**judged[1], **_live(registry, arguments)}


def _is_asked(pair: Pair, text: str) -> bool:
    """Whether a pretrained model can be asked about a text."""
    from regard.interpret.attribution.probe import pretrained_probe

    try:
        pretrained_probe(*pair, text)
    except InputError:
        return False
    return True


def _asked(pair: Pair, text: str, second: str | None, at: str) -> tuple[Probe, str]:
    """The trial and where the model is asked: the most telling way that the text allows, where none is named."""
    from regard.interpret.attribution.probe import MAX_MASKED_TOKENS, pretrained_probe, probe_modes

    if at:
        return pretrained_probe(*pair, text, second, at=at), at
    first = probe_modes(pair[0])[0]
    plain = pretrained_probe(*pair, text, second, at="plain" if first == "masked" else first)
    if first != "masked" or len(plain.positions) > MAX_MASKED_TOKENS:
        return plain, "plain" if first == "masked" else first
    return pretrained_probe(*pair, text, second, at=first), first


def _swept(registry: ModelRegistry, trial: Probe, question: tuple[str, ...]) -> Tried:
    """Every head alone, measured once a text. A folder may hold another model by now: then it is measured again."""
    from regard.interpret.ablation.payload import sweep_subsample

    known = _tried.setdefault(registry, {})
    found = known.pop(question, None)
    if found is None or found[0].encoder is not trial.encoder:
        found = sweep_subsample(trial)
    _remember(known, question, found)
    return found


def _remember(known: dict[tuple[str, ...], Kept], question: tuple[str, ...], found: Kept) -> None:
    """Keep an answer, and drop the one that was asked for longest ago."""
    for old in list(known)[: max(0, len(known) + 1 - KEPT)]:
        known.pop(old, None)
    known[question] = found


def _live(registry: ModelRegistry, arguments: Arguments) -> Payload:
    """What only a studio can do: the exported page, which is asked for with its place, has no server."""
    if "place" in arguments:
        return {}
    entries = registry.entries.values()
    return {"studio": {"tuned": [one.name for one in entries if one.kind == "tuned" and _classifies(one.name)]}}


def _classifies(name: str) -> bool:
    """By what its folder says; one that has vanished may."""
    try:
        document = read_json(Path(os.path.expanduser(name)) / "task.json")
    except InputError:
        return True
    return document.get("task") in ("classify", "pair")
