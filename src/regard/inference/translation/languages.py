"""The languages of a translator with several: mBART's codes such as fr_XX, and Marian's such as >>fra<<.

Marian reads the code of the target language before the text. mBART reads that of the source language after the text
and its decoder starts with that of the target; in mBART-50 both come first, and the decoder is forced to generate it.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from regard.errors import InputError, check_choice
from regard.text.marian import MarianTokenizer
from regard.text.sentencepiece import LANGUAGES

if TYPE_CHECKING:
    from regard.inference.translation.translator import Translator


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
