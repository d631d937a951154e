"""`regard translate`: texts in another language, with the attention to the source for each word."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from regard.data.files import STANDARD_INPUT
from regard.errors import InputError
from regard.events import Event, Note, Progress, ResultItem, TextPiece
from regard.files.output_file import GENERATOR
from regard.verbs.base import ModelName, Models, TextOrFile, argument, force_option, option, verb
from regard.verbs.tables import RowsRequest, open_texts

if TYPE_CHECKING:
    from regard.data.rows import RowReader
    from regard.inference.generation.beam_search import Beam
    from regard.inference.generation.trace import Trace
    from regard.inference.translation.result import TranslatedText, TranslationResult
    from regard.inference.translation.translator import Translator

AT_ONCE = 512  # texts
TRACED = 50  # maximum number of texts with a trace, which keeps every step


class TranslateRequest(RowsRequest):
    model: ModelName = argument(
        help="A folder that `regard train translate` wrote, a Marian (OPUS-MT) or mBART, or a built-in translator.",
        metavar="DIR",
    )
    source: TextOrFile = argument(
        help="A file with one text per line or a table, - for standard input, or a text of several words.",
        metavar="INPUT",
    )
    num_beams: int = option(5, help="Number of beams; 1 is greedy search.", metavar="N", ge=1)
    num_return_sequences: int = option(1, help="Translations per text.", metavar="N", ge=1)
    length_penalty: float = option(1.0, help="Above 0 favors long translations.", metavar="P")
    src_lang: str | None = option(
        None, help="Language of the texts, for a translator of many languages: en_XX for mBART.", metavar="CODE"
    )
    tgt_lang: str | None = option(
        None,
        help="Language to translate into, for a translator of many: fr_XX for mBART, fra for OPUS-MT.",
        metavar="CODE",
    )
    target: list[str] = option(
        [],
        help="Read this translation of one text instead of searching: its log-probability and alignment. Repeatable.",
        metavar="TEXT",
        repeat=True,
    )
    alignments: Path | None = option(
        None,
        help="Write soft alignments as .json, or hard ones as .txt (i-j, words from 0).",
        metavar="FILE",
        writes=True,
    )
    trace: Path | None = option(
        None, help="Write every step of the search as .json or .html.", metavar="FILE", writes=True
    )
    force: bool = force_option()
    steps: bool = option(
        False, help="Record every step of one text with its attention to the source, which the page shows."
    )
    reference: Path | None = option(None, help="Reference translations, one per line; reports BLEU.", metavar="FILE")


@verb(
    TranslateRequest,
    result="regard.inference.translation.result:TranslationResult",
    formats=(".html", ".csv", ".jsonl", ".json"),
    http_limits={"num_beams": 10, "num_return_sequences": 10},
    items="texts",
)
def translate(request: TranslateRequest, models: Models) -> Generator[Event, None, TranslationResult]:
    """Translate texts, one per line, sentence by sentence. Rows without a text stay empty, so line numbers are kept.

    With --num-return-sequences each line holds the number of the text from 0, the score and the translation, separated
    by tabs. Words of an alignment are separated by spaces. With --target nothing is searched: the model reads the given
    translation and reports the log-probability of each token and the attention of each word, soft and hard.

    Example: regard translate regard-fr-en "Je suis étudiant." --target "I am a student."
    """
    from regard.data.files import read_all_lines
    from regard.files.output_file import replace_output
    from regard.inference.generation.beam_search import Beam
    from regard.inference.translation.result import TranslatedText, TranslationResult
    from regard.inference.translation.sentences import CompletenessCount, SourceCount, source_texts
    from regard.inference.translation.translator import (
        check_has_attention,
        check_target_language,
        use_translator,
        with_languages,
    )

    for name, known in (("alignments", (".json", ".txt")), ("trace", (".json", ".html"))):
        _check_suffix(name, getattr(request, name), known)
    several = request.num_return_sequences
    beam = (
        None
        if request.num_beams == several == 1
        else Beam(num_beams=request.num_beams, num_return_sequences=several, length_penalty=request.length_penalty)
    )
    with ExitStack() as stack:
        translator = stack.enter_context(use_translator(models, request.model))
        translator = with_languages(translator, request.src_lang, request.tgt_lang)
        check_target_language(translator)
        if request.alignments is not None:
            check_has_attention(translator.model)
        rows = yield from _open_rows(request)
        if request.target:
            result = _force(request, translator, rows)
            for message in result.notes:
                yield Note(message=f"warning: {message}")
            return result
        texts: Iterator[str] = (row.texts[0] or "" for row in rows.read(request.missing))
        references = None if request.reference is None else read_all_lines(request.reference, request.encoding)
        if references is not None and request.source != STANDARD_INPUT:
            read = list(texts)
            _check_count(references, str(request.reference), len(read))
            texts = iter(read)
        if request.steps:
            texts = iter([_single_text(texts, translator, "steps")])
        trace = _trace(translator) if request.trace else None
        at_once = 1 if request.source == STANDARD_INPUT else AT_ONCE  # a sender may wait for each answer
        if trace is not None:
            traced = list(islice(texts, TRACED + 1))
            if len(traced) > TRACED:
                raise InputError(f"--trace keeps every step, of at most {TRACED} texts; use a shorter file")
            texts, at_once = iter(traced), TRACED
        # Outputs that cannot be written are refused before the work.
        outputs = (request.alignments, request.trace)
        alignments_file, trace_file = (
            path and stack.enter_context(replace_output(path, force=request.force)) for path in outputs
        )
        # Otherwise memory does not grow with the number of texts.
        keep = request.steps or references is not None or any(outputs)
        done: list[TranslatedText] = []
        sources, complete = SourceCount(translator), CompletenessCount()
        count = 0
        yield TextPiece(text="")  # translations are printed as they come
        yield Progress(stage="translating", done=0)  # its clock starts
        while batch := list(islice(texts, at_once)):
            for text, found in zip(batch, translator.translate(batch, beam=beam, trace=trace), strict=True):
                translated = TranslatedText(text, found)
                complete.add(text, found[0].sentences)
                sources.add(text, found[0].sentences)
                if keep:
                    done.append(translated)
                alone = text == request.source  # the source is a text, not a file of texts
                yield ResultItem(text=translated.lines(count, several=several > 1, alone=alone), item=translated)
                count += 1
                yield Progress(stage="translating", done=count)
        if (missing_note := rows.missing_note(request.missing)) is not None:
            yield Note(message=missing_note)
        bleu = None
        if references is not None:
            from regard.inference.translation.translator import bleu as corpus_bleu

            _check_count(references, str(request.reference), len(done))
            scores = corpus_bleu([one.translations[0].text for one in done], references)
            yield Note(message=f"BLEU             {scores.bleu:6.2f}  {scores.signature}")
            yield Note(message=f"BLEU, lower case {scores.bleu_lowercase:6.2f}  {scores.signature_lowercase}")
            bleu = asdict(scores)
        if alignments_file:
            _write_alignments(alignments_file, translator, done)
            yield Note(message=f"{request.alignments}: alignments by {translator.alignment_heads}")
        if trace_file and trace is not None:
            rows_of = [source_texts(one.source, one.translations[0].sentences) or [one.source] for one in done]
            _write_trace(trace_file, trace, request, beam, [text for texts in rows_of for text in texts])
        notes = [*sources.notes(), *complete.notes(translator.max_length)]
        for message in notes:
            yield Note(message=f"warning: {message}")
        notes += [] if missing_note is None else [missing_note]
        result = TranslationResult(model=request.model, texts=[], bleu=bleu, notes=notes)
        if request.steps:
            from regard.interpret.translation import replay_translations

            steps = replay_translations(translator, done[0].source, done[0].translations, name=request.model)
            result._steps = steps.view_data()
    return result


def _force(request: TranslateRequest, translator: Translator, rows: RowReader) -> TranslationResult:
    """Score the given translations of one text."""
    from regard.files.output_file import replace_output
    from regard.inference.translation.forced_decoding import force_targets
    from regard.inference.translation.result import TranslatedText, TranslationResult

    for name in ("trace", "reference"):
        if getattr(request, name) is not None:
            raise InputError(f"--{name} needs a search, and --target gives the translation; leave one of them out")
    text = _single_text((row.texts[0] or "" for row in rows.read(request.missing)), translator, "target")
    targets = force_targets(translator, text, request.target)
    done = TranslatedText(text, [one.translation for one in targets])
    if request.alignments is not None:
        with replace_output(request.alignments, force=request.force) as path:
            _write_alignments(path, translator, [done])
    notes = translator.source_notes(text)
    result = TranslationResult(model=request.model, texts=[done], targets=targets, notes=notes)
    if request.steps:
        from regard.interpret.translation import replay_translations

        steps = replay_translations(translator, text, done.translations, name=request.model, forced=True)
        result._steps = steps.view_data()
    return result


def _trace(translator: Translator) -> Trace:
    from regard.inference.generation.trace import Trace

    subwords = translator.subwords
    return Trace(
        token_text=lambda token: subwords.target.decode([token], skip_special_tokens=False), decode=subwords.decode
    )


def _write_alignments(path: Path, translator: Translator, done: Sequence[TranslatedText]) -> None:
    heads = translator.alignment_heads
    aligned = [[translator.align_sentences(one.source, each) for each in one.translations] for one in done]
    if path.suffix.lower() == ".json":
        texts = [[asdict(alignment) for alignment in several] for several in aligned]
        document = {"generator": GENERATOR, "attention": {"of": str(heads), **asdict(heads)}, "texts": texts}
        content = json.dumps(document, ensure_ascii=False) + "\n"
    else:
        content = "".join(f"{alignment.pharaoh()}\n" for several in aligned for alignment in several)
    path.write_text(content, encoding="utf-8", errors="backslashreplace")


def _write_trace(path: Path, trace: Trace, request: TranslateRequest, beam: Beam | None, texts: list[str]) -> None:
    settings = {} if beam is None else {k: v for k, v in asdict(beam).items() if k not in ("early_stopping", "wide")}
    document = trace.document({"model": request.model, "texts": texts, "settings": settings})
    if path.suffix.lower() == ".html":
        from regard.inference.generation.trace import search_page

        if request.source == STANDARD_INPUT:
            request = request.model_copy(update={"source": texts})
        cli, python = translate.command_line(request), translate.python_code(request)
        content = search_page(document, cli=cli, python=python)
    else:
        content = json.dumps({"generator": GENERATOR, **document}, ensure_ascii=False, allow_nan=False) + "\n"
    path.write_text(content, encoding="utf-8", errors="backslashreplace")


def _open_rows(request: TranslateRequest) -> Generator[Note, None, RowReader]:
    from regard.data.files import taken_for_file

    source = request.source
    if not isinstance(source, str):
        return (yield from open_texts(source, request))
    if not (source.strip() or os.path.exists(source)):
        raise InputError("the text is empty; expected a file with one text per line, - for standard input, or a text")
    if not taken_for_file(source):
        return (yield from open_texts([source], request))
    try:
        # A sender may wait for each answer.
        return (yield from open_texts(source, request, interactive=source == STANDARD_INPUT))
    except InputError as error:
        if source == STANDARD_INPUT or os.path.exists(source):
            raise
        command = f"echo {shlex.quote(source)} | {shlex.join(['regard', 'translate', request.model, STANDARD_INPUT])}"
        raise InputError(f"{error}; a single word is taken for a file: to translate it, {command}") from None


def _single_text(texts: Iterator[str], translator: Translator, flag: str) -> str:
    """The only text of an option that takes one; a text that cannot be shown is refused before the work."""
    from regard.interpret.translation import first_sentence, source_ids

    first = list(islice(texts, 2))
    if len(first) != 1:
        found = "several" if first else "none"
        raise InputError(f"--{flag} is for one text, and the input has {found}; give one line")
    source_ids(translator, first[0] if flag == "target" else first_sentence(translator, first[0]))
    return first[0]


def _check_count(references: list[str], name: str, texts: int) -> None:
    if len(references) != texts:
        raise InputError(f"{name} has {len(references):,} lines and the input {texts:,}; expected a translation a line")


def _check_suffix(name: str, path: Path | None, known: tuple[str, ...]) -> None:
    if path is not None and path.suffix.lower() not in known:
        raise InputError(f"--{name} is {str(path)!r}; expected a name that ends in {' or '.join(known)}")
