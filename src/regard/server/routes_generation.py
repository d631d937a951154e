"""What the page can ask of models that write: what is to be written, the text as it comes, a branch as a new prompt.

Knows the names of the page's settings and their limits. Knows nothing of HTTP.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from regard.errors import InputError
from regard.known import DEFAULT_CAUSAL_LM
from regard.server.arguments import LARGEST, Arguments, Payload, counted, said
from regard.server.studio import Studio

if TYPE_CHECKING:
    from regard.interpret.generation.config import GenerationConfig
    from regard.interpret.generation.generation import Generation

__all__ = ["branch", "generation", "write"]

TOKENS = 400  # the most a text may have here
BEAM = 16
CAN = ("writer", "unknown")  # the kinds that may be asked; one that is unknown tells itself
SECOND = "b_"  # before the names of the second column's settings


def generation(studio: Studio, arguments: Arguments) -> Payload:
    """What is to be written, without a word of it yet; with `place`, for a file, all of it.

    Arguments: `prompt`, `model`, and the settings `temperature`, `top_p`, `top_k`, `min_p`, `repetition`, `seed`,
    `tokens`, `beam`. `second` asks for a second column: `b_model` and the other settings with `b_` before them, which
    are the first column's where they are blank.
    """
    from regard.interpret.generation.generation import generate_side_by_side, generation_payload

    file = "place" in arguments
    model = said(arguments, "model", DEFAULT_CAUSAL_LM)
    if model in studio.models.entries and studio.models.entries[model].kind not in CAN:
        return _none(model, {} if file else _studio(studio))
    with _speeches(studio, arguments) as speeches:
        if file:
            generate_side_by_side(speeches, lambda news: None)
        payload = generation_payload(speeches[0].prompt_text, speeches)
        return payload if file else {**payload, **_studio(studio)}


def write(studio: Studio, arguments: Arguments, tell: Callable[[Payload], None]) -> None:
    """The same, written: what comes is told as it comes, as `together` tells it."""
    from regard.interpret.generation.generation import generate_side_by_side

    with _speeches(studio, arguments) as speeches:
        tell({"begun": len(speeches)})
        generate_side_by_side(speeches, tell)


def branch(studio: Studio, arguments: Arguments) -> Payload:
    """The prompt that goes on from a branch. Arguments: `model`, `prompt`, and `ids`, the tokens behind the prompt."""
    model, text, ids = (
        said(arguments, "model", DEFAULT_CAUSAL_LM),
        said(arguments, "prompt", ""),
        said(arguments, "ids"),
    )
    entry = studio.models.entries.get(model)
    if entry is None or entry.loaded is None:
        raise InputError(f"the studio has no model {model!r} ready")
    from regard.inference.generation.text_generator import TextGenerator
    from regard.inference.generation.text_stream import REPLACEMENT
    from regard.text import Tokenizer

    network, tokenizer = entry.loaded
    if not isinstance(tokenizer, Tokenizer):
        raise InputError(f"{model} does not continue a prompt")
    if not TextGenerator(network, tokenizer).continues:
        raise InputError(f"{model} answers its prompt and does not continue it, so there is no prompt for a branch")
    if not all(one.isdecimal() and len(one) < 10 and int(one) < tokenizer.size for one in ids.split()):
        raise InputError(f"'ids' should be numbers of tokens below {tokenizer.size:,}, got {ids[:40]!r}")
    before = tokenizer.encode(text, special=False).ids
    known = tokenizer.decode(before)
    new = tokenizer.decode([*before, *map(int, ids.split())])[len(known) :]
    if new.endswith(REPLACEMENT):
        raise InputError("this branch ends inside a character; go on from its next token")
    return {"prompt": text + new}


@contextmanager
def _speeches(studio: Studio, arguments: Arguments) -> Iterator[list[Generation]]:
    """The columns, not yet begun, while their models are lent."""
    text = said(arguments, "prompt", "")
    first = said(arguments, "model", DEFAULT_CAUSAL_LM)
    names, wishes = [first], [_wish(arguments, {})]
    if said(arguments, "second", "").strip():
        names.append(said(arguments, "b_model", first))
        own = {name.removeprefix(SECOND): value for name, value in arguments.items() if name.startswith(SECOND)}
        wishes.append(_wish(own, arguments))
    with ExitStack() as stack:
        # In one order for all requests, or two could wait for each other's model forever.
        lent = {name: stack.enter_context(studio.models.use_text_model(name)) for name in sorted(set(names))}
        from regard.inference.generation.text_generator import TextGenerator
        from regard.interpret.generation.generation import Generation

        yield [
            Generation(TextGenerator(*lent[name]), text, wish, name) for name, wish in zip(names, wishes, strict=True)
        ]


def _wish(own: Arguments, others: Arguments) -> GenerationConfig:
    """The settings of one column; what is blank is as in the others, and there blank as at first."""
    from regard.inference.generation.beam_search import Beam
    from regard.inference.generation.logits_filters import Sampling
    from regard.interpret.generation.config import TEMPERATURE, TOP_P, GenerationConfig

    def typed(name: str) -> str:
        return said(own, name, "").strip() or said(others, name, "").strip()

    def number(name: str, default: float) -> float:
        value = typed(name)
        try:
            found = float(value) if value else default
        except ValueError:
            found = math.nan
        if not math.isfinite(found):
            raise InputError(f"{name!r} should be a number, got {value[:40]!r}")
        return found

    def whole(name: str, default: int, most: int = LARGEST) -> int:
        return counted({name: typed(name)}, name, default, least=0, most=most)

    sampling = Sampling(
        repetition_penalty=number("repetition", 1.0),
        temperature=number("temperature", TEMPERATURE),
        top_k=whole("top_k", 0) or None,
        top_p=number("top_p", TOP_P),
        min_p=number("min_p", 0.0),
    )
    width = whole("beam", 0, BEAM)
    beam = Beam(num_beams=width, num_return_sequences=width) if width else None
    return GenerationConfig(sampling, beam, whole("seed", 0), whole("tokens", 60, TOKENS) or 1)


def _none(model: str, studio: Payload) -> Payload:
    """Nothing to write with."""
    from regard.interpret.generation.prompts import CAVEAT

    note = f"{model} reads texts and writes none: it cannot continue a prompt."
    python = (
        "import regard\nfrom regard.interpret.generation.generation import generate\n\n"
        "generate(*regard.load('DIR'), 'PROMPT')"
    )
    again = {"cli": "regard generate PROMPT --model DIR --page page.html", "python": python}
    return {"view": "generation", "prompt": "", "caveat": CAVEAT, "runs": [], "note": note, **again, **studio}


def _studio(studio: Studio) -> Payload:
    """What the page needs to ask for more; a file has no server to ask."""
    from regard.interpret.generation.prompts import PROMPTS

    writers = [name for name, entry in studio.models.entries.items() if entry.kind in CAN]
    return {"studio": {"writers": writers, "prompts": PROMPTS, "most_tokens": TOKENS, "most_beam": BEAM}}
