"""Translators: search in batches of similar length, word alignments from cross-attention, BLEU, and model folders.

Some have several languages, with mBART's codes such as fr_XX or Marian's such as >>fra<<. Marian reads the code of the
target language before the text. mBART reads that of the source language after the text and its decoder starts with that
of the target; in mBART-50 both come first, and the decoder is forced to generate it.

An alignment is soft, as weights, or hard, in Pharaoh format `i-j`; words are separated by spaces. The decoder reads the
translation (teacher forcing), so any translation can be aligned.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.checkpoints import loading
from regard.checkpoints.configs import is_translator
from regard.checkpoints.files import TRANSLATION
from regard.checkpoints.loaded_model import LoadedModel
from regard.checkpoints.loading import read_model, write_model
from regard.data.batch import collate, group_by_token_budget
from regard.errors import InputError, check_choice
from regard.events import drain
from regard.files.json_files import json_bytes, read_json
from regard.inference.generation.beam_search import Beam, Hypothesis, beam_search, greedy_search
from regard.inference.generation.decoder import as_decoder, reuse_packed_weights
from regard.inference.translation.sentences import (
    SourceCount,
    SourceSentence,
    TranslatedSentence,
    is_short,
    join_translations,
    source_texts,
    split_source,
)
from regard.inference.translation.subwords import Subwords, word_indices
from regard.models.family import can, describe_model
from regard.nn.masks import Padded
from regard.nn.recording import record
from regard.nn.training import evaluation_mode
from regard.text.language import LANGUAGE, LanguageProfile
from regard.text.marian import MarianTokenizer
from regard.text.sentencepiece import LANGUAGES

if TYPE_CHECKING:
    from regard.checkpoints.models import Models
    from regard.inference.generation.trace import Trace

TranslationModel = Any  # a model with the capability "translation"
BUDGET = 8192  # tokens per batch, times the number of beams
MAX_LENGTH = 200  # tokens of a sentence, if the folder does not say how many training covered


@dataclass(frozen=True)
class Translation:
    """A translation. Translations of a text are ranked by `score`; `log_probability` is the sum over the tokens.

    If it is not `finished`, it was truncated at about twice the length of its source. Each of the `sentences` was
    translated by itself; the score of the whole is the mean of theirs.
    """

    text: str
    ids: tuple[int, ...]
    log_probability: float
    score: float
    finished: bool
    sentences: tuple[TranslatedSentence, ...] = ()


@dataclass(frozen=True, eq=False)
class Translator:
    """A translation model, its subwords, and the attention heads that define alignments.

    Sentences of more than `max_length` tokens, which training did not cover, are translated in parts.
    """

    model: TranslationModel
    subwords: Subwords
    alignment_heads: AlignmentHeads
    language: LanguageProfile | None = None  # of the sources, if it is known
    max_length: int = MAX_LENGTH

    def source_notes(self, text: str) -> list[str]:
        """Warnings if sentences are not in the language that the translator reads, or have unknown characters."""
        count = SourceCount(self)
        count.add(text, self.split(text))
        return count.notes()

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device  # type: ignore[no-any-return]

    def translate(
        self, texts: Sequence[str], *, beam: Beam | None = None, trace: Trace | None = None
    ) -> list[list[Translation]]:
        """The translations of each text, best first; without a beam, the greedy one. A blank text gives "".

        Every sentence is translated by itself. A trace records all of them in one batch, and numbers its rows by
        their index among the sentences of all texts, of which a blank text is one.
        """
        return drain(self.translate_steps(texts, beam=beam, trace=trace))

    def translate_steps(
        self, texts: Sequence[str], *, beam: Beam | None = None, trace: Trace | None = None
    ) -> Generator[int, None, list[list[Translation]]]:
        """Translate; yields the number of newly finished texts."""
        split = [self.split(text) for text in texts]
        missing = [len(sentences) for sentences in split]
        owners = [index for index, sentences in enumerate(split) for _ in sentences]
        yield missing.count(0)
        sources = self.subwords.encode_sources(
            [part for text, sentences in zip(texts, split, strict=True) for part in source_texts(text, sentences)]
        )
        found: list[list[Hypothesis]] = [[] for _ in sources]
        groups = group_by_token_budget([len(ids) for ids in sources], BUDGET // (beam.num_beams if beam else 1))
        if trace is not None:
            blank = [not sentences for sentences in split for _ in sentences or " "]
            trace.set_row_numbers([row for row, is_blank in enumerate(blank) if not is_blank])
            beam, groups = beam or Beam(num_beams=1), [np.arange(len(sources))] if sources else []
        with reuse_packed_weights():
            for group in groups:
                results = self._search([sources[row] for row in group], beam, trace)
                for row, hypotheses in zip(group, results, strict=True):
                    found[row] = hypotheses
                    missing[owners[row]] -= 1
                yield sum(missing[index] == 0 for index in {owners[row] for row in group})
        rows = iter(zip(sources, found, strict=True))
        return [
            self._join(text, sentences, [next(rows) for _ in sentences])
            for text, sentences in zip(texts, split, strict=True)
        ]

    def split(self, text: str) -> list[SourceSentence]:
        """What is translated at once: sentences, and the parts of those that are longer than training covered."""
        return split_source(text, lambda part: len(self.subwords.encode_sources([part])[0]) <= self.max_length)

    def align(self, text: str, ids: Sequence[int]) -> Alignment:
        """Align a text with a translation, given by its `ids` without an end token; it need not be the model's own."""
        check_has_attention(self.model)
        subwords = self.subwords
        source = subwords.encode_sources([text])[0]
        inside = subwords.text_positions(source)
        first = (
            len(subwords.target_prefix) if tuple(ids[: len(subwords.target_prefix)]) == subwords.target_prefix else 0
        )
        pieces = source[inside], [*ids][first:]
        words = subwords.source.decode(pieces[0]).split(), subwords.target.decode(pieces[1]).split()
        if not words[0] or not words[1]:
            return Alignment(words[0], words[1], [], [])
        attention = _cross_attention(self.model, source, [*ids, subwords.end], self.alignment_heads)[first : len(ids)]
        # The pieces of a target word are averaged, the pieces of a source word are summed.
        rows = torch.zeros(len(words[1]), attention.shape[1], dtype=attention.dtype)
        target_words = torch.tensor(word_indices(subwords.target, pieces[1]))
        rows.index_add_(0, target_words, attention)
        rows = rows / torch.bincount(target_words, minlength=len(rows))[:, None].clamp(min=1)
        weights = torch.zeros(len(rows), len(words[0]), dtype=attention.dtype)
        weights.index_add_(1, torch.tensor(word_indices(subwords.source, pieces[0])), rows[:, inside])
        outside = rows.sum(1) - rows[:, inside].sum(1)
        weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-12)
        return Alignment(*words, weights.tolist(), outside.tolist())

    def align_sentences(self, text: str, translation: Translation) -> Alignment:
        """Align the sentences of a text with their translations; words are numbered through the whole text."""
        parts = [
            self.align(part, sentence.ids)
            for part, sentence in zip(source_texts(text, translation.sentences), translation.sentences, strict=True)
        ] or [self.align(text, translation.ids)]
        before, width = 0, sum(len(part.source) for part in parts)
        joined = Alignment([], [], [], [])
        for part in parts:
            after = width - before - len(part.source)
            joined.source.extend(part.source)
            joined.target.extend(part.target)
            joined.weights.extend([[0.0] * before + row + [0.0] * after for row in part.weights])
            joined.outside.extend(part.outside)
            before += len(part.source)
        return joined

    def encode_translation(self, translation: str) -> list[int]:
        """The ids of any translation, for `align`."""
        return self.subwords.encode_targets([translation])[0][:-1]

    def _search(self, sources: list[list[int]], beam: Beam | None, trace: Trace | None) -> list[list[Hypothesis]]:
        batch = collate(sources, packed=False).to(self.device)
        assert isinstance(batch.layout, Padded)
        max_new_tokens = 2 * max(map(len, sources)) + 10
        decoder, end = as_decoder(self.model), self.subwords.end
        if beam is None:
            hypotheses = greedy_search(decoder, batch.ids, batch.layout, end=end, max_new_tokens=max_new_tokens)
            return [[hypothesis] for hypothesis in hypotheses]
        return beam_search(
            decoder, batch.ids, batch.layout, beam=beam, end=end, max_new_tokens=max_new_tokens, trace=trace
        )

    def _join(
        self, text: str, sentences: Sequence[SourceSentence], rows: Sequence[tuple[list[int], list[Hypothesis]]]
    ) -> list[Translation]:
        """The best translations of a text, by the mean score of its sentences."""
        choices: list[tuple[float, tuple[Hypothesis, ...]]] = [(0.0, ())]
        for _, hypotheses in rows:
            longer = [(total + one.score, (*before, one)) for total, before in choices for one in hypotheses]
            choices = sorted(longer, key=lambda choice: -choice[0])[: len(hypotheses)]
        return [
            self._translation(text, sentences, [source for source, _ in rows], hypotheses, total / max(len(rows), 1))
            for total, hypotheses in choices
        ]

    def _translation(
        self,
        text: str,
        sentences: Sequence[SourceSentence],
        sources: Sequence[list[int]],
        hypotheses: Sequence[Hypothesis],
        score: float,
    ) -> Translation:
        joined, targets = join_translations(text, sentences, [self.subwords.decode(one.ids) for one in hypotheses])
        translated = [
            TranslatedSentence(
                source=sentence[:2],
                target=target,
                ids=one.ids,
                log_probability=one.log_probability,
                score=one.score,
                finished=one.finished,
                cut=sentence.cut,
                short=is_short(text[slice(*sentence[:2])], len(source), len(one.ids)),
            )
            for sentence, source, target, one in zip(sentences, sources, targets, hypotheses, strict=True)
        ]
        return Translation(
            text=joined,
            ids=tuple(token for one in hypotheses for token in one.ids),
            log_probability=sum(one.log_probability for one in hypotheses),
            score=score,
            finished=all(one.finished for one in hypotheses),
            sentences=tuple(translated),
        )


