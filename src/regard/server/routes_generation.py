"""The view of generation: texts to generate, the text as it is generated, and a branch as a new prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from regard.errors import InputError
from regard.known import DEFAULT_CAUSAL_LM
from regard.server.arguments import MAX_INTEGER, Arguments, Payload, integer_argument, text_argument
from regard.server.studio import Studio
from regard.verbs import find

if TYPE_CHECKING:
    from regard.generation_config import GenerationConfig
    from regard.interpret.generation import Generation

TOKENS = 400  # maximum length of a text in the studio
BEAM = 16
CAN = ("writer", "unknown")  # kinds of models that may generate text
SECOND = "b_"  # before the names of the second column's settings


def generation(studio: Studio, arguments: Arguments) -> Payload:
    """The texts to generate, still empty; with `place`, for a file, complete.

    Arguments: `prompt`, `model`, and the settings `temperature`, `top_p`, `top_k`, `min_p`, `repetition`, `seed`,
    `tokens`, `beam`. `second` adds a second column: `b_model` and the other settings with the prefix `b_`; what is
    blank is as in the first column.
    """
    from regard.interpret.generation import CAVEAT, generate_side_by_side

    file = "place" in arguments
    model = text_argument(arguments, "model", DEFAULT_CAUSAL_LM)
    if model in studio.models.entries and studio.models.entries[model].kind not in CAN:
        return _none(model, {} if file else _studio(studio))
    with _generations(studio, arguments) as generations:
        if file:
            generate_side_by_side(generations, lambda event: None)
        lines = [_lines(one) for one in generations]
        payload = {
            "view": "generation",
            "prompt": generations[0].prompt_text,
            "caveat": CAVEAT,
            "runs": [one.result().run().model_dump(mode="json") for one in generations],
            "cli": "\n".join(cli for cli, _ in lines),
            "python": "\n\n".join(python for _, python in lines),
        }
        return payload if file else {**payload, **_studio(studio)}


def write(studio: Studio, arguments: Arguments, on_event: Callable[[Payload], None]) -> None:
    """Generate the texts and report the events of `generate_side_by_side`."""
    from regard.interpret.generation import generate_side_by_side

    with _generations(studio, arguments) as generations:
        on_event({"type": "start", "runs": len(generations)})
        generate_side_by_side(generations, lambda event: on_event(event.model_dump(mode="json")))


def _lines(one: Generation) -> tuple[str, str]:
    """The command and the Python call that generate the same."""
    verb = find("generate")
    settings = one.config.model_dump(exclude_defaults=True)
    request = verb.parse({"prompt": one.prompt_text, "model": one.name, "candidates": True, **settings}, files=False)
    return verb.command_line(request), verb.python_code(request)


def branch(studio: Studio, arguments: Arguments) -> Payload:
    """The prompt that continues from a branch. Arguments: `model`, `prompt`, and `ids`, the tokens after the prompt."""
    model, text, ids = (
        text_argument(arguments, "model", DEFAULT_CAUSAL_LM),
        text_argument(arguments, "prompt", ""),
        text_argument(arguments, "ids"),
    )
    entry = studio.models.entries.get(model)
    if entry is None or entry.loaded is None:
        raise InputError(f"the studio has no model {model!r} ready")
    from regard.inference.generation.text_generator import REPLACEMENT, TextGenerator
    from regard.text import Tokenizer

    network, tokenizer = entry.loaded
    if not isinstance(tokenizer, Tokenizer):
        raise InputError(f"{model} does not continue a prompt")
    if not TextGenerator(network, tokenizer).continues:
        raise InputError(f"{model} answers its prompt and does not continue it, so there is no prompt for a branch")
    if not all(one.isdecimal() and len(one) < 10 and int(one) < tokenizer.size for one in ids.split()):
        raise InputError(f"'ids' should be numbers of tokens below {tokenizer.size:,}, got {ids[:40]!r}")
    before = tokenizer.encode(text, add_special_tokens=False).ids
    known = tokenizer.decode(before)
    new = tokenizer.decode([*before, *map(int, ids.split())])[len(known) :]
    if new.endswith(REPLACEMENT):
        raise InputError("this branch ends inside a character; go on from its next token")
    return {"prompt": text + new}


@contextmanager
def _generations(studio: Studio, arguments: Arguments) -> Iterator[list[Generation]]:
    """The columns, not started yet, while their models are in use."""
    text = text_argument(arguments, "prompt", "")
    first = text_argument(arguments, "model", DEFAULT_CAUSAL_LM)
    names, configs = [first], [_config(arguments, {})]
    if text_argument(arguments, "second", "").strip():
        names.append(text_argument(arguments, "b_model", first))
        own = {name.removeprefix(SECOND): value for name, value in arguments.items() if name.startswith(SECOND)}
        configs.append(_config(own, arguments))
    with ExitStack() as stack:
        # In one order for all requests, or two could wait for each other's model forever.
        models = {name: stack.enter_context(studio.models.use_text_model(name)) for name in sorted(set(names))}
        from regard.interpret.generation import Generation

        yield [Generation(models[name], text, config) for name, config in zip(names, configs, strict=True)]


def _config(own: Arguments, others: Arguments) -> GenerationConfig:
    """The settings of one column; a blank one is that of the other column, or else the default."""
    from pydantic import ValidationError

    from regard.generation_config import SAMPLING, GenerationConfig

    def typed(name: str) -> str:
        return text_argument(own, name, "").strip() or text_argument(others, name, "").strip()

    def whole(name: str, default: int, most: int = MAX_INTEGER) -> int:
        return integer_argument({name: typed(name)}, name, default, least=0, most=most)

    settings: dict[str, object] = {"max_new_tokens": whole("tokens", 60, TOKENS) or 1, "seed": whole("seed", 0)}
    beams = whole("beam", 0, BEAM)
    if beams > 1:
        settings |= {"num_beams": beams, "num_return_sequences": beams}
    elif beams == 1:  # greedy search
        settings["temperature"] = 0.0
    else:
        names = {"repetition": "repetition_penalty"}
        typed_values = {names.get(name, name): typed(name) for name in (*SAMPLING[1:], "repetition")}
        settings |= {
            name: value for name, value in typed_values.items() if value and not (name == "top_k" and value == "0")
        }
    try:
        return GenerationConfig.model_validate(settings)
    except ValidationError as error:
        fault = error.errors()[0]
        name = str(fault["loc"][0]) if fault["loc"] else "settings"
        value = str(settings.get(name, ""))[:40]
        raise InputError(f"{name!r} is {value!r}; {fault['msg'].replace('Input should be', 'expected')}") from None


def _none(model: str, studio: Payload) -> Payload:
    """The view for a model that generates no text."""
    from regard.interpret.generation import CAVEAT

    note = f"{model} does not generate text: it cannot continue a prompt."
    again = {
        "cli": "regard generate PROMPT --model DIR",
        "python": "import regard\n\nregard.generate('PROMPT', model='DIR')",
    }
    return {"view": "generation", "prompt": "", "caveat": CAVEAT, "runs": [], "note": note, **again, **studio}


def _studio(studio: Studio) -> Payload:
    """Data that only a running studio has."""
    from regard.interpret.generation import PROMPTS

    writers = [name for name, entry in studio.models.entries.items() if entry.kind in CAN]
    return {"studio": {"writers": writers, "prompts": PROMPTS, "most_tokens": TOKENS, "most_beam": BEAM}}
