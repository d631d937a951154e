"""Sentences of a text to translate, and their translations as one text.

Translators are trained on sentences; of a text of several they translate the first ones only. So each sentence is
translated by itself. One with more tokens than training covered is cut, at a comma or a space near its middle.
"""

# ruff: noqa: RUF001 (the patterns contain punctuation of other scripts)

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from regard.data.corpus.sentences import split_sentences

if TYPE_CHECKING:
    from regard.inference.translation.translator import Translator

Span = tuple[int, int]
MIN_RATIO = 0.4  # of the tokens of a translation to those of its source; below, something is missing
MIN_RATIO_OF_CLAUSES = 0.6  # of a source of MIN_CLAUSES clauses or more, of which translators leave out some
MIN_CLAUSES = 4
MIN_TOKENS = 12  # of a source; short sentences vary more
MIN_WIDTH = 30  # of lines that a program or a mail has wrapped
MAX_QUOTED = 60  # characters of a sentence in a warning
_LINE = re.compile(r"\s*\n\s*")
_CODE = re.compile(r"\s*>>\w+<<\s*")  # of the target language, which Marian reads before every sentence
_BREAKS = (re.compile(r"[,;:،，、；：](?=\s|[^\x00-\u2e7f])\s*|\s[-–—]\s"), re.compile(r"\s+"))
_CLAUSE = re.compile(r"[,;:]\s|\s[-–—]\s|[，；：、]")
_END = re.compile(r"[.!?:…。！？｡؟।۔][\"'”’»)\]“«」』）]*\s*\Z")
_WITHIN = re.compile(r"[^\W\d_][.!?][\"'”’»)\]“«]* +[^\W\d_a-zß-öø-ÿ]")  # the end of a sentence within a line
_UNSPACED = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]")  # Chinese and Japanese


class SourceSentence(NamedTuple):
    """What is translated at once: a sentence of a text, or a part of one that was `cut`."""

    start: int
    end: int
    cut: bool


@dataclass(frozen=True)
class TranslatedSentence:
    """Where a sentence is in its text, and its translation in that of the text: (start, end).

    It is not `finished` if the search ended at its length limit, `cut` if it is a part of a sentence that is longer
    than training covered, and `short` if the translation has far fewer tokens than the source.
    """

    source: Span
    target: Span
    ids: tuple[int, ...]
    log_probability: float
    score: float
    finished: bool
    cut: bool
    short: bool


def sentence_spans(text: str) -> list[Span]:
    """The sentences of a text.

    A line break ends one unless the next line goes on with a lowercase letter or the lines of the paragraph are wrapped
    at a width. What has no letters or digits, such as an emoji, belongs to the sentence before it.
    """
    code = _CODE.match(text)
    start, spans, wrapped = code.end() if code else 0, list[Span](), wrapped_lines(text)
    for line in [*_LINE.finditer(text, start), None]:
        if line and line[0].count("\n") == 1 and text[line.end() : line.end() + 1].islower():
            continue
        if line and line.end() in wrapped:
            continue
        end = line.start() if line else len(text)
        for first, last in split_sentences(text[start:end], any_language=True):
            if spans and not any(map(str.isalnum, text[start + first : start + last])):
                spans[-1] = spans[-1][0], start + last
            else:
                spans.append((start + first, start + last))
        start = line.end() if line else end
    if len(spans) < 2:
        return [(0, len(text))] if text.strip() else []
    return spans


def wrapped_lines(text: str) -> set[int]:
    """Where lines begin that go on with the sentence of the line before, because a paragraph is wrapped at a width.

    That is so if the first word of no line has room in the line before, and the text reads as prose: a sentence ends
    within a line, or a line begins in lower case.
    """
    found: set[int] = set()
    for paragraph in re.finditer(r"(?:[^\S\n]*\S[^\n]*(?:\n|\Z)){3,}", text):
        lines, start = paragraph[0].splitlines(), paragraph.start()
        bare = [line.strip() for line in lines]
        width = max(map(len, bare))
        following = list(pairwise(bare))
        is_full = all(len(line) + 1 + len(after.split()[0]) > width for line, after in following)
        is_prose = any(_WITHIN.search(line) for line in bare) or any(after[0].islower() for _, after in following)
        if width >= MIN_WIDTH and is_full and is_prose:
            for line, after in pairwise(lines):
                start += len(line) + 1
                if not _END.search(line):
                    found.add(start + len(after) - len(after.lstrip()))
    return found


def source_texts(text: str, sentences: Iterable[SourceSentence | TranslatedSentence]) -> list[str]:
    """The sentences as a translator reads them: each begins with the code of the target language, if the text does."""
    code = _CODE.match(text)
    spans = [one.source if isinstance(one, TranslatedSentence) else one[:2] for one in sentences]
    return [(code[0] if code and start else "") + text[start:end] for start, end in spans]


def split_source(text: str, fits: Callable[[str], bool]) -> list[SourceSentence]:
    """The sentences of a text; those that do not fit are cut into parts."""
    parts = [cut_span(text, span, fits) for span in sentence_spans(text)]
    return [SourceSentence(*span, len(several) > 1) for several in parts for span in several]


