"""The command-line door: a typer command for every verb, built from its request.

Every command takes `--json`; a verb with models takes `--device`, and one whose result can be saved `--output`. Events
of the running verb go to stderr, generated text and results to stdout.
"""

from __future__ import annotations

import gc
import inspect
import os
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext
from functools import partial
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from regard.cli.output import STATUS_EVERY, Heartbeat, note, progress, status_line, write_data
from regard.cli.signals import Terminated
from regard.errors import InputError
from regard.escaping import escape_json
from regard.events import Event, Progress, TextPiece
from regard.files.file_input import line_limit, parse_size
from regard.verbs.base import (
    GENERAL_GROUP,
    CountingModels,
    Device,
    Verb,
    cli_of,
    flag_of,
    holds_texts,
    is_secondary,
    negative_flag,
)

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from regard.render.result import Result

INTERRUPTED = 130  # exit code
MAX_LINE = "64MiB"
# Help pages of groups that are no verbs themselves.
GROUPS = {"corpus": "Prepare raw text for pretraining.", "cost": "Estimate what embedding takes."}


def _line_length(size: str) -> int:
    try:
        return parse_size(size)
    except InputError as error:
        raise InputError(f"--max-line: {error}") from None


# Options that commands share, as types of parameters: `seed: SeedOption = 0`.
DeviceOption: TypeAlias = Annotated[
    Device,
    typer.Option(
        "--device", help="Device to compute on; auto uses a GPU if there is one.", rich_help_panel=GENERAL_GROUP
    ),
]
SeedOption: TypeAlias = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, max=2**63 - 1, help="The same seed gives the same result.")
]
JsonOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON document instead of text.", rich_help_panel=GENERAL_GROUP)
]
ForceOption: TypeAlias = Annotated[
    bool, typer.Option("--force", help="Replace files that Regard did not write.", rich_help_panel=GENERAL_GROUP)
]
MaxLineOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--max-line",
        metavar="SIZE",
        help="Maximum length of a line in a text file.",
        callback=_line_length,
        rich_help_panel=GENERAL_GROUP,
    ),
]


def register(app: typer.Typer, verb: Verb) -> None:
    """Add the verb, and its aliases without a line in the help page. `train distill` goes to the group `train`.

    `cost embed` goes to a group of its own, unless `cost` is there: that is a command, and takes any word after it.
    """
    group, _, name = verb.command.rpartition(" ")
    if verb.subcommands is not None:
        app.add_typer(typer.Typer(cls=_subcommand_group(verb), help=verb.help), name=name)
        return
    target = app
    if group:
        groups = [one.typer_instance for one in app.registered_groups if one.name == group and one.typer_instance]
        if not groups and any(one.name == group for one in app.registered_commands):
            return
        target = groups[0] if groups else typer.Typer(help=GROUPS[group], no_args_is_help=True)
        if not groups:
            app.add_typer(target, name=group)
    function = command(verb)
    target.command(name, cls=_variadic_command(verb))(function)
    for alias in verb.aliases:
        app.command(alias, hidden=True)(function)


def _subcommand_group(verb: Verb) -> type[TyperGroup]:
    """The group of a verb with a command for each value of a field; its values are imported when they are needed."""
    assert verb.subcommands is not None
    field, values = verb.subcommands

    class Subcommands(TyperGroup):
        loaded = False

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            return super().parse_args(ctx, args or ["--help"])

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in self.commands:
                self._load()
            return super().get_command(ctx, cmd_name)

        def list_commands(self, ctx: Any) -> list[str]:
            self._load()
            return super().list_commands(ctx)

        def _load(self) -> None:
            if self.loaded:
                return
            made = typer.Typer(add_completion=False, rich_markup_mode=self.rich_markup_mode)
            made.callback()(lambda: None)
            for name, help in values().items():
                made.command(name, help=help, cls=GroupedCommand)(command(verb, {field: name}))
            self.commands = {**typer.main.get_group(made).commands, **self.commands}
            self.loaded = True

    return Subcommands


