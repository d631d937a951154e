"""`regard generate`: what a model writes behind a prompt, as it comes."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.generate_text import print_found, print_speech, print_stream
from regard.cli.options import MAX_LINE, DeviceOption, JsonOption, MaxLineOption, ModelOption, SeedOption
from regard.cli.output import note, print_json
from regard.errors import InputError
from regard.known import DEFAULT_CAUSAL_LM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from regard.inference.generation import Beam, EncodedPrompt, GeneratedText, Sampling, TextGenerator, Trace
    from regard.interpret.generation.generation import Generation

__all__ = ["register"]

TEMPERATURE, TOP_P = 0.8, 0.9  # the lecture's demonstration
MAX_TOKENS = 200
LOST = 40  # characters of a prompt's lost beginning that are shown
INTERRUPTED = 130


def register(app: typer.Typer) -> None:
    app.command("generate")(generate)


def generate(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What to continue; - reads standard input.")],
    model: ModelOption = DEFAULT_CAUSAL_LM,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", "-t", metavar="T", help=f"0: the likeliest always. Default: {TEMPERATURE}."),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option("--top-p", metavar="P", help=f"Only the likeliest that make up this share. Default: {TOP_P}."),
    ] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", metavar="K", help="Only the K likeliest tokens.")] = None,
    min_p: Annotated[
        float | None,
        typer.Option("--min-p", metavar="P", help="Only tokens at least P times as likely as the likeliest."),
    ] = None,
    repetition: Annotated[
        float | None,
        typer.Option("--repetition", metavar="R", help="Above 1: what was said already is less likely."),
    ] = None,
    seed: SeedOption = 0,
    number: Annotated[int, typer.Option("--number", "-n", metavar="N", min=1, help="How many texts.")] = 1,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", metavar="N", min=1, help=f"The most a text may have. Default: {MAX_TOKENS}."),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", metavar="TEXT", help="End before this text; can be given several times."),
    ] = None,
    beam: Annotated[
        int | None, typer.Option("--beam", "-b", metavar="N", help="Search with a beam of N instead of by chance.")
    ] = None,
    nbest: Annotated[
        int | None, typer.Option("--nbest", metavar="N", help="With --beam: the N best texts. Default: 1.")
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option("--length-penalty", metavar="A", help="With --beam: above 0 favours long texts. Default: 1."),
    ] = None,
    early: Annotated[
        bool, typer.Option("--early", help="With --beam: end as soon as N texts are found, though better may come.")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", metavar="FILE", help="Write every step to a .json file, or as a page to an .html file."
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option("--page", metavar="FILE", help="What else might have been said at every token, as .html."),
    ] = None,
    max_line: MaxLineOption = MAX_LINE,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Let a model write: a GPT continues the prompt, a T5 answers it. The text appears as it is written.

    The same seed gives the same texts, however many are asked for. What is written is likely, which does not make it
    true. Ctrl-C ends with what was said so far; a --beam has no text before it is done.
    """
    from regard.device import choose_device
    from regard.files.disk import replace_file

    _check_page(page, {"trace": trace, "number": None if number == 1 else number})
    by_chance = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "min_p": min_p, "repetition": repetition}
    by_search = {"nbest": nbest, "length_penalty": length_penalty, "early": early or None}
    sampling = _sampling(by_chance, by_search) if beam is None else None
    searching = (
        None if beam is None else _beam(beam, by_search, {**by_chance, "number": None if number == 1 else number})
    )
    stops, text = _stops(stop), _read(prompt)
    with ExitStack() as stack:  # a place that cannot be written must not cost the loading of a model
        place = None if trace is None else stack.enter_context(replace_file(_named(trace)))
        page_place = None if page is None else stack.enter_context(replace_file(page))
        from regard.checkpoints.loading import load
        from regard.inference.generation import TextGenerator

        writer = TextGenerator(*load(model, device=choose_device(device)))
        ready = writer.encode_prompt(text, max_new_tokens=max_tokens or MAX_TOKENS)
        _tell_limits(ready, max_tokens)
        record = None if place is None else writer.trace()
        texts, speech, interrupted = [], None, False
        try:
            if page_place is not None:
                speech = _speech(writer, text, model, sampling, searching, seed=seed, most=max_tokens, stops=stops)
                texts = speech.texts
                print_speech(speech, quiet=as_json)
            elif searching is not None:
                texts = writer.beam_search(ready, beam=searching, stop_strings=stops, trace=record)
                print_found(texts, quiet=as_json)
            else:
                writing = writer.stream(
                    ready, sampling=sampling, num_return_sequences=number, seed=seed, stop_strings=stops, trace=record
                )
                texts = writing.texts
                print_stream(writing, quiet=as_json)
        except KeyboardInterrupt:
            interrupted = True
        about = {"model": model, "prompt": text, "cut": ready.truncated, **_about(sampling, searching, seed)}
        if as_json:
            print_json({**about, "texts": [_plain(one) for one in texts]})
        elif interrupted:
            print(flush=True)
        if record is not None and place is not None:
            _write_trace(record, place, {**about, "max_tokens": ready.max_new_tokens})
        if speech is not None and page_place is not None:
            _write_page(speech, page_place)
    if interrupted:
        note("interrupted")
        raise typer.Exit(INTERRUPTED)


