"""Removing components with hooks equals a model without the component."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.interpret.figure.ablation import (
    COMPONENTS,
    check_components,
    missing_components,
    without_components,
)
from regard.interpret.figure.figure_model import figure_model_of
from regard.nn.attention import Attention
from regard.nn.block import LayerConfig, Residual
from regard.nn.embedding import TextEmbedding
from regard.nn.masks import Padded
from regard.nn.training import evaluation_mode
from tests.interpret.figure.conftest import FigureCase


def logits(case: FigureCase, *switches: str) -> Tensor:
    subject = figure_model_of(case.model, case.reader)
    with evaluation_mode(case.model):
        target = "ein Hund sieht das Haus" if len(subject.tokenizers) == 2 else None
        sentence = subject.read(case.text, target, max_tokens=20)
        with without_components(case.model, switches):
            return subject.run(sentence)


def removable_components(case: FigureCase) -> list[str]:
    return [name for name in COMPONENTS if name not in missing_components(case.model)]


def test_removal_equals_a_model_without_the_component(case: FigureCase, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = logits(case)
    found = {name: logits(case, name) for name in removable_components(case)}
    assert torch.equal(logits(case), whole)  # the hooks were removed
    attentions = [one for one in case.model.modules() if isinstance(one, Attention)]
    with monkeypatch.context() as hand:
        for one in attentions:
            hand.setattr(one, "scale", 1.0)
        torch.testing.assert_close(found["scaling"], logits(case), atol=1e-5, rtol=1e-5)
    embeddings = [one for one in case.model.modules() if isinstance(one, TextEmbedding)]
    original_positions = [one.positions for one in embeddings]
    for one in embeddings:
        one.positions = None
    torch.testing.assert_close(found["positions"], logits(case), atol=1e-5, rtol=1e-5)
    for one, positions in zip(embeddings, original_positions, strict=True):
        one.positions = positions
    if "mask" in found:
        with monkeypatch.context() as hand:
            for one in attentions:
                hand.setattr(one, "causal", False)
            torch.testing.assert_close(found["mask"], logits(case), atol=1e-5, rtol=1e-5)
    for name, logits_without in found.items():
        assert (logits_without - whole).abs().max() > 1e-3, name


@pytest.mark.parametrize("first", [False, True])
def test_no_residual_is_the_sublayer_alone(first: bool) -> None:
    residual = Residual(LayerConfig(width=8, heads=2, ffn=8, norm_first=first)).eval()
    nn.init.normal_(residual.norm.weight)
    branch, x = nn.Linear(8, 8), torch.randn(2, 3, 8)
    model = nn.ModuleList([residual, TextEmbedding(3, 8, positions=nn.Identity()), Attention(branch, branch)])
    with without_components(model, ["residual"]):
        found = residual(x, branch)
    expected = branch(residual.norm(x)) if first else residual.norm(branch(x))
    torch.testing.assert_close(found, expected)
    whole = x + branch(residual.norm(x)) if first else residual.norm(x + branch(x))
    torch.testing.assert_close(residual(x, branch), whole)


def test_other_threads_use_the_complete_model(case: FigureCase) -> None:
    whole, seen = logits(case), []
    with without_components(case.model, removable_components(case)):
        other = threading.Thread(target=lambda: seen.append(logits(case)))
        other.start()
        other.join()
    assert torch.equal(seen[0], whole)


def test_an_encoder_has_no_mask_to_remove(case: FigureCase) -> None:
    gone = missing_components(case.model)
    assert list(gone) == (["mask"] if case.kind == "encoder" else [])
    if gone:
        with pytest.raises(InputError, match="cannot remove 'mask': an encoder has no causal mask"):
            logits(case, "mask")


def test_padding_stays_hidden_without_scaling() -> None:
    attention = LayerConfig(width=8, heads=2, ffn=8).new_attention().eval()
    model = nn.ModuleList([attention])
    x, keep = torch.randn(1, 4, 8), torch.tensor([[True, True, True, False]])
    with without_components(model, ["scaling"]):
        found = attention(x, Padded(keep))[:, :3]
        torch.testing.assert_close(found, attention(x[:, :3], Padded()))


def test_component_names() -> None:
    assert check_components(["residual", "mask", "mask"]) == ("mask", "residual")
    assert check_components([]) == ()
    with pytest.raises(InputError, match="did you mean 'residual'"):
        check_components(["residuals"])
