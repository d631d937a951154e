"""`regard generate`: continues a prompt, with the text as it is generated."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import ValidationInfo, field_validator, model_validator

from regard.data.text_inputs import TextInputs, read_items, read_texts
from regard.errors import InputError
from regard.events import Event, Note, TextPiece
from regard.generation_config import GenerationConfig
from regard.known import DEFAULT_CAUSAL_LM
from regard.verbs.base import (
    PAGE,
    DecodingPrecision,
    ModelName,
    Models,
    Request,
    argument,
    decoding_precision_option,
    force_option,
    in_python,
    model_option,
    option,
    reads_files,
    verb,
)

if TYPE_CHECKING:
    from regard.inference.generation.text_generator import EncodedPrompt
    from regard.interpret.generation import GenerateResult

MAX_CLIENT_PROMPTS = 16
EXCERPT = 40  # characters of the truncated beginning of a prompt that a note shows


class GenerateRequest(Request, GenerationConfig):
    chat: bool = option(
        False,
        help="Answer the prompt with the model's chat template. The prompt is a message, or a JSON list of messages, "
        'objects with "role" and "content".',
    )
    # After `chat`, on which it depends whether a list is one of messages.
    prompt: str | list[str] = argument(
        help="The text to continue, or several; - reads standard input.", metavar="PROMPT"
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
        None,
        help="Write every step of the search or of the samples to a .json or .html file.",
        metavar="FILE",
        writes=True,
    )
    force: bool = force_option()

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
    def _read_prompts(cls, value: object, info: ValidationInfo) -> object:
        """Messages of a chat, which Python and HTTP may give as a list, or prompts; a single one is itself."""
        if isinstance(value, str):
            return value
        prompts = read_items(value, "a prompt, or a list of prompts")
        if prompts and all(isinstance(item, Mapping) for item in prompts):
            if not info.data.get("chat"):
                raise ValueError("expected a prompt, or a list of prompts: messages are for a chat; set chat")
            return json.dumps(prompts, ensure_ascii=False)
        if not prompts:
            raise ValueError("expected at least one prompt")
        if len(prompts) > MAX_CLIENT_PROMPTS and not reads_files(info):
            raise ValueError(f"expected at most {MAX_CLIENT_PROMPTS} prompts; send several requests")
        texts = [str(text) for text in TextInputs(read_texts(prompts).texts).present()]
        return texts if len(texts) > 1 else texts[0]

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        for name in ("candidates", "trace"):
            if not isinstance(self.prompt, str) and getattr(self, name):
                raise ValueError(f"{name} is for one prompt, and there are {len(self.prompt)}; call it once for each")
        if self.assistant_model == self.model:
            raise ValueError("assistant_model is the model itself, which drafts nothing faster; name a smaller model")
        if self.system is not None and not self.chat:
            raise ValueError("system is for a chat; set chat")
        return self

    @field_validator("prompt")
    @classmethod
    def _read_stdin(cls, value: str | list[str], info: ValidationInfo) -> str | list[str]:
        from regard.data.files import STANDARD_INPUT, read_all_lines

        stdin = value == STANDARD_INPUT and reads_files(info) and not in_python(info)
        return "\n".join(read_all_lines(STANDARD_INPUT)) if stdin else value


@verb(
    GenerateRequest,
    result="regard.interpret.generation:GenerateResult",
    formats=(*PAGE, ".json"),
    http_limits={"max_new_tokens": 400, "num_beams": 16, "num_return_sequences": 16},
)
def generate(request: GenerateRequest, models: Models) -> Generator[Event, None, GenerateResult]:
    """Generate text: a GPT continues the prompt, a T5 or a chat model answers it. The text appears as it is generated.

    The same seed gives the same texts, however many are requested, and whatever other prompts there are. A generated
    text is likely, which does not make it true. Ctrl-C ends with the text so far; beam search has no text before it is
    done. With --candidates, --output writes a page that shows what the model could have written instead at every token.
    """
    from regard.files.output_file import replace_output
    from regard.interpret.generation import GenerateResult, Generation, prompt_heading

    if request.candidates and request.trace is not None:
        raise InputError("--trace does not go with --candidates, which records one text; leave out one of the two")
    with ExitStack() as stack:
        # Before the model is loaded: a file that cannot be written must not cost that time.
        target = (
            None if request.trace is None else stack.enter_context(replace_output(request.trace, force=request.force))
        )
        names = sorted({request.model, request.assistant_model or request.model})  # one order, as each is locked
        loaded = {name: stack.enter_context(models.use(name, precision=request.precision)) for name in names}
        prompts = [request.prompt] if isinstance(request.prompt, str) else request.prompt
        generations = [  # before the first is run: a prompt that cannot be read must not cost the others
            Generation(
                loaded[request.model],
                prompt,
                request.config(),
                candidates=request.candidates,
                record_trace=target is not None,
                chat=request.chat,
                system=request.system,
                assistant=None if request.assistant_model is None else loaded[request.assistant_model],
            )
            for prompt in prompts
        ]
        interrupted, results = False, []
        for number, generation in enumerate(generations):
            yield from _notes(generation.prompt, request.max_new_tokens)
            try:
                if len(prompts) > 1:
                    yield TextPiece(text=f"{prompt_heading(number, prompts[number])}\n")
                yield from generation.events()
            except KeyboardInterrupt:
                interrupted = True
                yield TextPiece(text="\n")
            results.append(generation.result())
            if interrupted:
                break
        if target is not None:
            generation.write_trace(target, cli=generate.command_line(request), python=generate.python_code(request))
    result = GenerateResult.joined(results)
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
