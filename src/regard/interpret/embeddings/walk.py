"""The lecture's walk from sentences to a classifier, as the page shows it: each stage with its real numbers.

The walk itself is `regard.interpret.probes.walk`. Knows which texts are walked with and the page's names;
knows no HTML.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from regard.data.examples import TextExample
from regard.errors import InputError
from regard.interpret.embeddings.chosen import drawn, left_out, piped
from regard.interpret.embeddings.contexts import Pair, device_of
from regard.interpret.probes.walk import Walk, walk
from regard.wording import truncation_note

__all__ = ["LIMIT", "payload_of", "walk_payload"]

LIMIT = 500  # texts: each is embedded twice, with a mask and without
FILE = "regard-features.csv"


def walk_payload(
    name: str,
    pair: Pair,
    examples: Sequence[TextExample],
    *,
    layer: int | str = -1,
    pooling: str = "cls",
    limit: int = LIMIT,
    seed: int = 0,
) -> dict[str, object]:
    """The document of the view "features" for a model called `name`: all of
    `regard.interpret.probes.walk.Walk`, with and without mask, and `examples`, the texts and labels it was made
    of. Above `limit`, texts are sampled at random.
    """
    given = [example for example in examples if example.text.strip()]
    used = [given[place] for place in drawn(len(given), limit, seed)]
    if not used or all(example.label is None for example in used):
        raise InputError("the sentences have no labels; put one behind each: a fine film | good")
    found = walk(pair, used, pooling=pooling, layer=layer, as_in_deck=True, seed=seed, device=device_of(pair))
    return payload_of(name, found, used, total=len(given), layer=layer, seed=seed)


def payload_of(
    name: str,
    found: Walk,
    used: Sequence[TextExample],
    *,
    total: int,
    layer: int | str = -1,
    seed: int = 0,
    source: str | None = None,
) -> dict[str, object]:
    """The same of a walk as in the deck that was made of `used`, of `total` texts.

    `source` are the options of `regard features` that say where they are from; without it the command line holds them,
    or names a file that the page gives.
    """
    if found.unmasked is None:
        raise InputError("the page shows the walk with and without a mask; make it with as_in_deck=True")
    notes = left_out(total, len(used), seed)
    if found.cut:
        notes.append(truncation_note(found.cut))
    texts, labels = [example.text for example in used], [str(example.label) for example in used]
    lines = piped(texts, labels)
    options = f"--model {shlex.quote(name)} --pooling {found.pooling} --layer={shlex.quote(str(layer))} --as-in-deck"
    options += f" --seed {seed}" if seed else ""
    told = "" if lines else f"  # {FILE}: the file of the button CSV with exact cells"
    given = f"{lines or ''} regard features --data {'-' if lines else FILE} {options}{told}".strip()
    document = asdict(found)
    document["features"] = np.round(np.array(found.features, dtype=np.float64), 6).tolist()
    return {
        "view": "features",
        "model": {"name": name},
        "layer": layer,
        **document,
        "examples": [[text, label] for text, label in zip(texts, labels, strict=True)],
        "total": total,
        "seed": seed,
        "notes": notes,
        "cli": given if source is None else f"regard features {source} {options}",
        "python": (
            f"{_examples(texts, labels, short=lines is not None)}"
            f"walk({name!r}, examples, pooling={found.pooling!r}, layer={layer!r}, as_in_deck=True, seed={seed})"
        ),
    }


def _examples(texts: Sequence[str], labels: Sequence[str], *, short: bool) -> str:
    """The Python that has the examples: a few are spelled, many are in the file that the page gives."""
    if short:
        listed = ", ".join(f"TextExample({text!r}, label={label!r})" for text, label in zip(texts, labels, strict=True))
        return (
            "from regard.data.examples import TextExample\nfrom regard.interpret.probes.walk import walk\n"
            f"examples = [{listed}]\n"
        )
    return (
        "from regard.data.readers import read_text_examples\nfrom regard.interpret.probes.walk import walk\n"
        f"examples = read_text_examples({FILE!r}, task='classify').examples  # the page's CSV with exact cells\n"
    )
