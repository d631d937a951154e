"""One definition per verb: a typed request, a typed result and one function.

The command (`regard.cli.commands`), the Python function (`regard.verbs.python`), the HTTP route
(`regard.server.models.client_verbs`), the lines that reproduce a result and the TypeScript types are derived from the
definition:

    class FillRequest(Request):
        text: str = argument(help="Text with blanks: _ or [MASK].")
        model: ModelName = model_option()
        top: int = option(10, "-k", help="Number of candidates per blank.", ge=1)

    @verb(FillRequest, result="regard.inference.masked_lm:FillResult")
    def fill(request: FillRequest, models: Models) -> FillResult:
        '''Fill in the blanks of a text.'''

A function that takes long yields events (`regard.events`) and returns the result. Files of this package import torch
inside functions only, so that the command line starts quickly.
"""

from __future__ import annotations

import inspect
import os
import shlex
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, ValidationError, ValidationInfo
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema

from regard.checkpoints.models import Models as Models
from regard.data.example_images import example_images
from regard.data.files import STANDARD_INPUT, is_file_name, refuse_file_name, refuse_output_in_input, taken_for_file
from regard.data.text_inputs import DataFrameSource, read_items, read_texts
from regard.errors import InputError, InputErrors, suggest
from regard.events import Event, Note, ResultItem, map_events
from regard.files.output_file import refuse_link
from regard.known import DEFAULT_MODEL
from regard.verbs import RENAMED
from regard.wording import count_of

if TYPE_CHECKING:
    from regard.checkpoints.loaded_model import LoadedModel
    from regard.checkpoints.reading import CountedModel
    from regard.render.result import Result

