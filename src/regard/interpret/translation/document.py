"""A decoding as a page takes it: one JSON document, its tensors as base64 of float32, small enough for a file.

Knows the page's names and what bytes cost. Knows no tensor library and no HTML.
"""

from __future__ import annotations

import base64
import shlex

import numpy as np

from regard.data.files import taken_for_file
from regard.errors import InputError
from regard.inference.generation.beam_search import Beam
from regard.interpret.translation.cross_attention import CrossAttention, Floats
from regard.interpret.translation.decoding_steps import DecodedHypothesis, TranslationSteps
from regard.models import Seq2Seq

__all__ = ["ROOM", "translation_document"]

ROOM = 9_000_000  # characters of base64


def translation_document(name: str, found: TranslationSteps, *, beam: Beam | None) -> dict[str, object]:
    """The document of the view "translation" for a translator called `name`, searched with this beam.

    Hypotheses for which a page has no room are left out, the worst first, and `notes` says so.
    """
    looking, seen = found.translator.alignment_heads, found.seen
    kept = _fitting(found)
    more = len(found.hypotheses) - len(kept)
    notes = [f"the last {more} of {len(found.hypotheses)} translations are left out: a page has no room for them"]
    return {
        "view": "translation",
        "model": {"name": name, **_model(found)},
        **found.document(),
        "hypotheses": [{**told.document(), "looks": told.looks and _looks(told.looks)} for told in kept],
        "looking": None if seen is None else {**looking.document(), "of": str(looking)},
        "states": None if seen is None else _text(seen.states),
        "values": None if seen is None or seen.values is None else _text(seen.values),
        "notes": notes if more else [],
        "cli": _command(name, found.text, beam),
        "python": _python(name, found.text, beam),
    }


def _model(found: TranslationSteps) -> dict[str, object]:
    model, seen = found.translator.model, found.seen
    recurrent = isinstance(model, Seq2Seq)
    shape = (0, 0) if seen is None else seen.looks[0].weights.shape[:2]
    return {
        "kind": model.config.cell if isinstance(model, Seq2Seq) else "transformer",
        "score": model.config.score if isinstance(model, Seq2Seq) else "scaled dot",
        "recipe": model.config.recipe if isinstance(model, Seq2Seq) else None,
        "width": model.config.hidden_size,
        "layers": shape[0],
        "heads": shape[1],
        "scale": None if seen is None or recurrent else seen.scale,
    }


def _fitting(found: TranslationSteps) -> list[DecodedHypothesis]:
    seen = found.seen
    if seen is None:
        return list(found.hypotheses)
    left = ROOM - sum(_characters(part) for part in (seen.states, seen.values) if part is not None)
    kept: list[DecodedHypothesis] = []
    for told in found.hypotheses:
        assert told.looks is not None
        left -= sum(_characters(part) for part in vars(told.looks).values())
        if left < 0:
            break
        kept.append(told)
    if not kept:
        rows, columns = len(found.hypotheses[0].steps), len(found.source.tokens)
        raise InputError(f"{rows} steps that look at {columns} tokens are too many for a page; give a shorter text")
    return kept


def _characters(part: Floats) -> int:
    return (4 * part.size + 2) // 3 * 4


def _looks(looks: CrossAttention) -> dict[str, str]:
    return {name: _text(part) for name, part in vars(looks).items()}


def _text(part: Floats) -> str:
    return base64.b64encode(np.ascontiguousarray(part, dtype="<f4").tobytes()).decode("ascii")


def _command(name: str, text: str, beam: Beam | None) -> str:
    width, nbest = (beam.num_beams, beam.num_return_sequences) if beam else (1, 1)
    penalty = ["--length-penalty", f"{beam.length_penalty:g}"] if beam and beam.length_penalty != 1 else []
    options = ["--beam", str(width), "--nbest", str(nbest), *penalty, "--page", "page.html"]
    # A text of one word, or one that a file is called, would be taken for a file: it comes as standard input.
    if taken_for_file(text):
        return f"printf '%s\\n' {shlex.quote(text)} | {shlex.join(['regard', 'translate', *options, name, '-'])}"
    return shlex.join(["regard", "translate", *options, *(["--"] if text.startswith("-") else []), name, text])


def _python(name: str, text: str, beam: Beam | None) -> str:
    said = "" if beam is None else f", beam={_written(beam)}"
    imported = "" if beam is None else "from regard.inference.generation.beam_search import Beam\n"
    return (
        f"{imported}from regard.interpret.translation.decoding_steps import translate_in_steps\n"
        "from regard.inference.translation import load_translator\n"
        f"translate_in_steps(load_translator({name!r}), {text!r}{said})"
    )


def _written(beam: Beam) -> str:
    penalty = f", length_penalty={beam.length_penalty!r}" if beam.length_penalty != 1 else ""
    return f"Beam(num_beams={beam.num_beams}, num_return_sequences={beam.num_return_sequences}{penalty})"