def save_translator(translator: Translator, folder: Path, *, files: Mapping[str, bytes] | None = None) -> None:
    """Write a folder atomically, with additional `files`."""
    heads = translator.alignment_heads
    document = {
        "task": "translate",
        "joint": translator.subwords.joint,
        "alignment": {"layer": heads.layer - 1, "heads": heads.heads},  # from 0, as in the names of the weights
        "max_length": translator.max_length,
    }
    contents = {**translator.subwords.files(), **(files or {}), TRANSLATION: json_bytes(document)}
    if translator.language is not None:
        contents[LANGUAGE] = translator.language.file()
    write_model(translator.model, folder, files=contents)


def require_translator(name_or_path: str | os.PathLike[str]) -> Path:
    """The folder of a translator; raises InputError for other models."""
    folder = loading.find_folder(name_or_path)
    if not is_translator(folder):
        raise InputError(
            f"{folder}: no {TRANSLATION}; expected a folder that `regard train translate` wrote, or a Marian or mBART"
        )
    return folder


def translator_of(loaded: LoadedModel) -> Translator:
    """The translator of a loaded model; of a model and its subwords, one with the default alignment heads."""
    if loaded.translator is not None:
        found: Translator = loaded.translator
        return found
    if not isinstance(loaded.tokenizer, Subwords):
        raise InputError(
            f"{loaded.name} does not translate; expected a folder that `regard train translate` wrote, or a Marian"
        )
    model = as_translation_model(loaded.model)
    return Translator(model, loaded.tokenizer, default_alignment_heads(model))


