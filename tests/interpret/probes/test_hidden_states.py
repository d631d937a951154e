"""Stored hidden states equal those of the Embedder in every layer, for any order and chunk size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import regard
from regard.data.examples import TaggedExample
from regard.errors import InputError
from regard.inference.embedding.embedder import Embedder
from regard.inference.embedding.engine import EmbeddingEngine, load_engine
from regard.interpret.probes import probe_heads as module
from regard.interpret.probes.probe_heads import split_long_sentences, text_states, token_states, word_states
from tests.inference.folders import tiny_gpt
from tests.interpret.runs import finish

TEXTS = ["the film was good", "so dull", "they love it and she said no to him", "a bad day", "xyzzy plugh, it is!"]


def untagged_example(text: str) -> TaggedExample:
    """Words separated by spaces, without tags."""
    words, start = [], 0
    for word in text.split(" "):
        words.append((start, start + len(word)))
        start += len(word) + 1
    return TaggedExample(text, tuple(words))


@pytest.fixture(params=["bert", "gpt"])
def folder(request: pytest.FixtureRequest, tiny_bert_folder: Path, tmp_path: Path) -> Path:
    return tiny_bert_folder if request.param == "bert" else tiny_gpt(tmp_path, positions=64)


def ready(folder: Path, pooling: str = "none", **options: int) -> EmbeddingEngine:
    return load_engine(folder, layers="concat(0:)", pooling=pooling, device="cpu", **options)


@pytest.mark.parametrize("chunk", [1, 2**28])
def test_words_use_their_first_subword(folder: Path, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", chunk)
    examples = [untagged_example(text) for text in TEXTS]
    events: list[int] = []
    found = finish(word_states(ready(folder), examples), events)
    assert found.lengths == (4, 2, 9, 3, 4)
    assert found.values.shape[0] == 3
    assert sum(events) == len(TEXTS)
    for layer in range(3):
        tokens = Embedder(folder, layers=layer, pooling="none", device="cpu").transform(TEXTS)
        expected = []
        for example, one in zip(examples, tokens, strict=True):
            for start, _ in example.words:
                # The token with the word's first letter; in a GPT it also contains the space before the word.
                index = next(i for i, (a, b) in enumerate(one.offsets) if a <= start < b)
                expected.append(one.vectors[index])
        np.testing.assert_allclose(found.values[layer], expected, atol=5e-3, rtol=2e-3)


def test_states_of_texts_and_tokens(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 4000)
    for pooling in ("mean", "cls"):
        found = finish(text_states(ready(folder, pooling), TEXTS))
        assert found.lengths == (1,) * len(TEXTS)
        for layer in range(3):
            expected = Embedder(folder, layers=layer, pooling=pooling, device="cpu").transform(TEXTS)
            np.testing.assert_allclose(found.values[layer], expected, atol=5e-3, rtol=2e-3)
    tokens = finish(token_states(ready(folder), TEXTS))
    expected = Embedder(folder, layers=2, pooling="none", device="cpu").transform(TEXTS)
    assert tokens.lengths == tuple(len(one.tokens) for one in expected)
    every = np.concatenate([one.vectors for one in expected])
    np.testing.assert_allclose(tokens.values[2], every, atol=5e-3, rtol=2e-3)


def test_large_states_are_memory_mapped(tiny_bert_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_memory = finish(text_states(ready(tiny_bert_folder, "mean"), TEXTS))
    monkeypatch.setattr(module, "MAX_BYTES_IN_MEMORY", 100)
    memory_mapped = finish(text_states(ready(tiny_bert_folder, "mean"), TEXTS))
    assert isinstance(memory_mapped.values, np.memmap)
    assert not isinstance(in_memory.values, np.memmap)
    np.testing.assert_array_equal(in_memory.values, memory_mapped.values)


def test_a_word_without_tokens_is_zeros(tiny_bert_folder: Path) -> None:
    """The tokenizer removes control characters."""
    example = TaggedExample("good \u200b\u200b film \u0001", ((0, 4), (5, 7), (8, 12), (13, 14)))
    found = finish(word_states(ready(tiny_bert_folder), [example]))
    assert [bool(found.values[:, item].any()) for item in range(4)] == [True, False, True, False]


def test_values_beyond_half_precision_are_clipped(tiny_bert_folder: Path) -> None:
    model, tokenizer = regard.load(tiny_bert_folder)
    last = [parameter for name, parameter in model.named_parameters() if "encoder" in name and "norm" in name][-2]
    last.data.mul_(1e7)
    values = finish(
        text_states(load_engine((model, tokenizer), layers="concat(0:)", pooling="cls", device="cpu"), TEXTS)
    ).values
    assert np.isfinite(values).all()
    assert float(np.abs(values).max()) == 65504


def test_long_sentences_are_encoded_in_parts(tiny_bert_folder: Path) -> None:
    text = " ".join(f"the film {number}" for number in range(60))
    words = untagged_example(text)
    long = TaggedExample(text, words.words, tuple(f"B-{index}" for index in range(len(words.words))))
    limited = ready(tiny_bert_folder, max_length=16)
    parts = split_long_sentences(limited, [long, untagged_example("so dull")])
    assert len(parts) > 12
    spelled = [part.text[start:end] for part in parts for start, end in part.words]
    assert " ".join(spelled) == text + " so dull"
    assert [tag for part in parts for tag in part.tags or ()] == list(long.tags or ())
    found = finish(word_states(limited, parts))
    assert limited.truncated == 0
    assert found.values.shape[1] == 182
    assert found.values.any(axis=2).all()


def test_text_without_tokens_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"text 2 .* has no tokens for this model"):
        finish(text_states(ready(tiny_gpt(tmp_path), "mean"), ["the film", "", "good"]))
