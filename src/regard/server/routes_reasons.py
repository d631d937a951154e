"""The views of ablation and faithfulness. Results are cached per model while the user tries one head after another."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import InputError
from regard.files.json_files import read_json
from regard.known import DEFAULT
from regard.server.arguments import Arguments, Payload, counted, said
from regard.server.studio import Studio

if TYPE_CHECKING:
    from torch import nn

    from regard.interpret.attribution.probe import Probe
    from regard.text import Tokenizer

    Pair = tuple[nn.Module, Tokenizer | None]

__all__ = ["honesty", "surgery"]


def surgery(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `model`, `text`, `text_b`, `heads` and `layers` to take out, `at`: masked, plain or blanks."""
    model = said(arguments, "model", DEFAULT)
    text, second = said(arguments, "text"), said(arguments, "text_b", "").strip() or None
    heads, layers = said(arguments, "heads", "").strip(), said(arguments, "layers", "").strip()
    with studio.models.use_text_model(model) as loaded:
        pair = loaded.model, loaded.tokenizer
        from regard.interpret.ablation.edits import parse_heads, parse_layers
        from regard.interpret.ablation.payload import ablation_payload, sweep_subsample
        from regard.interpret.attribution.probe import task_probe

        if studio.models.entries[model].kind == "tuned":
            trial, at = task_probe(studio.models.fine_tuned(model), text, second), "blanks"
        else:
            trial, at = _asked(pair, text, second, said(arguments, "at", "").strip())
        payload = ablation_payload(
            model,
            trial,
            heads=parse_heads(heads, depth=trial.num_layers, heads=trial.num_heads) if heads else (),
            layers=parse_layers(layers, depth=trial.num_layers) if layers else (),
            at=at,
            tried=studio.models.entry(model).cached(("ablation", text, second, at), lambda: sweep_subsample(trial)),
        )
    return {**payload, **_live(studio, arguments)}


def honesty(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `model`, `text`, `text_b`; `label`, `layer` and `head` where they are not the usual ones."""
    model = said(arguments, "model", DEFAULT)
    text, second = said(arguments, "text"), said(arguments, "text_b", "").strip() or None
    label = said(arguments, "label", "") or None
    layer, head = (counted(arguments, name, None, least=0) for name in ("layer", "head"))
    with studio.models.use_text_model(model) as loaded:
        pair = loaded.model, loaded.tokenizer
        from regard.interpret.attribution.probe import pretrained_probe, task_probe
        from regard.interpret.faithfulness.payload import EXAMPLE_WITH_BLANK, faithfulness_payload, pretrained_payload

        if studio.models.entries[model].kind != "tuned":
            try:
                payload = faithfulness_payload(model, pretrained_probe(*pair, text), layer=layer, head=head)
            except InputError as error:  # no blank in it, say; what is missing first of all is a tuned model
                example = EXAMPLE_WITH_BLANK if _is_asked(pair, EXAMPLE_WITH_BLANK) else None
                payload = pretrained_payload(model, text, str(error), example=example)
            return {**payload, **_live(studio, arguments)}
        # Hundreds of forward passes: the exported page reuses the result.
        trial = task_probe(studio.models.fine_tuned(model), text, second)
        payload = studio.models.entry(model).cached(
            ("faithfulness", text, second, label, layer, head),
            lambda: faithfulness_payload(model, trial, label=label, layer=layer, head=head),
        )
    return {**payload, **_live(studio, arguments)}


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


def _live(studio: Studio, arguments: Arguments) -> Payload:
    """Data that only a running studio has: an exported page, requested with `place`, has no server."""
    if "place" in arguments:
        return {}
    entries = studio.models.entries.values()
    return {"studio": {"tuned": [one.name for one in entries if one.kind == "tuned" and _classifies(one.name)]}}


def _classifies(name: str) -> bool:
    """Whether the model folder has a classification task; assumed when the folder has disappeared."""
    try:
        document = read_json(Path(os.path.expanduser(name)) / "task.json")
    except InputError:
        return True
    return document.get("task") in ("classify", "pair")
