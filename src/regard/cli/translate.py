"""`regard translate`: texts in another language, with where the model looked for each word."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import MAX_LINE, DeviceOption, JsonOption, MaxLineOption
from regard.cli.output import note, print_json, progress, write_data
from regard.data.files import STANDARD_INPUT
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.inference.generation.beam_search import Beam
    from regard.inference.generation.trace import Trace
    from regard.inference.translation import Translation, Translator

__all__ = ["register"]

AT_ONCE = 512  # texts
TRACED = 50  # texts at most, for a trace keeps every step


def register(app: typer.Typer) -> None:
    app.command("translate")(translate)


def translate(
    folder: Annotated[
        str, typer.Argument(metavar="DIR", help="What `regard train translate` wrote, or a built-in translator's name.")
    ],
    source: Annotated[
        str,
        typer.Argument(
            metavar="INPUT", help="A file of a text a line, - for standard input, or a text of several words."
        ),
    ],
    width: Annotated[int, typer.Option("--beam", metavar="N", min=1, help="Width of the search; 1: greedy.")] = 5,
    nbest: Annotated[int, typer.Option("--nbest", metavar="N", min=1, help="Translations of each text.")] = 1,
    penalty: Annotated[
        float, typer.Option("--length-penalty", metavar="P", help="Above 0 favours long translations.")
    ] = 1.0,
    alignments: Annotated[
        str | None,
        typer.Option("--alignments", metavar="FILE", help="Soft ones as .json, hard ones as .txt (i-j, words from 0)."),
    ] = None,
    trace: Annotated[
        str | None, typer.Option("--trace", metavar="FILE", help="Every step of the search: .json, or a page as .html.")
    ] = None,
    page: Annotated[
        str | None,
        typer.Option("--page", metavar="FILE", help="Every step of one text and where it looked, as .html."),
    ] = None,
    reference: Annotated[
        str | None, typer.Option("--reference", metavar="FILE", help="Right translations, a line each: prints BLEU.")
    ] = None,
    max_line: MaxLineOption = MAX_LINE,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Translate texts, a line each. An empty line stays one, so that lines keep their numbers.

    With --nbest each line is the number of the text from 0, the score and the translation, with tabs between. A word of
    an alignment is what stands between spaces.
    """
    from regard.device import choose_device
    from regard.files.disk import replace_file
    from regard.inference.generation.beam_search import Beam
    from regard.inference.translation import load_translator
    from regard.inference.translation.alignment import check_has_attention

    _check_suffix("--alignments", alignments, (".json", ".txt"))
    _check_suffix("--trace", trace, (".json", ".html"))
    _check_suffix("--page", page, (".html",))
    beam = (
        None if (width, nbest) == (1, 1) else Beam(num_beams=width, num_return_sequences=nbest, length_penalty=penalty)
    )
    translator = load_translator(folder, device=choose_device(device))
    job = _Job(translator, beam, _trace(translator) if trace else None)
    if alignments is not None:
        check_has_attention(translator.model)
    texts, references = _texts(source, folder), _references(reference)
    if references is not None and source != STANDARD_INPUT:
        known = list(texts)
        _check_count(references, str(reference), len(known))
        texts = iter(known)
    if page is not None:
        texts = iter([_one(texts, translator)])
    piped = source == STANDARD_INPUT and not (trace or as_json)  # whoever sends a line may wait for the answer
    with ExitStack() as places, ExitStack() as stack:
        # Whether they can be written is known before the work.
        soft_or_hard, steps, shown = (
            path and places.enter_context(replace_file(path)) for path in (alignments, trace, page)
        )
        bar = None if sys.stdout.isatty() else stack.enter_context(progress("translating"))
        for number, found in job.run(texts, at_once=1 if piped else AT_ONCE):
            if not as_json:
                for line in _lines(number, found, several=nbest > 1):
                    write_data(f"{line}\n")
                if piped:
                    sys.stdout.flush()
            if bar is not None:
                bar(1)
        stack.close()
        document: dict[str, object] = {"model": folder, "texts": job.documents()}
        if references is not None:
            document["bleu"] = job.scored(references, str(reference))
        if soft_or_hard:
            job.write_alignments(soft_or_hard)
            note(f"{alignments}: alignments by {translator.alignment_heads}")
        if steps:
            job.write_trace(steps, model=folder)
        if shown:
            job.write_page(shown, model=folder)
    if as_json:
        print_json(document)


def _trace(translator: Translator) -> Trace:
    from regard.inference.generation.trace import Trace

    subwords = translator.subwords
    return Trace(token_text=lambda token: subwords.target.decode([token], special=True), decode=subwords.decode)