@contextmanager
def use_translator(models: Models, name: str) -> Iterator[Translator]:
    """The translator of a name, for one user at a time."""
    with models.use(name, require_translator) as loaded:
        yield translator_of(loaded)


def load_translator(name_or_path: str | os.PathLike[str], *, device: torch.device | str = "cpu") -> Translator:
    """Load a folder written by `regard train translate`, a Marian or mBART folder, or a built-in translator."""
    folder = require_translator(name_or_path)
    is_own = (folder / TRANSLATION).is_file()
    chosen_heads = _read_alignment_heads(folder / TRANSLATION) if is_own else None
    max_length = _read_max_length(folder / TRANSLATION) if is_own else MAX_LENGTH
    model, subwords = as_translation_model(read_model(folder)), Subwords.open(folder)
    alignment_heads = chosen_heads or default_alignment_heads(model)
    for side, rows, size in zip(
        ("source", "target"), model.vocab_sizes, (subwords.source.size, subwords.target.size), strict=True
    ):
        if rows != size if is_own else rows < size:  # published embeddings may have additional rows
            raise InputError(
                f"{folder}: the model has {rows:,} {side} tokens and the tokenizer {size:,}; copy the folder again"
            )
    language = LanguageProfile.open(folder)
    translator = Translator(model.to(device).eval(), subwords, alignment_heads, language, max_length)
    return translator if is_own else with_languages(translator)


