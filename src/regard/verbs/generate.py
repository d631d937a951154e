"""`regard generate`: continues a prompt, with the text as it is generated."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import ValidationInfo, field_validator, model_validator

from regard.errors import InputError
from regard.events import Event, Note, TextPiece
from regard.generation_config import GenerationConfig
from regard.known import DEFAULT_CAUSAL_LM
from regard.verbs.base import (
    DecodingPrecision,
    ModelName,
    Models,
    Request,
    argument,
    decoding_precision_option,
    model_option,
    option,
    reads_files,
    verb,
)

if TYPE_CHECKING:
    from regard.inference.generation.text_generator import EncodedPrompt
    from regard.interpret.generation import GenerateResult

EXCERPT = 40  # characters of the truncated beginning of a prompt that a note shows


class GenerateRequest(Request, GenerationConfig):
    prompt: str = argument(help="The text to continue; - reads standard input.")
    chat: bool = option(
        False,
        help="Answer the prompt with the model's chat template. The prompt is a message, or a JSON list of messages, "
        'objects with "role" and "content".',
    )
    system: str | None = option(None, help="With --chat: the system message.", metavar="TEXT")
    model: ModelName = model_option(DEFAULT_CAUSAL_LM)
    assistant_model: ModelName | None = option(
        None,
        help="A smaller model with the same vocabulary that drafts tokens for speed; the text stays the same.",
        metavar="MODEL",
    )
    precision: DecodingPrecision = decoding_precision_option()
    candidates: bool = option(False, help="Record the candidates at every token, which the page shows.")
    trace: Path | None = option(
        None, help="Write every step of the search or of the samples to a .json or .html file.", metavar="FILE"
    )

    @field_validator("trace")
    @classmethod
    def _check_trace(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if value is not None and not reads_files(info):
            raise ValueError("a server does not write files; use the command line or Python")
        if value is not None and value.suffix.lower() not in (".json", ".html"):
            raise ValueError("expected a file name that ends in .json or .html")
        return value

    @field_validator("prompt", mode="before")
    @classmethod
    def _write_messages(cls, value: object) -> object:
        """Python and HTTP may give messages as a list."""
        return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _check_assistant(self) -> Self:
        if self.assistant_model == self.model:
            raise ValueError("assistant_model is the model itself, which drafts nothing faster; name a smaller model")
        return self

    @model_validator(mode="after")
    def _check_system(self) -> Self:
        if self.system is not None and not self.chat:
            raise ValueError("system is for a chat; set chat")
        return self

    @field_validator("prompt")
    @classmethod
    def _read_prompt(cls, value: str, info: ValidationInfo) -> str:
        from regard.data.files import STANDARD_INPUT, read_all_lines

        stdin = value == STANDARD_INPUT and reads_files(info)
        return "\n".join(read_all_lines(STANDARD_INPUT)) if stdin else value

    def config(self) -> GenerationConfig:
        return GenerationConfig(**{name: getattr(self, name) for name in GenerationConfig.model_fields})


@verb(
    GenerateRequest,
    result="regard.interpret.generation:GenerateResult",
    formats=(".html", ".svg", ".png", ".json"),
    http_limits={"max_new_tokens": 400, "num_beams": 16, "num_return_sequences": 16},
)
def generate(request: GenerateRequest, models: Models) -> Generator[Event, None, GenerateResult]:
    """Generate text: a GPT continues the prompt, a T5 or a chat model answers it. The text appears as it is generated.

    The same seed gives the same texts, however many are requested. A generated text is likely, which does not make it
    true. Ctrl-C ends with the text so far; beam search has no text before it is done. With --candidates, --output
    writes a page that shows what the model could have written instead at every token.
    """
    from regard.files.disk import replace_file
    from regard.interpret.generation import Generation

    if request.candidates and request.trace is not None:
        raise InputError("--trace does not go with --candidates, which records one text; leave out one of the two")
    with ExitStack() as stack:
        # Before the model is loaded: a file that cannot be written must not cost that time.
        target = None if request.trace is None else stack.enter_context(replace_file(request.trace))
        names = sorted({request.model, request.assistant_model or request.model})  # one order, as each is locked
        loaded = {name: stack.enter_context(models.use(name, precision=request.precision)) for name in names}
        generation = Generation(
            loaded[request.model],
            request.prompt,
            request.config(),
            candidates=request.candidates,
            record_trace=target is not None,
            chat=request.chat,
            system=request.system,
            assistant=None if request.assistant_model is None else loaded[request.assistant_model],
        )
        yield from _notes(generation.prompt, request.max_new_tokens)
        interrupted = False
        try:
            yield from generation.events()
        except KeyboardInterrupt:
            interrupted = True
            yield TextPiece(text="\n")
        if target is not None:
            generation.write_trace(target, cli=generate.command_line(request), python=generate.python_code(request))
    result = generation.result()
    result._interrupted = interrupted
    return result


def _notes(prompt: EncodedPrompt, requested: int) -> Generator[Note, None, None]:
    if prompt.truncated:
        text = " ".join(prompt.truncated_text.split())
        excerpt = text if len(text) <= EXCERPT else f"{text[: EXCERPT // 2]} ... {text[-EXCERPT // 2 :]}"
        yield Note(
            message=f"the prompt is too long for the model's context: the first {prompt.truncated:,} tokens were cut "
            f"({excerpt!r}), and {len(prompt.ids):,} are read"
        )
    if prompt.max_new_tokens < requested != GenerationConfig.model_fields["max_new_tokens"].default:
        yield Note(
            message=f"this model's context has room for {prompt.max_new_tokens:,} more tokens, not for {requested:,}"
        )
