"""The encoder gives the same ids as the tokenizers library for any sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.corpus import Document
from regard.data.corpus.parts import CorpusEncoder, text_bytes
from regard.text import Tokenizer

ODD = ["\u00a0", "\t", "\n", "\x1c", "\u200d", "e\u0301", "É", "漢", "Σ", "ﬁ", "£5", "[MASK]", "<|endoftext|>"]
PARTS = st.sampled_from([*ODD, "The", "river", ".", "'s", " ", "  ", "-", "12"])
TEXTS = st.one_of(st.text(min_size=1), st.lists(PARTS, min_size=1).map("".join))


def encode_with_the_library(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    pipeline = tokenizers.Tokenizer.from_str(tokenizer.files()["tokenizer.json"].decode())
    pipeline.encode_special_tokens = True
    return [found.ids for found in pipeline.encode_batch(texts, add_special_tokens=False)]


def encode(encoder: CorpusEncoder, sentences: list[str]) -> list[list[int]]:
    ids, sizes = encoder.encode(sentences)
    return [part.tolist() for part in np.split(ids, np.cumsum(sizes)[:-1])]


@settings(deadline=None, max_examples=200)
@given(texts=st.lists(TEXTS, min_size=1, max_size=8))
def test_ids_equal_those_of_the_library(texts: list[str], wordpiece: Tokenizer, bpe: Tokenizer) -> None:
    clean = [text.encode("utf-8", "replace").decode() for text in texts]
    for tokenizer in (wordpiece, bpe):
        assert encode(CorpusEncoder(tokenizer), clean) == encode_with_the_library(tokenizer, clean)


def test_unknown_pipelines_encode_whole_sentences(wordpiece: Tokenizer) -> None:
    pipeline = tokenizers.Tokenizer.from_str(wordpiece.files()["tokenizer.json"].decode())
    pipeline.add_tokens(["the river"])
    tokenizer = Tokenizer(pipeline, special_tokens={"unk_token": "[UNK]"})
    assert encode(CorpusEncoder(tokenizer), ["the river", "city", "the river"]) == [
        [150],
        [wordpiece.id("city")],
        [150],
    ]


def test_special_tokens_in_a_text_are_text(wordpiece: Tokenizer, bpe: Tokenizer) -> None:
    (ids,) = encode(CorpusEncoder(wordpiece), ["[MASK] [SEP]"])
    assert not {wordpiece.mask_token_id, wordpiece.sep_token_id} & set(ids)
    (ids,) = encode(CorpusEncoder(bpe), ["a<|endoftext|>"])
    assert bpe.eos_token_id not in ids and bpe.decode(ids) == "a<|endoftext|>"


def test_byte_level_tokens_include_the_space(wordpiece: Tokenizer, bpe: Tokenizer) -> None:
    document = Document(Path("a"), 1, ("One.  Two. Three.", "Four. Five."))
    assert CorpusEncoder(wordpiece).sentences(document) == ["One.", "Two.", "Three.", "Four.", "Five."]
    encoder = CorpusEncoder(bpe)
    assert encoder.sentences(document) == ["One.", "  Two.", " Three.", "\nFour.", " Five."]
    ids, _ = encoder.encode(encoder.sentences(document))
    assert ids.tolist() == bpe.encode("\n".join(document.paragraphs)).ids


def test_text_size_is_counted_in_utf_8_bytes() -> None:
    assert text_bytes(Document(Path("a"), 1, ("abc", "é漢"))) == 8
