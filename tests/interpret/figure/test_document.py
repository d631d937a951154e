"""The page's document: every tensor of every layer, once; the likeliest words; lines that run."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import torch

from regard.interpret.figure.document import figure_document
from regard.interpret.figure.figure import draw_figure
from tests.interpret.figure.conftest import Drawn


def numbers(document: dict[str, Any]) -> torch.Tensor:
    values = np.frombuffer(base64.b64decode(document["data"]), "<f2").astype(np.float32)
    return torch.from_numpy(values.reshape(document["shape"]))


def test_tensors_are_the_figures(drawn: Drawn) -> None:
    found = drawn.figure()
    payload = json.loads(json.dumps(figure_document(found), allow_nan=False))
    seen = 0
    for box in found.boxes:
        for step, document in zip(box.steps, payload["boxes"][box.name]["steps"], strict=True):
            assert [one.name for one in step.values] == [name for name, _ in document["tensors"]]
            for one, (_, number) in zip(step.values, document["tensors"], strict=True):
                stored = payload["tensors"][number]
                assert stored["shape"] == list(one.tensor.shape) and stored["rows"] == one.rows
                if "data" in stored:
                    torch.testing.assert_close(numbers(stored), one.tensor.float(), rtol=2e-3, atol=1e-4)
                elif "values" in stored:
                    assert stored["values"] == one.tensor.tolist()
                else:
                    word, value = stored["words"][0][0]
                    best = one.tensor[0].max(-1)
                    assert (word, round(float(best.values), 6)) == (found.figure_model.word(int(best.indices)), value)
                seen += 1
    assert len(payload["tensors"]) < seen  # what is handed on from box to box is there once


def test_what_is_masked_stays_infinite(drawn: Drawn) -> None:
    if drawn.kind == "encoder":
        return
    found = drawn.figure()
    payload = figure_document(found)
    names = dict(payload["boxes"]["decoder.attention"]["steps"][0]["tensors"])
    scores = numbers(payload["tensors"][names["scores"]])
    assert torch.equal(scores == -torch.inf, torch.ones_like(scores).triu(1).bool())


def test_the_lines_that_reproduce_it(drawn: Drawn) -> None:
    text = "-it's the day"
    payload = figure_document(draw_figure(drawn.model, drawn.reader, text, without="residual", name="a b"))
    assert payload["cli"] == (
        "regard figure --model 'a b' --without residual --output page.html -- '-it'\"'\"'s the day'"
    )
    assert payload["python"].endswith(
        "draw_figure(*load_model('a b'), \"-it's the day\", without='residual', name='a b')"
    )
