"""One word in several texts: equal to cosines of transformers' hidden states."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

import regard
import regard.interpret.embeddings as module
from regard.errors import InputError
from regard.inference.embedding.embedder import Embedder
from regard.interpret.embeddings import SensesResult, find_word
from regard.interpret.projection import project
from regard.models import Elmo, ElmoConfig, Gpt, GptConfig
from regard.text import Tokenizer
from regard.verbs.python import LocalModels
from tests.inference.folders import byte_level


def compare_senses(word: str, texts: list[str], *, device: str = "cpu", **options: Any) -> SensesResult:
    return module.compare_senses(word, texts, use=LocalModels(device).use, **options)


TEXTS = ["the film is long", "they film the water", "So long! A Film, and a film."]


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / math.sqrt((a @ a) * (b @ b)))


def their_vectors(folder: Path, texts: list[str], spans: list[tuple[int, int]]) -> list[list[np.ndarray]]:
    """The mean over the word's subword tokens, by layer and text."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    found = []
    for text, (start, end) in zip(texts, spans, strict=True):
        given = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
        offsets = given.pop("offset_mapping")[0].tolist()
        pieces = [i for i, (a, b) in enumerate(offsets) if a < end and b > start]
        assert pieces
        with torch.no_grad():
            states = model(**given, output_hidden_states=True).hidden_states
        found.append([state[0, pieces].double().mean(0).numpy() for state in states])
    return [list(layer) for layer in zip(*found, strict=True)]


@pytest.mark.parametrize("word", ["film", "long film"])
def test_every_layer_equals_transformers(word: str, tiny_bert_folder: Path) -> None:
    texts = TEXTS if word == "film" else ["a long film", "the long  long film is so long", "Long Film!"]
    spans = [find_word(word, text, 1) for text in texts]
    found = compare_senses(word, texts, models=[str(tiny_bert_folder)], device="cpu")
    expected = their_vectors(tiny_bert_folder, texts, spans)
    layers = found.similarity[str(tiny_bert_folder)]
    assert len(layers) == len(expected) > 2
    for layer, vectors in zip(layers, expected, strict=True):
        for i in range(3):
            for j in range(3):
                assert layer[i][j] == pytest.approx(cosine(vectors[i], vectors[j]), abs=1e-4)
    assert layers[-1][0][1] < 0.9999  # otherwise the comparison would be trivial


