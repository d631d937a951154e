"""The data of the figure view: every tensor of every layer once, and the likeliest words."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import torch

from tests.interpret.figure.conftest import FigureCase


def decode_tensor(document: dict[str, Any]) -> torch.Tensor:
    values = np.frombuffer(base64.b64decode(document["data"]), "<f2").astype(np.float32)
    return torch.from_numpy(values.reshape(document["shape"]))


def test_the_view_has_every_tensor_once(case: FigureCase) -> None:
    found = case.figure()
    payload = json.loads(json.dumps(found.page_data(), allow_nan=False))
    seen = 0
    for box in found.model_boxes:
        for step, document in zip(box.passes, payload["boxes"][box.name]["steps"], strict=True):
            assert [one.name for one in step.tensors] == [name for name, _ in document["tensors"]]
            for one, (_, number) in zip(step.tensors, document["tensors"], strict=True):
                stored = payload["tensors"][number]
                assert stored["shape"] == list(one.tensor.shape) and stored["rows"] == one.rows
                if stored["data"] is not None:
                    torch.testing.assert_close(decode_tensor(stored), one.tensor.float(), rtol=2e-3, atol=1e-4)
                elif stored["values"] is not None:
                    assert stored["values"] == one.tensor.tolist()
                else:
                    word, value = stored["words"][0][0]
                    best = one.tensor[0].max(-1)
                    assert (word, round(float(best.values), 6)) == (
                        found.figure_model.token_text(int(best.indices)),
                        value,
                    )
                seen += 1
    assert len(payload["tensors"]) < seen  # a tensor that several boxes share is included once


def test_masked_scores_stay_infinite(case: FigureCase) -> None:
    if case.kind == "encoder":
        return
    found = case.figure()
    payload = found.page_data()
    names = dict(payload["boxes"]["decoder.attention"]["steps"][0]["tensors"])
    scores = decode_tensor(payload["tensors"][names["scores"]])
    assert torch.equal(scores == -torch.inf, torch.ones_like(scores).triu(1).bool())