def _sampling(settings: Mapping[str, float | None], others: Mapping[str, object]) -> Sampling:
    from regard.inference.generation import Sampling

    _refuse(others, "needs --beam N: it is for a search")
    temperature, top_p, min_p, repetition = (settings[name] for name in ("temperature", "top_p", "min_p", "repetition"))
    top_k = settings["top_k"]
    return Sampling(
        repetition_penalty=1.0 if repetition is None else repetition,
        temperature=TEMPERATURE if temperature is None else temperature,
        top_k=None if top_k is None else int(top_k),
        top_p=TOP_P if top_p is None else top_p,
        min_p=0.0 if min_p is None else min_p,
    )


def _beam(width: int, settings: Mapping[str, float | None], others: Mapping[str, object]) -> Beam:
    from regard.inference.generation import Beam

    _refuse(others, "does not go with --beam, which leaves nothing to chance; leave out one of the two")
    nbest, penalty = settings["nbest"], settings["length_penalty"]
    return Beam(
        num_beams=width,
        length_penalty=1.0 if penalty is None else penalty,
        num_return_sequences=1 if nbest is None else int(nbest),
        early_stopping=bool(settings["early"]),
    )


def _refuse(options: Mapping[str, object], reason: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise InputError(f"--{name.replace('_', '-')} {reason}")


def _about(sampling: Sampling | None, beam: Beam | None, seed: int) -> dict[str, object]:
    if beam is not None:
        return {"method": "beam", "settings": {k: v for k, v in asdict(beam).items() if k != "wide"}}
    assert sampling is not None
    method = "greedy" if sampling.temperature == 0 else "sample"
    return {"method": method, "settings": asdict(sampling), "seed": seed}


def _stops(stops: list[str] | None) -> list[str]:
    from regard.inference.generation.text_stream import check_stop_strings

    check_stop_strings(stops or [])
    return stops or []


def _read(prompt: str) -> str:
    from regard.data.files import STANDARD_INPUT, read_all_lines

    return "\n".join(read_all_lines(STANDARD_INPUT)) if prompt == STANDARD_INPUT else prompt


def _named(trace: Path) -> Path:
    if trace.suffix.lower() not in (".json", ".html"):
        raise InputError(f"{trace}: a trace is written as .json or as an .html page; name a file with one of the two")
    return trace


def _check_page(page: Path | None, others: Mapping[str, object]) -> None:
    from regard.render.bundle import check_built

    if page is None:
        return
    if page.suffix.lower() != ".html":
        raise InputError(f"{page}: a page is written as .html; name a file that ends so")
    _refuse(others, "does not go with --page, which shows one text and its steps; leave out one of the two")
    check_built()


def _tell_limits(ready: EncodedPrompt, asked: int | None) -> None:
    if ready.truncated:
        lost = " ".join(ready.truncated_text.split())
        shown = lost if len(lost) <= LOST else f"{lost[: LOST // 2]} ... {lost[-LOST // 2 :]}"
        note(
            f"the prompt is too long for the model's context: the first {ready.truncated:,} tokens were cut "
            f"({shown!r}), and {len(ready.ids):,} are read"
        )
    if asked is not None and ready.max_new_tokens < asked:
        note(f"this model's context has room for {ready.max_new_tokens:,} more tokens, not for {asked:,}")


def _speech(
    writer: TextGenerator,
    prompt: str,
    model: str,
    sampling: Sampling | None,
    beam: Beam | None,
    *,
    seed: int,
    most: int | None,
    stops: list[str],
) -> Generation:
    from regard.inference.generation import Sampling
    from regard.interpret.generation.config import GenerationConfig
    from regard.interpret.generation.generation import Generation

    wish = GenerationConfig(sampling or Sampling(), beam, seed, most or MAX_TOKENS, tuple(stops))
    return Generation(writer, prompt, wish, model)


def _plain(one: GeneratedText) -> dict[str, object]:
    """A text for JSON; chance has no score."""
    return {name: value for name, value in asdict(one).items() if value is not None}


def _write_trace(record: Trace, place: Path, about: dict[str, object]) -> None:
    document = record.document(about)
    if place.suffix.lower() == ".html":
        from regard.inference.generation.search_page import search_page

        place.write_text(search_page(document), encoding="utf-8")
    else:
        place.write_text(json.dumps(document, allow_nan=False, indent=1) + "\n", encoding="utf-8")


def _write_page(speech: Generation, place: Path) -> None:
    from regard.interpret.generation.generation import generation_payload
    from regard.render.bundle import page

    payload = generation_payload(speech.prompt_text, [speech])
    place.write_text(page(payload, title="Regard: generation"), encoding="utf-8")