class _Job:
    """Texts and what was found for them."""

    def __init__(self, translator: Translator, beam: Beam | None, trace: Trace | None) -> None:
        self.translator, self.beam, self.trace = translator, beam, trace
        self.found: list[tuple[str, list[Translation]]] = []

    def run(self, texts: Iterator[str], *, at_once: int) -> Iterator[tuple[int, list[Translation]]]:
        if self.trace is not None:
            several = list(islice(texts, TRACED + 1))
            if len(several) > TRACED:
                raise InputError(f"--trace keeps every step, of at most {TRACED} texts; name a shorter file")
            texts, at_once = iter(several), TRACED
        while several := list(islice(texts, at_once)):
            found = self.translator.translate(several, beam=self.beam, trace=self.trace)
            for text, translations in zip(several, found, strict=True):
                self.found.append((text, translations))
                yield len(self.found) - 1, translations

    def documents(self) -> list[dict[str, object]]:
        return [
            {
                "source": text,
                "translations": [
                    {
                        "text": one.text,
                        "score": one.score,
                        "log_probability": one.log_probability,
                        "finished": one.finished,
                    }
                    for one in translations
                ],
            }
            for text, translations in self.found
        ]

    def scored(self, references: list[str], name: str) -> dict[str, float | str]:
        from regard.inference.translation.bleu import bleu

        _check_count(references, name, len(self.found))
        found = bleu([translations[0].text for _, translations in self.found], references)
        note(f"BLEU             {found.bleu:6.2f}  {found.signature}")
        note(f"BLEU, lower case {found.bleu_lowercase:6.2f}  {found.signature_lowercase}")
        return found.document()

    def write_alignments(self, path: Path) -> None:
        looking = self.translator.alignment_heads
        aligned = [[self.translator.align(text, one.ids) for one in several] for text, several in self.found]
        if path.suffix.lower() == ".json":
            texts = [[one.document() for one in several] for several in aligned]
            document = {"attention": {"of": str(looking), **looking.document()}, "texts": texts}
            content = json.dumps(document, ensure_ascii=False) + "\n"
        else:
            content = "".join(f"{one.pharaoh()}\n" for several in aligned for one in several)
        path.write_text(content, encoding="utf-8", errors="backslashreplace")

    def write_trace(self, path: Path, *, model: str) -> None:
        assert self.trace is not None
        settings = (
            {}
            if self.beam is None
            else {k: v for k, v in asdict(self.beam).items() if k not in ("early_stopping", "wide")}
        )
        texts = [text for text, _ in self.found]
        document = self.trace.document({"model": model, "texts": texts, "settings": settings})
        if path.suffix.lower() == ".html":
            from regard.inference.generation.search_page import search_page

            content = search_page(document)
        else:
            content = json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n"
        path.write_text(content, encoding="utf-8", errors="backslashreplace")

    def write_page(self, path: Path, *, model: str) -> None:
        from regard.interpret.translation.decoding_steps import replay_translations, reproduction

        [(text, found)] = self.found
        result = replay_translations(self.translator, text, found, name=model)
        result.with_reproduction(*reproduction(model, text, self.beam))
        path.write_text(result.to_html(), encoding="utf-8")


def _lines(number: int, found: list[Translation], *, several: bool) -> list[str]:
    # A line end inside a translation would be taken for the end of it.
    texts = [" ".join(one.text.split("\n")).encode("utf-8", "backslashreplace").decode() for one in found]
    if not several:
        return texts
    return [f"{number}\t{one.score:.4f}\t{text}" for one, text in zip(found, texts, strict=True)]


def _texts(source: str, folder: str) -> Iterator[str]:
    from regard.data.files import open_text, taken_for_file

    if not (source.strip() or os.path.exists(source)):
        raise InputError("the text is empty; expected a file of a text a line, - for standard input, or a text")
    if not taken_for_file(source):
        yield source
        return
    try:
        with open_text(source) as lines:
            yield from lines
    except InputError as error:
        if source == STANDARD_INPUT or os.path.exists(source):
            raise
        command = f"echo {shlex.quote(source)} | {shlex.join(['regard', 'translate', folder, STANDARD_INPUT])}"
        raise InputError(f"{error}; a single word is taken for a file: to translate it, {command}") from None


def _one(texts: Iterator[str], translator: Translator) -> str:
    """The one text of a page; whether it can be shown is known before the work."""
    from regard.interpret.translation.decoding_steps import source_ids
    from regard.render.bundle import check_built

    check_built()
    several = list(islice(texts, 2))
    if len(several) != 1:
        raise InputError(f"--page shows one text, and the input has {'several' if several else 'none'}; give one line")
    source_ids(translator, several[0])
    return several[0]


def _references(path: str | None) -> list[str] | None:
    from regard.data.files import read_all_lines

    return None if path is None else read_all_lines(path)


def _check_count(references: list[str], name: str, texts: int) -> None:
    if len(references) != texts:
        raise InputError(f"{name} has {len(references):,} lines and the input {texts:,}; expected a translation a line")


def _check_suffix(option: str, path: str | None, known: tuple[str, ...]) -> None:
    if path is not None and not path.lower().endswith(known):
        raise InputError(f"{option} is {path!r}; expected a name that ends in {' or '.join(known)}")