def language_codes(translator: Translator) -> list[str]:
    """The codes of the languages to choose from; none for a translator between two languages."""
    tokenizer = translator.subwords.source
    if isinstance(tokenizer, MarianTokenizer):
        return tokenizer.language_codes
    return [code for code in LANGUAGES if code in tokenizer.vocabulary]


def with_languages(translator: Translator, src_lang: str | None = None, tgt_lang: str | None = None) -> Translator:
    """The translator for these languages, by default those of its files; it shares the weights."""
    codes, is_marian = language_codes(translator), isinstance(translator.subwords.source, MarianTokenizer)
    if is_marian and src_lang is not None:
        raise InputError("a Marian model recognizes the source language by itself; leave src_lang out")
    for name, code in (("src_lang", src_lang), ("tgt_lang", tgt_lang)):
        if code is not None and not codes:
            raise InputError(f"{name} is {code!r}, but this translator has one pair of languages; leave it out")
        if code is not None:
            check_choice(name, code, codes)
    if not codes:
        return translator
    subwords, model = translator.subwords, copy.copy(translator.model)
    tokenizer = subwords.source
    if is_marian:
        prefix = () if tgt_lang is None else (tokenizer.id(f">>{tgt_lang}<<"),)
        return replace(translator, subwords=replace(subwords, source_prefix=prefix))
    source = tokenizer.id(src_lang) if src_lang is not None else _default_source(translator, codes)
    if len(codes) < len(LANGUAGES):
        model.begin = model.begin if tgt_lang is None else tokenizer.id(tgt_lang)
        changed = replace(subwords, source_suffix=(subwords.end, source))
    else:
        model.forced_first = model.forced_first if tgt_lang is None else tokenizer.id(tgt_lang)
        first = () if model.forced_first is None else (model.forced_first,)
        changed = replace(subwords, source_prefix=(source,), target_prefix=first)
    return replace(translator, model=model, subwords=changed)


def check_target_language(translator: Translator) -> None:
    """Raise InputError if a translator into several languages does not know which one."""
    codes, tokenizer = language_codes(translator), translator.subwords.target
    if not codes or isinstance(tokenizer, MarianTokenizer):  # a text for Marian may begin with the code itself
        return
    model = translator.model
    first = model.begin if len(codes) < len(LANGUAGES) else model.forced_first
    if first is None or tokenizer.token(first) not in codes:
        raise InputError(f"this model translates into {len(codes)} languages; choose one with tgt_lang, such as fr_XX")


def _default_source(translator: Translator, codes: list[str]) -> int:
    tokenizer = translator.subwords.source
    added = [token for token in tokenizer.encode("").tokens if token in codes]
    return tokenizer.id(added[0] if added else "en_XX")


def _read_alignment_heads(path: Path) -> AlignmentHeads:
    alignment = read_json(path).get("alignment")
    if isinstance(alignment, dict):
        layer, heads = alignment.get("layer"), alignment.get("heads")
        if type(layer) is int and isinstance(heads, list) and heads and all(type(head) is int for head in heads):
            return AlignmentHeads(layer + 1, tuple(heads))
    raise InputError(
        f'{path}: alignment is {str(alignment)[:60]}; expected {{"layer": 1, "heads": [0, 1]}}: copy the folder again, '
        "or train again"
    )


def _read_max_length(path: Path) -> int:
    length = read_json(path).get("max_length", MAX_LENGTH)
    if type(length) is not int or length < 2:
        raise InputError(
            f"{path}: max_length is {str(length)[:60]}; expected a number of tokens: copy the folder again"
        )
    return length


