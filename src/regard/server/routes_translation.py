"""The view of translation: a translated text with every decoding step."""

from __future__ import annotations

from regard.known import DEFAULT_MODEL
from regard.server.arguments import Arguments, Payload, integer_argument, text_argument
from regard.server.studio import Studio
from regard.verbs import find

MAX_BEAMS = 10  # a user waits for the answer


def translation(studio: Studio, arguments: Arguments) -> Payload:
    """Arguments: `model`, `text`, and `beam`, the number of beams; all hypotheses are returned."""
    model, text = text_argument(arguments, "model", DEFAULT_MODEL), text_argument(arguments, "text")
    width = integer_argument(arguments, "beam", 5, most=MAX_BEAMS)
    with studio.models.use(model) as loaded:
        from regard.inference.generation.beam_search import Beam
        from regard.inference.translation.subwords import Subwords
        from regard.inference.translation.translator import translator_of
        from regard.interpret.translation import translate_in_steps

        translators = [entry.name for entry in studio.models.entries.values() if entry.kind == "translator"]
        # An exported page has no other models.
        others = {} if "place" in arguments else {"studio": {"translators": translators}}
        if not isinstance(loaded.tokenizer, Subwords):
            return {**_no_translator(model), **others}
        beam = Beam(num_beams=width, num_return_sequences=width)
        result = translate_in_steps(translator_of(loaded), text, beam=beam, name=model)
        verb = find("translate")
        options = {"num_beams": width, "num_return_sequences": width, "page": "page.html"}
        request = verb.parse({"model": model, "source": [text], **options})
        result.with_reproduction(verb.command_line(request), verb.python_code(request))
        return {**result.page_data(), **others}


def _no_translator(model: str) -> dict[str, object]:
    return {
        "view": "translation",
        "model": None,
        "notes": [f"{model} does not translate: it was not trained on pairs of sentences."],
        "hypotheses": [],
        "cli": "regard train translate --train PAIRS --output DIR\nregard studio --model DIR",
        "python": "import regard\n\nregard.translate('DIR', ['a sentence'])",
    }