Model = TypeVar("Model", bound=BaseModel)
Device = Literal["auto", "cpu", "cuda", "mps", "xpu"]  # accelerators of torch
Precision = Literal["auto", "fp32", "bf16", "int8"]
PoolingName = Literal["cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
DecodingPrecision = Literal["fp32", "int8"]
# Headings of help pages; options without one are listed under "Options", before the others.
TABLE_GROUP = "Input table"
RUN_GROUP = "Run"
GENERAL_GROUP = "General"
PAGE = (".html", ".svg", ".png")  # formats that show the page
MAX_PASTED_LINES = 12  # of texts in a command that reproduces a result


class Request(BaseModel):
    """The arguments of a verb. Fields made by `argument` are positional; the others are options."""

    # Schemas are built when they are needed, so that help pages appear quickly.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    def table_flags(self) -> list[str]:
        """Options that a command needs to read texts of this request that are piped to it in columns."""
        return []


class _ModelMarker:
    """Marks fields that name a model."""


ModelName = Annotated[str, _ModelMarker()]


def is_secondary() -> bool:
    """Whether another process of the same run prints the result: `torchrun` numbers its processes."""
    return os.environ.get("RANK", "0") != "0"


class TextsMarker:
    """Marks fields that hold texts, or name the file that holds them."""


def _read_texts(value: object, info: ValidationInfo) -> object:
    source = _read_source(value, info)
    if not isinstance(source, str):
        return source
    return [source] if in_python(info) and source != STANDARD_INPUT else Path(source)


def _read_source(value: object, info: ValidationInfo) -> object:
    return read_string(value, info) if isinstance(value, str | os.PathLike) else read_collection(value)


def read_collection(value: object, *, read: Callable[[Any], object] = lambda value: read_texts(value).texts) -> object:
    """Texts in memory, in any of the forms that Python callers have."""
    return DataFrameSource(value) if hasattr(value, "columns") else read(value)


def read_string(value: str | os.PathLike[str], info: ValidationInfo) -> object:
    """A string or path where texts are expected: a file or text of a command, a text or path in Python, lines of a
    client."""
    text = os.fspath(value)
    if not reads_files(info):
        return text if Path(value) in (info.context or {}).get("uploads", ()) else split_lines(text)
    if isinstance(value, os.PathLike):
        return Path(value) if text != STANDARD_INPUT else text
    if in_python(info):
        refuse_file_name(text)
        return [text] if taken_for_file(text) else text
    return text


def in_python(info: ValidationInfo) -> bool:
    """Whether the arguments are those of a Python function, where a string is a text and a path is a file."""
    return bool((info.context or {}).get("python"))


def reads_files(info: ValidationInfo) -> bool:
    """Whether arguments may name local files; those of a server's clients may not."""
    return bool((info.context or {}).get("files", True))


def split_lines(text: str) -> list[str]:
    """The lines of a text that are not blank."""
    return [line for line in text.splitlines() if line.strip()]


def text_sizes(source: object) -> list[int]:
    """The bytes of each text that a client sent; other sources, such as files, have none."""
    return [len((text or "").encode("utf-8", "replace")) for text in source] if isinstance(source, list) else []


# Texts as a list, the file that holds them ("-" is standard input), or a DataFrame. None is a missing text. Over HTTP a
# string holds the lines themselves: a client cannot make the server read a file. In Python it is one text.
Texts = Annotated[
    list[str | None] | Path | SkipJsonSchema[InstanceOf[DataFrameSource]], BeforeValidator(_read_texts), TextsMarker()
]
# The same, where a string that names no file may also be a text itself.
TextOrFile = Annotated[
    list[str | None] | str | SkipJsonSchema[Path | InstanceOf[DataFrameSource]],
    BeforeValidator(_read_source),
    TextsMarker(),
]


def _read_image(value: object, info: ValidationInfo) -> object:
    """The name of an example image stays a name, so that it means the same on every machine; others are files."""
    if isinstance(value, str) and value in example_images() and not (reads_files(info) and os.path.exists(value)):
        return value
    if isinstance(value, str) and not reads_files(info):
        raise ValueError(f"expected an image that was sent to the server, or one of {', '.join(example_images())}")
    return Path(value) if isinstance(value, str) else value


ImageName = Annotated[str | Path, BeforeValidator(_read_image)]


def image_option() -> Any:
    return option(None, help="An image file, or an example such as digit-7.", metavar="IMAGE")


def argument(default: Any = ..., *, help: str, metavar: str | None = None, **limits: Any) -> Any:
    """A positional argument. `limits` are pydantic's (`ge`, `le`, `max_length`, ...)."""
    return Field(default, description=help, json_schema_extra={"cli": {"position": True, "metavar": metavar}}, **limits)


def option(
    default: Any = ...,
    *flags: str,
    help: str,
    metavar: str | None = None,
    repeat: bool = False,
    variadic: bool = False,
    group: str | None = None,
    writes: bool = False,
    positional: bool = False,
    **limits: Any,
) -> Any:
    """An option; its flag is the field's name, and `flags` may add or replace it ("-k", or "--text").

    A list is written with commas; with `repeat` as several options, with `variadic` also as the words after one option.
    `group` is the heading under which the help page lists the option. `writes`: it names a file or folder to write.
    `positional`: in Python, it may also be given without its name, after the arguments.
    """
    cli: Any = {"flags": list(flags), "metavar": metavar, "group": group, "writes": writes}
    cli |= {"repeat": repeat or variadic, "variadic": variadic, "positional": positional}
    return Field(default, description=help, json_schema_extra={"cli": cli}, **limits)


def force_option() -> Any:
    return option(False, help="Replace files that Regard did not write.", group=RUN_GROUP)


def model_option(
    default: str | None = DEFAULT_MODEL, help: str = "A model folder, a hub name or a built-in name."
) -> Any:
    return option(default, "-m", help=help, metavar="MODEL")


def seed_option() -> Any:
    return option(0, help="The same seed gives the same result.", metavar="N", ge=0, le=2**63 - 1)


def layer_option(help: str, default: int | None = None) -> Any:
    """A layer of the model by its number; `help` begins the help text."""
    return option(default, help=f"{help}, counted from 1; -1 is the last.", metavar="L")


def precision_option() -> Any:
    return option(
        None,
        help="Default: fp32 on a CPU, bf16 on a GPU that has it. int8 is for CPUs. auto: the fastest that stays within "
        "a cosine of 0.98 of fp32 on a sample of the texts.",
        group=RUN_GROUP,
    )


def decoding_precision_option() -> Any:
    return option(
        "fp32",
        help="int8 keeps the weights of a model that generates text in 8 bits, on a CPU: less memory, more tokens per "
        "second, slightly different probabilities.",
        group=RUN_GROUP,
    )


def layers_option() -> Any:
    help = "-1 is the last layer, 0 the output of the embeddings; or sum, mean or concat of a slice: concat(-4:)."
    return option("-1", "-l", help=help, metavar="LAYERS")


class CountingModels:
    """The models of a verb; `warnings` tells which texts they could not read: unknown tokens, or another language."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._counted: dict[str, CountedModel] = {}

    @contextmanager
    def use(
        self, name: str, check: Callable[[str], object] | None = None, *, precision: str = "fp32"
    ) -> Iterator[LoadedModel]:
        from regard.checkpoints.reading import CountedModel

        with self._models.use(name, check, precision=precision) as loaded:
            if name not in self._counted:
                self._counted[name] = CountedModel(loaded)
            yield loaded.counting(self._counted[name].count)

    def warnings(self) -> list[str]:
        return [warning for name, counted in self._counted.items() for warning in counted.warnings(name)]

    def cut_notes(self) -> list[str]:
        """Say how many texts each model has cut."""
        return [counted.count.cut_note() for counted in self._counted.values() if counted.count.cut]


@dataclass(frozen=True)
class Verb:
    """A verb and everything the doors need to know of it."""

    name: str
    request: type[Request]
    function: Callable[[Any, Any], Any]
    result: str  # "module:Class"; a path, so that listing the verbs imports no torch
    command: str  # the words after `regard`
    formats: tuple[str, ...] = ()  # extensions that `--output` takes; empty: the verb has no such option
    http: bool = True  # whether clients of the server may call it
    max_characters: int = 20_000  # of one text that a client may send
    # The largest values of fields that a client may send.
    http_limits: Mapping[str, int] = field(default_factory=dict)
    # About how many items and bytes the answer to a client may have: {"items": ..., "bytes": ...}.
    http_answer: Callable[[Any], Mapping[str, int]] | None = None
    notes: bool = False  # whether the result has `notes` that are to be reported
    items: str = ""  # the field of the result whose items are yielded as `ResultItem` events
    # A field whose values are commands of their own, and a function that returns the values with their help pages.
    subcommands: tuple[str, Callable[[], dict[str, str]]] | None = None
    aliases: tuple[str, ...] = ()

    @property
    def help(self) -> str:
        return inspect.getdoc(self.function) or ""

    def result_type(self) -> type[Result]:
        module, _, name = self.result.partition(":")
        found: type[Result] = getattr(import_module(module), name)
        return found

    def model_fields(self) -> list[str]:
        """The fields that name models, or lists of models."""
        return [name for name, info in self.request.model_fields.items() if _names_models(info)]

    def output_fields(self) -> list[str]:
        """The fields that name files or folders to write."""
        return [name for name, info in self.request.model_fields.items() if cli_of(info).get("writes")]

    def check_outputs(self, request: Request, *others: str) -> None:
        """Raise InputError for an output, of the request or the `others`, that is a link or inside what is read."""
        writes = self.output_fields()
        outputs = [path for path in (*others, *(getattr(request, name) for name in writes)) if path is not None]
        for output in outputs:
            refuse_link(output)
        for name, info in self.request.model_fields.items() if outputs else ():
            value = getattr(request, name)
            is_file = holds_texts(info) or str(cli_of(info).get("metavar")).startswith("FILE")
            several = isinstance(value, list) and not holds_texts(info)  # a list of texts names no files
            for source in (value if several else [value]) if name not in writes else ():
                if isinstance(source, Path) or (is_file and isinstance(source, str)):
                    for output in outputs:
                        refuse_output_in_input(output, source)

    def parse(
        self,
        values: Mapping[str, object],
        *,
        files: bool = True,
        uploads: Collection[Path] = (),
        python: bool = False,
    ) -> Request:
        """Validate the arguments; InputErrors names each fault. `files`: whether arguments may name local files, which
        clients of a server may not, except their `uploads`. `python`: whether a string is a text and no file."""
        unknown = [name for name in values if name not in self.request.model_fields]
        if unknown:
            raise InputError(
                f"{self.name} has no argument {unknown[0]!r}; {suggest(unknown[0], self.request.model_fields)}"
            )
        values = {name: _lines(self.request.model_fields[name], value) for name, value in values.items()}
        request = validated(self.request, values, files=files, uploads=uploads, python=python)
        for name, value in request:
            if isinstance(value, Path) and not files and value not in uploads:
                raise InputError(f"{name}: the server reads and writes no files for clients; leave it out")
        return request

    def run(self, request: Request, models: Models, *, keep: bool = True) -> Generator[Event, None, Result]:
        """Run the verb: yields its events and returns its result, with the lines that reproduce it."""
        counting = CountingModels(models)
        result = yield from self.start(request, counting, keep=keep)
        return (yield from self.finish(request, counting, result))

    def start(self, request: Request, models: CountingModels, *, keep: bool = True) -> Generator[Event, None, Result]:
        """The events and the result of the verb's function. Without `keep` the result has none of the items that were
        yielded, so that memory does not grow with their number."""
        self.check_outputs(request)
        if not inspect.isgeneratorfunction(self.function):
            return self._call(request, models)
        events: Generator[Event, None, Result] = self.function(request, models)
        return self._with_items(events) if self.items and keep else events

    def _call(self, request: Request, models: CountingModels) -> Generator[Event, None, Result]:
        yield from ()
        result: Result = self.function(request, models)
        return result

    def _with_items(self, events: Generator[Event, None, Result]) -> Generator[Event, None, Result]:
        items: list[object] = []

        def collect(event: Event) -> Event:
            if isinstance(event, ResultItem):
                items.append(event.item)
            return event

        result = yield from map_events(events, collect)
        return result.model_copy(update={self.items: items}) if items else result

    def finish(self, request: Request, models: CountingModels, result: Result) -> Generator[Note, None, Result]:
        """Add to the result the lines that reproduce it, and the warnings, which are yielded as notes are."""
        result.with_reproduction(self.command_line(request), self.python_code(request))
        if self.notes:
            yield from (Note(message=note) for note in getattr(result, "notes", ()))
        warnings = models.warnings()
        yield from (Note(message=f"warning: {warning}") for warning in warnings)
        result.with_warnings(warnings, models.cut_notes())
        return result

    def command_line(self, request: Request) -> str:
        """The command that makes the same request."""
        options: list[str] = []
        positional: list[str] = []
        source, words = "", self.command.split()
        for name, info, value in _given(request):
            if self.subcommands is not None and name == self.subcommands[0]:
                words.append(str(value))
                continue
            if isinstance(value, list) and holds_texts(info):  # texts that are not in a file
                source = _print_lines(value)
                options += request.table_flags()
                value = "-" if source else "FILE"  # too many lines to paste
            if cli_of(info).get("position"):
                positional += map(str, value) if isinstance(value, list) else [_word(value)]
            elif cli_of(info).get("repeat") and isinstance(value, list):
                options += [word for item in value for word in (flag_of(name, info), str(item))]
            elif isinstance(value, bool):
                options.append(flag_of(name, info) if value else negative_flag(name, info))
            else:
                options += [flag_of(name, info), _word(value)]
        separator = ["--"] if any(word.startswith("-") and word != "-" for word in positional) else []
        return source + shlex.join(["regard", *words, *options, *separator, *positional])

    def python_code(self, request: Request) -> str:
        """The Python call that makes the same request."""
        positional = [name for name, info in self.request.model_fields.items() if cli_of(info).get("position")]
        parts, skipped = [], False  # after an argument that is not given, the others need their names
        given = {name: _literal(value, info) for name, info, value in _given(request)}
        for name in positional:
            skipped = skipped or name not in given
            if name in given:
                parts.append(f"{name}={given[name]}" if skipped else given[name])
        parts += [f"{name}={value}" for name, value in given.items() if name not in positional]
        paths = "from pathlib import Path\n" if any(value.startswith("Path(") for value in given.values()) else ""
        return f"{paths}import regard\n\nregard.{RENAMED.get(self.name, self.name)}({', '.join(parts)})"


def verb(request: type[Request], *, result: str, **options: Any) -> Callable[[Callable[[Any, Any], Any]], Verb]:
    """Make a verb of a function that takes a request and models, and returns a result, or yields events on the way.

    `options` are the other fields of `Verb`.
    """

    def define(function: Callable[[Any, Any], Any]) -> Verb:
        name = function.__name__
        return Verb(name, request, function, result, **{"command": name.replace("_", "-"), **options})

    return define


def validated(model: type[Model], values: Mapping[str, object], **context: object) -> Model:
    """An instance of a pydantic model; InputErrors names each fault of the values."""
    try:
        return model.model_validate(values, context=context)
    except ValidationError as error:
        raise InputErrors(_explain(error.errors(include_url=False), values)) from None


def cli_of(info: FieldInfo) -> Mapping[str, Any]:
    """What `argument` or `option` noted for the command line."""
    extra = info.json_schema_extra
    found = extra.get("cli") if isinstance(extra, dict) else None
    return found if isinstance(found, dict) else {}


def flag_of(name: str, info: FieldInfo) -> str:
    """The long flag of an option."""
    flags = [flag for flag in cli_of(info).get("flags", ()) if flag.startswith("--")]
    return str(flags[0]).partition("/")[0] if flags else f"--{name.replace('_', '-')}"


def negative_flag(name: str, info: FieldInfo) -> str:
    """The flag that switches an option off: "--unquoted" of "--quoted/--unquoted", else "--no-NAME"."""
    flags = [flag for flag in cli_of(info).get("flags", ()) if "/" in flag]
    return str(flags[0]).partition("/")[2] if flags else f"--no-{flag_of(name, info).removeprefix('--')}"


def holds_texts(info: FieldInfo) -> bool:
    """Whether the field holds texts or names the file that holds them; on the command line it is always a file."""
    return any(isinstance(item, TextsMarker) for item in info.metadata)


def _names_models(info: FieldInfo) -> bool:
    if any(isinstance(item, _ModelMarker) for item in info.metadata):
        return True
    pending = [info.annotation]
    while pending:
        annotation = pending.pop()
        if get_origin(annotation) is Annotated and any(isinstance(m, _ModelMarker) for m in get_args(annotation)[1:]):
            return True
        if get_origin(annotation) in (list, tuple, Union, UnionType, Annotated):
            pending += get_args(annotation)
    return False


def _given(request: Request) -> list[tuple[str, FieldInfo, object]]:
    """The fields that differ from their defaults."""
    fields = type(request).model_fields
    values = [(name, info, getattr(request, name)) for name, info in fields.items()]
    return [(name, info, value) for name, info, value in values if info.is_required() or value != info.get_default()]


def _word(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _print_lines(lines: Sequence[str | Sequence[str | None]]) -> str:
    """A command that prints the lines for another one to read; empty if nobody would paste it. Columns are joined by
    tabs."""
    if any(line is None or isinstance(line, dict) for line in lines):
        return ""
    rows = ["\t".join(map(str, filter(None, line))) if not isinstance(line, str) else line for line in lines]
    if len(rows) > MAX_PASTED_LINES or any("\n" in row for row in rows):
        return ""
    return f"printf '%s\\n' {' '.join(map(_shell_line, rows))} | "


def _shell_line(line: str) -> str:
    """A word for a shell; a tab is spelled, since nobody would see it."""
    if "\t" not in line:
        return shlex.quote(line)
    escaped = line.replace("\\", "\\\\").replace("'", "\\'").replace("\t", "\\t")
    return f"$'{escaped}'"


def _lines(info: FieldInfo, value: object) -> object:
    """The items of a list, from any collection; a string for a list of strings holds one item per line."""
    options = {option for option in get_args(info.annotation) or () if option is not type(None)}
    is_list = get_origin(info.annotation) is list or [get_origin(option) for option in options] == [list]
    if not is_list or holds_texts(info) or value is None:
        return value
    if isinstance(value, str):
        return split_lines(value)
    return read_items(value) if hasattr(value, "__array__") else value


def _literal(value: object, info: FieldInfo) -> str:
    """The value in Python. Where texts are expected, a string is a text, so that a file is a path."""
    if holds_texts(info) and (isinstance(value, Path) or (isinstance(value, str) and is_file_name(value))):
        return f"Path({str(value)!r})"
    return repr(str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value)


def _explain(faults: Iterable[Any], values: Mapping[str, object]) -> list[str]:
    """The errors of pydantic as messages, one for each argument: its name, its value, what was expected."""
    messages: dict[str, list[str]] = {}
    for fault in faults:
        name = str(fault["loc"][0]) if fault["loc"] else ""
        if fault["type"] == "missing":
            messages[f"{name} is missing"] = []
            continue
        text = " ".join(repr(values.get(name)).split()) if name else ""
        key = f"{name} is {text if len(text) <= 80 else text[:77] + '...'}; " if name else ""
        messages.setdefault(key, []).append(_expectation(fault))
    return [key + _join_expectations(list(dict.fromkeys(found))) for key, found in messages.items()]


def _join_expectations(found: list[str]) -> str:
    """Alternatives of a union as one sentence."""
    if not all(one.startswith("expected ") for one in found):
        return "; ".join(found)
    return " or ".join([*found[:1], *(one.removeprefix("expected ") for one in found[1:])])


def _expectation(fault: Any) -> str:
    kind, value, context = fault["type"], fault["input"], fault.get("ctx", {})
    if kind in ("string_type", "path_type"):
        if len(fault["loc"]) > 1 and isinstance(fault["loc"][-1], int):
            return f"expected texts, got {type(value).__name__} in row {fault['loc'][-1]}"
        if isinstance(value, Sized) and not isinstance(value, bytes | Mapping):
            return (
                f"expected one text, got {type(value).__name__} with {count_of(len(value), 'item')}; call it once for "
                "each text"
            )
    if kind in ("too_long", "too_short"):
        limit = f"at most {context['max_length']:,}" if kind == "too_long" else f"at least {context['min_length']:,}"
        return f"expected {limit} items, got {context['actual_length'] or 'none'}"
    plain = next((words for start, words in _EXPECTATIONS.items() if kind.startswith(start)), None)
    if plain is not None:
        return f"expected {plain}"
    return str(fault["msg"]).removeprefix("Value error, ").replace("Input should be", "expected")


# By the beginning of pydantic's name of an error.
_EXPECTATIONS = {
    "string_": "a text",
    "int_": "a whole number",
    "float_": "a number",
    "finite_": "a finite number",
    "bool_": "true or false",
    "list_": "a list",
    "tuple_": "a tuple",
    "dict_": "a dictionary",
    "path_": "a path",
}
