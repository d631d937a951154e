"""The views of ablation and faithfulness. What a model computed for a text is cached while the user tries one head
after the other."""

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

    from regard.interpret.faithfulness.trial import Trial
    from regard.text import Tokenizer

    Pair = tuple[nn.Module, Tokenizer | None]

__all__ = ["honesty", "surgery"]


def surgery(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `model`, `text`, `text_b`, `heads` and `layers` to take out, `at`: masked, plain or blanks."""
    model = said(arguments, "model", DEFAULT)
    text, second = said(arguments, "text"), said(arguments, "text_b", "").strip() or None
    heads, layers = said(arguments, "heads", "").strip(), said(arguments, "layers", "").strip()
    with studio.models.use(model) as pair:
        from regard.interpret.faithfulness.surgery import heads_named, layers_named
        from regard.interpret.faithfulness.surgery_payload import surgery_payload, swept
        from regard.interpret.faithfulness.trial import task_trial

        if studio.models.entries[model].kind == "tuned":
            trial, at = task_trial(studio.models.fine_tuned(model), text, second), "blanks"
        else:
            trial, at = _asked(pair, text, second, said(arguments, "at", "").strip())
        payload = surgery_payload(
            model,
            trial,
            heads=heads_named(heads, depth=trial.depth, heads=trial.heads) if heads else (),
            layers=layers_named(layers, depth=trial.depth) if layers else (),
            at=at,
            tried=studio.models.entry(model).cached("ablation", (text, second, at), lambda: swept(trial)),
        )
    return {**payload, **_live(studio, arguments)}


def honesty(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `model`, `text`, `text_b`; `label`, `layer` and `head` where they are not the usual ones."""
    model = said(arguments, "model", DEFAULT)
    text, second = said(arguments, "text"), said(arguments, "text_b", "").strip() or None
    label = said(arguments, "label", "") or None
    layer, head = (counted(arguments, name, None, least=0) for name in ("layer", "head"))
    with studio.models.use(model) as pair:
        from regard.interpret.faithfulness.honesty_payload import BLANK, honesty_payload, untuned_payload
        from regard.interpret.faithfulness.trial import task_trial, trial_of

        if studio.models.entries[model].kind != "tuned":
            try:
                payload = honesty_payload(model, trial_of(*pair, text), layer=layer, head=head)
            except InputError as error:  # no blank in it, say; what is missing first of all is a tuned model
                example = BLANK if _is_asked(pair, BLANK) else None
                payload = untuned_payload(model, text, str(error), example=example)
            return {**payload, **_live(studio, arguments)}
        # Hundreds of forward passes: the exported page reuses the result.
        trial = task_trial(studio.models.fine_tuned(model), text, second)
        payload = studio.models.entry(model).cached(
            "faithfulness",
            (text, second, label, layer, head),
            lambda: honesty_payload(model, trial, label=label, layer=layer, head=head),
        )
    return {**payload, **_live(studio, arguments)}


def _is_asked(pair: Pair, text: str) -> bool:
    """Whether a pretrained model can be asked about a text."""
    from regard.interpret.faithfulness.trial import trial_of

    try:
        trial_of(*pair, text)
    except InputError:
        return False
    return True


def _asked(pair: Pair, text: str, second: str | None, at: str) -> tuple[Trial, str]:
    """The trial and where the model is asked: the most telling way that the text allows, where none is named."""
    from regard.interpret.faithfulness.everywhere import LONGEST, asked_at, possible

    if at:
        return asked_at(*pair, text, second, at=at), at
    first = possible(pair[0])[0]
    plain = asked_at(*pair, text, second, at="plain" if first == "masked" else first)
    if first != "masked" or len(plain.spots) > LONGEST:
        return plain, "plain" if first == "masked" else first
    return asked_at(*pair, text, second, at=first), first


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