def cut_span(text: str, span: Span, fits: Callable[[str], bool]) -> list[Span]:
    """Cut a sentence in halves until its parts fit."""
    start, end = span
    if end - start < 2 or fits(text[start:end]):
        return [span]
    middle, quarter = (start + end) // 2, (end - start) // 4
    cuts = [(middle, middle)]
    for pattern in _BREAKS:
        if found := list(pattern.finditer(text, start + quarter, end - quarter)):
            cuts = [(match.start() + len(match[0].rstrip()) * (not match[0].isspace()), match.end()) for match in found]
            break
    left, right = min(cuts, key=lambda cut: abs(cut[1] - middle))
    return [*cut_span(text, (start, left), fits), *cut_span(text, (right, end), fits)]


def join_translations(
    text: str, sources: Sequence[SourceSentence], translations: Sequence[str]
) -> tuple[str, list[Span]]:
    """The translations of the sentences of a text with the spacing between those, and where each of them is."""
    joined, targets = "", []
    for index, (source, translation) in enumerate(zip(sources, translations, strict=True)):
        gap = text[sources[index - 1].end : source.start] if index else ""
        if index and gap in ("", " "):  # spaces between sentences are those of the target language
            gap = "" if _UNSPACED.fullmatch(joined[-1:]) else " "
        joined += gap
        targets.append((len(joined), len(joined) + len(translation)))
        joined += translation
    return joined, targets


def is_short(text: str, source: int, target: int) -> bool:
    """Whether a translation of `target` tokens has far fewer than its source, a text of `source` tokens."""
    has_clauses = len(_CLAUSE.findall(text)) + 1 >= MIN_CLAUSES
    ratio = MIN_RATIO_OF_CLAUSES if has_clauses else MIN_RATIO
    return source >= MIN_TOKENS and target < ratio * source


class CompletenessCount:
    """Counts translated sentences that may lack a part of the source, and those that were cut."""

    def __init__(self) -> None:
        self.sentences = self.unfinished = self.short = self.cut = 0
        self.example = ""  # a source whose translation is short

    def add(self, text: str, sentences: Sequence[TranslatedSentence]) -> None:
        self.sentences += len(sentences)
        short = (text[slice(*sentence.source)] for sentence in sentences if sentence.short)
        self.example = self.example or next((" ".join(source.split()) for source in short), "")
        self.unfinished += sum(not sentence.finished for sentence in sentences)
        self.short += sum(sentence.short for sentence in sentences)
        self.cut += sum(sentence.cut for sentence in sentences)

    def notes(self, max_length: int) -> list[str]:
        def counted(count: int) -> str:
            return f"{count:,} of {self.sentences:,} sentences: the" if self.sentences > 1 else "the"

        notes = []
        if self.unfinished:
            notes.append(f"{counted(self.unfinished)} translation ended at its length limit and may be wrong")
        if self.short:
            long = self.example[:MAX_QUOTED] + ("..." if len(self.example) > MAX_QUOTED else "")
            such = f" (“{long}”)" if self.sentences > 1 else ""
            notes.append(
                f"{counted(self.short)} translation is far shorter than the source{such}: a part may be missing"
            )
        if self.cut:
            notes.append(
                f"sentences of more than {max_length} tokens, hardly any of which training had, were cut into "
                f"{self.cut:,} parts that were translated one by one"
            )
        return notes


class SourceCount:
    """Counts what a translator cannot read: sentences in another language, or with unknown characters."""

    def __init__(self, translator: Translator) -> None:
        self.language, self.subwords = translator.language, translator.subwords
        self.texts = self.sentences = self.unknown = 0
        self.foreign: list[int] = []  # numbers of texts
        self.example = self.sentence = self.character = ""

    def add(self, text: str, sentences: Sequence[SourceSentence | TranslatedSentence]) -> None:
        parts = [" ".join(_CODE.sub("", part, count=1).split()) for part in source_texts(text, sentences)]
        if self.language is not None:
            found = [part for part in parts if not self.language.fits(part)]
            if found or not self.language.fits(text):
                self.foreign.append(self.texts)
                sentence = found[0] if 0 < len(found) < len(parts) else ""
                self.example, self.sentence = self.example or sentence or text, self.sentence or sentence
        for part in parts:
            if unknown := self.subwords.unknown_characters(part):
                self.unknown += 1
                self.character = self.character or unknown[0]
        self.texts += 1
        self.sentences += len(parts)

    def notes(self) -> list[str]:
        notes = []
        if self.language is not None and self.foreign:
            notes.append(
                self.language.note(self.foreign, count=self.texts, example=self.example, sentence=self.sentence)
            )
        if self.unknown:
            have = f"{self.unknown:,} of {self.sentences:,} sentences have" if self.sentences > 1 else "the text has"
            notes.append(
                f"{have} characters that the translator's vocabulary does not have, such as “{self.character}”: "
                "the translation may be wrong"
            )
        return [note for note in notes if note]