def _variadic_command(verb: Verb) -> type[TyperCommand]:
    """The command class of a verb; an option may take several words, since the verb has no arguments after it."""
    fields = verb.request.model_fields.items()
    flags = {flag_of(name, info) for name, info in fields if cli_of(info).get("variadic")}

    class VariadicCommand(GroupedCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            return super().parse_args(ctx, repeat_options(args, flags))

    return VariadicCommand if flags else GroupedCommand


class GroupedCommand(TyperCommand):
    """A command whose help page lists options in groups, in a terminal (which rich does) and in plain text."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                name = "Arguments" if parameter.param_type_name == "argument" else "Options"
                name = GENERAL_GROUP if parameter.name == "help" else name
                groups.setdefault(getattr(parameter, "rich_help_panel", None) or name, []).append(record)
        for name, records in groups.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


def repeat_options(arguments: list[str], flags: set[str]) -> list[str]:
    """`--train A B` as `--train A --train B`."""
    found: list[str] = []
    for argument in arguments:
        if len(found) > 1 and found[-2] in flags and not (argument.startswith("-") and len(argument) > 1):
            found.append(found[-2])
        found.append(argument)
    return found


def command(verb: Verb, fixed: Mapping[str, str] | None = None) -> Callable[..., None]:
    """The verb as a function that typer makes a command of; `fixed` arguments are those of a subcommand."""
    fields = {name: info for name, info in verb.request.model_fields.items() if name not in (fixed or {})}

    def run(**values: Any) -> None:
        as_json, output = values.pop("as_json"), values.pop("save_to", None)
        device = values.get("device", "auto") if "device" in fields else values.pop("device", "auto")
        max_line = values.pop("max_line", MAX_LINE)
        force = values["force"] if "force" in fields else values.pop("force", False)
        given = {name: _split(fields[name], value) for name, value in values.items() if value not in (None, [])}
        with ExitStack() as stack:
            stack.enter_context(line_limit(max_line))
            request = verb.parse({**(fixed or {}), **given})
            if "model" in fields and os.path.isfile(os.path.join(str(given.get("text", "")), "config.json")):
                note(f"{given['text']} is a model folder, and is read as the text; name a model with --model")
            if verb.model_fields():
                import_torch()
            from regard.verbs.python import LocalModels

            if output is not None:
                verb.check_outputs(request, output)
            target = None if output is None else open_target(stack, output, verb.formats, force=force)
            streamed: list[bool] = []
            on_text = None if as_json or target is not None else partial(_show_text, streamed)
            models = CountingModels(LocalModels(device))
            events = verb.start(request, models, keep=on_text is None)
            result = render_events(events, on_text=on_text, heartbeat=not as_json)
            result = render_events(verb.finish(request, models, result), heartbeat=False)
            if target is not None:
                target.write_bytes(result._content(target.suffix.lower()))
        if result._quiet:
            return
        if as_json:
            sys.stdout.write(escape_json(result.to_json()) + "\n")
        elif output is not None:
            print(output)
        elif not streamed:
            print(result.to_text())
        if result.exit_code:
            raise typer.Exit(result.exit_code)
        if result._interrupted:
            note("interrupted")
            raise typer.Exit(INTERRUPTED)

    required_first = sorted(fields.items(), key=lambda field: not field[1].is_required())
    parameters = [_parameter(name, info) for name, info in required_first]
    extra: list[tuple[str, Any, object]] = []
    if any(holds_texts(info) or "Path" in str(info.annotation) for info in fields.values()):
        extra.append(("max_line", MaxLineOption, MAX_LINE))
    if verb.formats:
        help = f"Write the result to a file that ends in {', '.join(verb.formats)}."
        extra.append(
            ("save_to", Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help=help)], None)
        )
        if "force" not in fields:
            extra.append(("force", ForceOption, False))
    if verb.model_fields() and "device" not in fields:
        extra.append(("device", DeviceOption, "auto"))
    extra.append(("as_json", JsonOption, False))
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters += [inspect.Parameter(name, kind, default=value, annotation=hint) for name, hint, value in extra]
    run.__name__ = verb.name
    run.__doc__ = verb.help
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
    return run


def import_torch() -> None:
    """Import torch without the garbage collector, which would search its objects for garbage again and again.

    They live as long as the process: they are frozen, so that no later collection searches them either.
    """
    if "torch" in sys.modules:
        return
    gc.disable()
    try:
        import torch  # noqa: F401
    finally:
        gc.freeze()
        gc.enable()


def _show_text(streamed: list[bool], text: str) -> None:
    """Print generated text; a result that was streamed is not printed again."""
    streamed[:] = [True]
    write_data(text)
    sys.stdout.flush()


def render_events(
    events: Generator[Event, None, Result],
    *,
    on_text: Callable[[str], object] | None = None,
    heartbeat: bool = True,
) -> Result:
    """Run a verb to its end, showing its events in the terminal, and return its result.

    Progress is a bar, transient events are a status line, other events are lines of their own. Ctrl-C outside the verb
    is raised inside it, as if it had happened there. With `heartbeat`, something is printed every ten seconds,
    by the main one of several processes that train together.
    """
    beats = Heartbeat() if heartbeat and not is_secondary() else nullcontext()
    with closing(events), _event_display(on_text) as show, beats as beat:
        advance: Callable[[], Event] = partial(next, events)
        while True:
            try:
                event = advance()
                advance = partial(next, events)
                if beat is not None:
                    beat.on_event(event)
                show(event)
            except StopIteration as end:
                result: Result = end.value
                return result
            except (KeyboardInterrupt, Terminated) as interrupt:
                if inspect.getgeneratorstate(events) == inspect.GEN_CLOSED:  # the verb has ended with it
                    raise
                advance = partial(events.throw, interrupt)


@contextmanager
def _event_display(on_text: Callable[[str], object] | None) -> Iterator[Callable[[Event], None]]:
    with status_line(STATUS_EVERY) as show_status, ExitStack() as bar:
        stage, before = "", 0  # of the bar
        advance: Callable[[int], None] | None = None
        printed = False  # to a terminal, since the last progress: lines show the progress, and a bar would hide them
        shown_once: set[str] = set()

        def show(event: Event) -> None:
            nonlocal stage, before, advance, printed
            if isinstance(event, Progress):
                if printed or (advance is None and event.done == event.total):  # the latter is finished at once
                    printed = False
                    return
                if advance is None or event.stage != stage:
                    bar.close()
                    advance = bar.enter_context(progress(event.stage, total=event.total, unit=event.unit))
                    stage, before = event.stage, 0
                advance(event.done - before)
                before = event.done
                if event.done == event.total:
                    bar.close()
                    advance = None
            elif isinstance(event, TextPiece):
                if on_text is not None:
                    on_text(event.text)
                    printed = sys.stdout.isatty()
            elif line := event.line():
                if event.transient:
                    show_status(line)
                elif line not in shown_once:
                    note(line)
                    if event.once:
                        shown_once.add(line)

        yield show


def open_target(stack: ExitStack, output: str, formats: tuple[str, ...], *, force: bool) -> Any:
    """A temporary file beside the output: an output that cannot be written is refused before the work."""
    from regard.files.output_file import replace_output

    if not output.lower().endswith(formats):
        raise InputError(f"--output is {output!r}; expected a file name that ends in {', '.join(formats)}")
    return stack.enter_context(replace_output(output, force=force))


def _parameter(name: str, info: FieldInfo) -> inspect.Parameter:
    cli = cli_of(info)
    hint, default = _cli_type(info.annotation), ... if info.is_required() else _cli_default(info)
    if cli.get("repeat"):
        hint, default = (list[str], ...) if info.is_required() else (list[str] | None, None)
    elif _is_word_list(info):
        hint = list[str] if info.is_required() else list[str] | None
    if cli.get("position"):
        marker: Any = typer.Argument(metavar=cli.get("metavar") or name.upper(), help=info.description)
    else:
        flags = [flag for flag in cli.get("flags", ()) if not flag.startswith("--")]
        long = flag_of(name, info)
        if hint == bool | None or (hint is bool and default is True):
            long = f"{long}/{negative_flag(name, info)}"
        metavar = None if hint in (bool, bool | None) or get_origin(hint) is Literal else cli.get("metavar")
        marker = typer.Option(
            long,
            *flags,
            metavar=metavar,
            help=info.description,
            rich_help_panel=cli.get("group"),
        )
    value = inspect.Parameter.empty if default is ... else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=Annotated[hint, marker])


def _cli_type(annotation: Any) -> Any:
    """The type that typer parses: lists are words joined by commas, files are names."""
    if get_origin(annotation) is Annotated:
        return _cli_type(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        inner = [_cli_type(one) for one in get_args(annotation) if one is not type(None)]
        hint = inner[0] if len(set(map(str, inner))) == 1 else str
        return hint | None if type(None) in get_args(annotation) else hint
    if get_origin(annotation) is Literal or annotation in (str, int, float, bool):
        return annotation
    return str


def _cli_default(info: FieldInfo) -> object:
    value = info.get_default(call_default_factory=True)
    return list(map(str, value)) if isinstance(value, list | tuple) else value


def _is_word_list(info: FieldInfo) -> bool:
    """Whether the field is a list of words; texts, which may be in a file, are not."""
    annotation = info.annotation
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return any(get_origin(one) in (list, tuple) for one in options) and not holds_texts(info)


def _split(info: FieldInfo, value: object) -> object:
    """Options that are lists of words may be repeated, or have their words joined by commas, unless marked `repeat`."""
    if isinstance(value, list) and not cli_of(info).get("position") and not cli_of(info).get("repeat"):
        return [word.strip() for words in value for word in words.split(",") if word.strip()]
    return value
