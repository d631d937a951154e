"""One word in many texts: the same cosines as `regard senses`, planes of the Embedder's own vectors."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.cli import senses
from regard.cli.app import run
from regard.errors import InputError
from regard.inference.embedding.embedder import Embedder
from regard.interpret.embeddings.contexts import contexts
from regard.interpret.embeddings.projection import project
from regard.interpret.probes.senses import compare_senses

TEXTS = ["He took a train.", "the TRAIN was long", "they train so many people", "a train is a thing"]


def test_cosines_are_those_of_senses(tiny_bert_folder: Path) -> None:
    found = contexts(str(tiny_bert_folder), "train", TEXTS)
    expected = compare_senses("train", TEXTS, models=[str(tiny_bert_folder)], device="cpu")
    assert found.similarity.shape == (3, 4, 4)
    np.testing.assert_allclose(found.similarity, expected.similarity[str(tiny_bert_folder)], atol=1e-9)
    assert [text[start:end] for text, (start, end) in zip(TEXTS, found.places, strict=True)] == [
        "train",
        "TRAIN",
        "train",
        "train",
    ]
    assert found.pieces[0] == ["t", "##r", "##a", "##i", "##n"]


def test_planes_are_of_each_layers_vectors(tiny_bert_folder: Path) -> None:
    found = contexts(regard.load(tiny_bert_folder), "train", TEXTS)
    for layer, plane in enumerate(found.planes):
        tokens = Embedder(tiny_bert_folder, layers=layer, pooling="none", device="cpu").transform(TEXTS)
        rows = []
        for one, (start, end) in zip(tokens, found.places, strict=True):
            rows.append(
                np.mean([v for v, (a, b) in zip(one.vectors, one.offsets, strict=True) if a < end and b > start], 0)
            )
        expected = project(np.array(rows))
        np.testing.assert_allclose(np.abs(plane.points), np.abs(expected.points), atol=1e-4)
        np.testing.assert_allclose(plane.explained, expected.explained, atol=1e-5)
        assert layer == 0 or ((plane.points * found.planes[layer - 1].points).sum(0) >= 0).all()


def test_too_many_texts_are_drawn_by_lot_and_told(tiny_bert_folder: Path) -> None:
    many = [f"a train {'so ' * n}long" for n in range(9)]
    found = contexts(str(tiny_bert_folder), "train", many, limit=4, seed=3)
    assert len(found.texts) == 4 and found.total == 9
    assert [many.index(text) for text in found.texts] == sorted(many.index(text) for text in found.texts)
    assert found.payload("m")["notes"] == ["4 of 9 texts were drawn by lot (seed 3); 5 are left out"]


def test_what_cannot_be_compared(tiny_bert_folder: Path) -> None:
    with pytest.raises(InputError, match="two texts or more"):
        contexts(str(tiny_bert_folder), "train", ["a train", " "])
    with pytest.raises(InputError, match=r"text 2.*does not have the word"):
        contexts(str(tiny_bert_folder), "train", ["a train", "trains"])
    with pytest.raises(InputError, match="text 1: the word stands behind the 128 tokens"):
        contexts(str(tiny_bert_folder), "train", ["so " * 200 + "train", "a train"])


def test_the_lines_reproduce_the_payload(tiny_bert_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    payload = contexts(str(tiny_bert_folder), "train", [*TEXTS, "it's a train, -- no"]).payload(str(tiny_bert_folder))
    assert payload["view"] == "senses"
    words = shlex.split(str(payload["cli"]))
    assert run([*words[1:2], "--json", "--device", "cpu", *words[2:]], registers=[senses.register]) == 0
    printed = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose(
        printed["similarity"][str(tiny_bert_folder)], np.array(payload["similarity"], dtype=np.float64), atol=1e-6
    )
    *head, last = str(payload["python"]).split("\n")
    scope: dict[str, object] = {}
    exec("\n".join(head), scope)
    assert eval(last, scope) == {name: payload[name] for name in eval(last, scope)}
