"""Tokenizers in GGUF files: the same ids as the tokenizer that the file was made from."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, normalizers, pre_tokenizers

import regard
from regard.errors import InputError
from regard.files.gguf_file import GgufFile
from regard.text import Tokenizer
from regard.text.gguf_tokenizer import PRE_TOKENIZERS, read_gguf_tokenizer
from tests.checkpoints.gguf_files import byte_level_metadata

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = ["▁", "a", "b", "c", "d", "▁a", "ab", "cd", "abc", "▁ab", "abcd", "▁b", "bc", "dd", "ddd"]
RANKS = [20, 21, 22, 23, 24, 3, 5, 4, 2, 6, 1, 8, 7, 9, 0]
SENTENCE_PIECE = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", *BYTES, *PIECES],
    "tokenizer.ggml.scores": [0.0] * 259
    + [-float(number) for number in (20, 21, 22, 23, 24, 3, 5, 4, 2, 6, 1, 8, 7, 9, 0)],
    "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(PIECES),
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
}
TEXTS = [
    "The river, 12345 birds' wings",
    "I'LL don't  we've\n\n  x\r\n",
    "naïve café 日本語 🙂 ½²",
    "a\u00a0b e\u0301",
    "<|endoftext|>The<|endoftext|>",
    "",
    " ",
]


def make(metadata: dict[str, Any]) -> Tokenizer:
    values = {
        key: np.array(one) if isinstance(one, list) and one and not isinstance(one[0], str) else one
        for key, one in metadata.items()
    }
    pipeline, settings = read_gguf_tokenizer(GgufFile(Path("x.gguf"), {"general.architecture": "llama", **values}, {}))
    return Tokenizer(pipeline, **settings)


def bpe_metadata(*, pre: str) -> dict[str, Any]:
    """The vocabulary of regard-gpt."""
    files = regard.load("regard-gpt")[1].files()
    model = json.loads(files["tokenizer.json"])["model"]
    return byte_level_metadata(list(model["vocab"]), [" ".join(pair) for pair in model["merges"]], pre=pre, control=1)


@pytest.fixture(scope="module")
def metadata() -> dict[str, Any]:
    return bpe_metadata(pre="gpt-2")


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "qwen2", "tekken"])
def test_byte_level_bpe_equals_the_pipeline_of_the_checkpoints(pre: str, metadata: dict[str, Any]) -> None:
    _, original = regard.load("regard-gpt")
    found = make(metadata | {"tokenizer.ggml.pre": pre, "tokenizer.ggml.add_bos_token": False})
    # The parts of tokenizer.json on the hub for models with this pre-tokenizer.
    splits = {
        "gpt-2": [pre_tokenizers.ByteLevel(add_prefix_space=False)],
        "smollm": [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)],
    }
    if pre not in splits:
        pattern = PRE_TOKENIZERS[pre].patterns[0]
        splits[pre] = [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    original._pipeline.pre_tokenizer = pre_tokenizers.Sequence(splits[pre])
    if pre == "qwen2":
        original._pipeline.normalizer = normalizers.NFC()
    original._pipeline.model.ignore_merges = PRE_TOKENIZERS[pre].whole_words
    for text in TEXTS:
        expected, encoded = original.encode(text), found.encode(text)
        assert encoded.ids == expected.ids and encoded.offsets == expected.offsets
        if pre != "qwen2":
            assert found.decode(encoded.ids, skip_special_tokens=False) == text


def test_begin_tokens_are_added_as_the_file_says(metadata: dict[str, Any]) -> None:
    assert make(metadata).encode("a").ids[0] != 0
    assert make(metadata | {"tokenizer.ggml.add_bos_token": True}).encode("a").ids[0] == 0
    llama = make(metadata | {"tokenizer.ggml.pre": "llama-bpe"})
    assert llama.encode("a").ids[0] == 0, "the default of this pre-tokenizer"
    both = make(metadata | {"tokenizer.ggml.add_eos_token": True, "tokenizer.ggml.add_bos_token": True})
    assert [both.encode("a").ids[index] for index in (0, -1)] == [0, 0]


def sentence_piece(text: str) -> list[str]:
    """Merge the pair with the best score, the leftmost of equals, until no pair is a token."""
    tokens: dict[str, float] = dict(
        zip(SENTENCE_PIECE["tokenizer.ggml.tokens"], SENTENCE_PIECE["tokenizer.ggml.scores"], strict=True)
    )
    pieces = list(f" {text}".replace(" ", "▁")) if text else []
    while True:
        pairs = [(-tokens[a + b], i) for i, (a, b) in enumerate(pairwise(pieces)) if a + b in tokens]
        if not pairs:
            break
        _, first = min(pairs)
        pieces[first : first + 2] = [pieces[first] + pieces[first + 1]]
    return [
        part for piece in pieces for part in ([piece] if piece in tokens else [f"<0x{b:02X}>" for b in piece.encode()])
    ]


SPM = make(SENTENCE_PIECE)


@given(st.text(alphabet="abcd é", max_size=12))
def test_sentence_piece_merges_by_score(text: str) -> None:
    encoded = SPM.encode(text)
    assert encoded.tokens == ["<s>", *sentence_piece(text)]
    assert SPM.decode(encoded.ids) == text


def test_sentence_piece_without_a_space_prefix() -> None:
    found = make(SENTENCE_PIECE | {"tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.add_bos_token": False})
    assert found.encode("ab ab").tokens == ["ab", "▁ab"]
    assert found.decode(found.encode(" ab").ids) == " ab"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model", "bert", "'gpt2' or 'llama'"),
        ("model", 3, "a text"),
        ("pre", "smolm", "did you mean 'smollm'"),
        ("tokens", ["a", "a"], "unique tokens"),
        ("tokens", ["a" * 2000], "unique tokens"),
        ("tokens", [1, 2], "a list of texts"),
        ("token_type", [1], "one for each token"),
        ("merges", ["ab"], "two pieces"),
        ("merges", ["never merged"], "cannot be used"),
        ("bos_token_id", 10**9, "a token id below"),
        ("add_bos_token", 1, "true or false"),
    ],
)
def test_values_that_make_no_tokenizer_are_refused(
    key: str, value: object, message: str, metadata: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match=message):
        make(metadata | {f"tokenizer.ggml.{key}": value})