def as_translation_model(model: nn.Module) -> TranslationModel:
    """The model, if it can translate; raises InputError otherwise."""
    if can(model, "translation") and getattr(model.config, "embedding_size", None) != 0:  # 0: reads vectors, not tokens
        return model
    raise InputError(
        f"{describe_model(model)} does not translate; expected a Transformer or a recurrent model with "
        "tokens, trained with `regard train translate`"
    )


@dataclass(frozen=True)
class AlignmentHeads:
    """The attention that defines alignments: a decoder layer, from 1, and the heads that are averaged, from 0."""

    layer: int
    heads: tuple[int, ...]

    def __str__(self) -> str:
        several = f"the mean of heads {', '.join(map(str, self.heads))}" if len(self.heads) > 1 else "the only head"
        return f"{several} of decoder layer {self.layer}"


@dataclass(frozen=True)
class Alignment:
    """`weights[j][i]` is the attention of target word j to source word i; the weights of a word sum to 1.

    `outside[j]` is the attention to the special tokens of the source, before normalization.
    """

    source: list[str]
    target: list[str]
    weights: list[list[float]]
    outside: list[float]

    def hard(self) -> list[int]:
        """For each target word the index of the source word with the highest weight."""
        return [max(range(len(row)), key=row.__getitem__) for row in self.weights]

    def pharaoh(self) -> str:
        """`i-j` for each target word j and the source word i with the highest weight, both from 0."""
        return " ".join(f"{i}-{j}" for j, i in enumerate(self.hard()))


def default_alignment_heads(model: TranslationModel) -> AlignmentHeads:
    """The mean of all heads of the second-to-last layer, or the attention of a recurrent model."""
    if can(model, "recurrent"):
        return AlignmentHeads(1, (0,))
    layers = model.decoder.layers
    return AlignmentHeads(max(len(layers) - 1, 1), tuple(range(layers[0].cross.heads)))


def has_attention(model: TranslationModel) -> bool:
    return not can(model, "recurrent") or model.decoder.cross is not None


def check_has_attention(model: TranslationModel) -> None:
    """Raise InputError for a model without attention."""
    if not has_attention(model):
        raise InputError(
            "this model has no attention (model.score is none), so it has no alignment; train one with attention"
        )


def _cross_attention(
    model: TranslationModel, source: Sequence[int], target: Sequence[int], heads: AlignmentHeads
) -> Tensor:
    """The attention of each target token to each source token, (T, S), on the CPU."""
    device = next(model.parameters()).device
    with evaluation_mode(model), record(model) as tape:
        model.teacher_forced_logits(
            torch.tensor([source], device=device), Padded(), torch.tensor([target], device=device)
        )
    layers = tape.attention("cross", "decoder")
    if not 1 <= heads.layer <= len(layers) or not set(heads.heads) <= set(range(layers[0].shape[1])):
        raise InputError(
            f"alignments of layer {heads.layer}, heads {list(heads.heads)} were requested, and the decoder has "
            f"layers 1 to {len(layers)} of {layers[0].shape[1]} heads"
        )
    return layers[heads.layer - 1][0, list(heads.heads)].mean(0).double().cpu()


@dataclass(frozen=True)
class Bleu:
    """The score of the texts, cased and lowercased (`sacrebleu -lc`), each with sacrebleu's signature."""

    bleu: float
    bleu_lowercase: float
    signature: str
    signature_lowercase: str

    @property
    def scores(self) -> dict[str, float]:
        return {"bleu": self.bleu, "bleu_lowercase": self.bleu_lowercase}


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Bleu:
    """Corpus BLEU against one reference per translation, with sacrebleu's default settings."""
    from sacrebleu.metrics.bleu import BLEU

    if len(hypotheses) != len(references):
        raise InputError(f"{len(hypotheses):,} translations and {len(references):,} references; expected one for each")
    metrics = BLEU(), BLEU(lowercase=True)
    scores = (metric.corpus_score(list(hypotheses), [list(references)]).score for metric in metrics)
    return Bleu(*scores, *(str(metric.get_signature()) for metric in metrics))
