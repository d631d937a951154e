"""What the page can ask of translators: a text translated, with every step of its decoding.

Knows which of the studio's models translate. Knows nothing of HTTP.
"""

from __future__ import annotations

from regard.known import DEFAULT_MODEL
from regard.server.arguments import Arguments, Payload, counted, said
from regard.server.studio import Studio

__all__ = ["WIDEST", "translation"]

WIDEST = 10  # hypotheses side by side: somebody waits for them


def translation(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `model`, `text`, and `beam`, the width of the search; its hypotheses are all told."""
    model, text = said(arguments, "model", DEFAULT_MODEL), said(arguments, "text")
    width = counted(arguments, "beam", 5, most=WIDEST)
    with studio.models.use(model) as (network, reader):
        from regard.inference.generation.beam_search import Beam
        from regard.inference.translation import Translator
        from regard.inference.translation.alignment import default_alignment_heads
        from regard.inference.translation.model import as_translation_model
        from regard.inference.translation.subwords import Subwords
        from regard.interpret.translation.decoding_steps import reproduction, translate_in_steps

        translators = [entry.name for entry in studio.models.entries.values() if entry.kind == "translator"]
        # An exported page has no other models to go to.
        others = {} if "place" in arguments else {"studio": {"translators": translators}}
        if not isinstance(reader, Subwords):
            return {**_no_translator(model), **others}
        beam, network = Beam(num_beams=width, num_return_sequences=width), as_translation_model(network)
        translator = Translator(network, reader, default_alignment_heads(network))
        result = translate_in_steps(translator, text, beam=beam, name=model)
        result.with_reproduction(*reproduction(model, text, beam))
        return {**result.page_data(), **others}


def _no_translator(model: str) -> dict[str, object]:
    return {
        "view": "translation",
        "model": None,
        "notes": [f"{model} does not translate: it was not trained on pairs of sentences."],
        "hypotheses": [],
        "cli": "regard train translate --train PAIRS --output DIR\nregard studio --model DIR",
        "python": "import regard.inference.translation as t\nt.load_translator('DIR').translate(['a sentence'])",
    }