def test_words_of_several_subwords_in_gpt_and_elmo(tiny_bert_folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    letters = byte_level(tmp_path / "letters", specials=["<|endoftext|>"], kind="gpt2")
    shape = GptConfig(
        vocab_size=letters.size,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=40,
    )
    regard.save(Gpt(shape), tmp_path / "gpt", letters)
    words = Tokenizer.open(tiny_bert_folder)
    elmo = Elmo(ElmoConfig(vocab_size=words.size, num_characters=0, hidden_size=6, cell_size=6, num_hidden_layers=2))
    regard.save(elmo, tmp_path / "elmo", words)
    models = [str(tmp_path / "gpt"), str(tmp_path / "elmo")]
    found = compare_senses("film", TEXTS[:2], models=models, device="cpu")
    assert list(found.similarity) == models
    for name in models:
        model, tokenizer = regard.load(name)
        assert tokenizer is not None
        vectors = []
        for text in TEXTS[:2]:
            start, end = find_word("film", text, 1)
            encoding = tokenizer.encode(text)
            inside = [i for i, (a, b) in enumerate(encoding.offsets) if a < end and b > start]
            assert tokenizer.decode([encoding.ids[i] for i in inside]).strip() == "film"
            with torch.no_grad():
                states = model.states(torch.tensor([encoding.ids]))  # type: ignore[operator]
                vectors.append([state[0, inside].double().mean(0).numpy() for state in states])
        for layer, first, second in zip(found.similarity[name], *vectors, strict=True):
            assert layer[0][1] == layer[1][0] == pytest.approx(cosine(first, second), abs=1e-5)
            assert layer[0][0] == pytest.approx(1)
    # The input embedding of a word is the same in every text; the output of a layer is not.
    elmo_layers = found.similarity[models[1]]
    assert elmo_layers[0][0][1] == pytest.approx(1) and elmo_layers[1][0][1] < 0.999


def test_static_vectors_do_not_depend_on_the_text(tiny_bert_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("film 1 0\nFilm 3 4\nthe 0 0\n", encoding="utf-8")
    found = compare_senses("film", TEXTS, models=(), static=path)
    # The third text has the capitalized word, which has its own vector in this file.
    ((matrix,),) = found.similarity.values()
    np.testing.assert_allclose(matrix, [[1.0, 1.0, 0.6], [1.0, 1.0, 0.6], [0.6, 0.6, 1.0]], atol=1e-12)
    zeros = compare_senses("the", ["the film", "The water"], models=(), static=path)
    assert zeros.similarity[str(path)] == [[[0.0, 0.0], [0.0, 0.0]]]
    with pytest.raises(InputError, match=r"vectors\.txt has no vector for 'long'"):
        compare_senses("long", ["so long", "long ago"], models=(), static=path)


@pytest.mark.parametrize(
    ("word", "text", "expected"),
    [
        ("train", "He took a train.", (10, 15)),
        ("train", "Training a train", (11, 16)),
        ("TRAIN", "the train", (4, 9)),
        ("C++", "I like C++, and C", (7, 10)),
        ("don't", "I don't know", (2, 7)),
        ("étudiant", "Je suis étudiant.", (8, 16)),
    ],
)
def test_the_whole_word_is_found(word: str, text: str, expected: tuple[int, int]) -> None:
    assert find_word(word, text, 1) == expected


@given(st.text(), st.text(), st.from_regex(r"[a-z]{1,8}", fullmatch=True))
def test_the_span_holds_the_word(before: str, after: str, word: str) -> None:
    text = f"{before} {word} {after}"
    start, end = find_word(word, text, 1)
    assert text[start:end].lower() == word or text[start:end].casefold() == word.casefold()
    assert end <= len(before) + 1 + len(word)


def test_invalid_texts_are_rejected(tiny_bert_folder: Path) -> None:
    with pytest.raises(InputError, match=r"text 2, 'They trained\.', does not have the word 'train'"):
        compare_senses("train", ["He took a train.", "They trained."], models=["nowhere"])
    with pytest.raises(InputError, match=r"two texts or more .*'train', got 1"):
        compare_senses("train", ["a train"])
    with pytest.raises(InputError, match="expected a word, got ' '"):
        compare_senses(" ", ["a b", "c d"])
    late = "the " * 600 + "film"
    with pytest.raises(InputError, match=r"text 2: the word comes after the \d+ tokens that"):
        compare_senses("film", ["film", late], models=[str(tiny_bert_folder)], device="cpu")


def test_each_layer_has_its_own_projection(tiny_bert_folder: Path) -> None:
    texts = ["He took a train.", "the TRAIN was long", "they train so many people", "a train is a thing"]
    name = str(tiny_bert_folder)
    result = compare_senses("train", texts, models=[name])
    assert [text[start:end].lower() for text, (start, end) in zip(texts, result.spans, strict=True)] == ["train"] * 4
    assert result.contexts[name].pieces[0] == ["t", "##r", "##a", "##i", "##n"]
    previous = None
    for layer, plane in enumerate(result.contexts[name].planes):
        tokens = Embedder(tiny_bert_folder, layers=layer, pooling="none", device="cpu").transform(texts)
        rows = []
        for one, (start, end) in zip(tokens, result.spans, strict=True):
            inside = [v for v, (a, b) in zip(one.vectors, one.offsets, strict=True) if a < end and b > start]
            rows.append(np.mean(inside, 0))
        (expected, explained), points = project(np.array(rows)), np.array(plane.points)
        np.testing.assert_allclose(np.abs(points), np.abs(expected), atol=1e-4)
        np.testing.assert_allclose(plane.explained, explained, atol=1e-5)
        assert previous is None or ((points * previous).sum(0) >= 0).all()
        previous = points


def test_too_many_texts_are_sampled_and_reported(tiny_bert_folder: Path) -> None:
    many = [f"a train {'so ' * n}long" for n in range(9)]
    name = str(tiny_bert_folder)
    result = compare_senses("train", many, models=[name], limit=4, seed=3)
    assert len(result.texts) == 4 and result.total == 9
    assert [many.index(text) for text in result.texts] == sorted(many.index(text) for text in result.texts)
    page = result.page_data()
    (note,) = page["notes"]
    assert all(part in note for part in ("4 of 9 texts", "seed 3", "5 are left out"))
    assert page["similarity"] == result.similarity[name] and page["model"] == name


def test_view_accepts_one_model_only(tiny_bert_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("film 1 0\nFilm 3 4\n", encoding="utf-8")
    result = compare_senses("film", TEXTS, models=[str(tiny_bert_folder)], static=path)
    with pytest.raises(InputError, match="one model"):
        result.page_data()
