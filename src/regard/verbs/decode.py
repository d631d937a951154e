"""`regard decode`: greedy search, beam search or sampling step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.generation_config import GenerationConfig
from regard.verbs.base import PAGE, ModelName, Models, Request, argument, model_option, option, verb

if TYPE_CHECKING:
    from regard.interpret.decoding import DecodingSteps

DEFAULT_TRANSLATOR = "regard-fr-en"


class DecodeRequest(Request, GenerationConfig):
    text: str = argument(help="The text to translate, or to continue.")
    model: ModelName = model_option(
        DEFAULT_TRANSLATOR, "A translator or a language model: a folder, a hub name or a built-in name."
    )

    max_new_tokens: int = option(20, help="Maximum number of tokens to generate.", metavar="N", ge=1)


@verb(
    DecodeRequest,
    result="regard.interpret.decoding:DecodingSteps",
    formats=(*PAGE, ".csv", ".json"),
    notes=True,
    http_limits={"max_new_tokens": 100, "num_beams": 16, "num_return_sequences": 8},
)
def decode(request: DecodeRequest, models: Models) -> DecodingSteps:
    """Show how a text is found: the candidates of every step, and which of them were kept.

    --temperature 0 is greedy search, --num-beams 4 a beam search, otherwise each token is sampled. In the printed list
    * was kept, ! ended a text, - was cut by a filter; a number names the prefix that is continued.

    Example: regard decode "Je suis étudiant" --num-beams 3
    """
    from regard.interpret.decoding import decode_in_steps

    with models.use(request.model) as loaded:
        result = decode_in_steps(loaded, request.text, request.config())
        notes = [] if loaded.translator is None else loaded.translator.source_notes(request.text)
    return result.model_copy(update={"notes": [*result.notes, *notes]})
