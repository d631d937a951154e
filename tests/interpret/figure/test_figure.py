"""Figures of all kinds of models: the displayed code reproduces the model's tensors, which equal the recorded ones."""

from __future__ import annotations

import math

import pytest
import torch

from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.inference.translation.subwords import Subwords
from regard.interpret.figure.ablation import COMPONENTS, missing_components, without_components
from regard.interpret.figure.boxes import NamedTensor, run_box
from regard.interpret.figure.equations import run
from regard.interpret.figure.figure import Figure, figure_of, max_tokens_of
from regard.interpret.figure.figure_model import figure_model_of
from regard.models import Seq2Seq
from regard.nn.masks import Padded
from regard.nn.recording import record
from regard.nn.training import evaluation_mode
from tests.interpret.conftest import Both, translator
from tests.interpret.figure.conftest import FigureCase


def tensor_of(found: Figure, box: str, name: str, layer: int = 0) -> torch.Tensor:
    return next(one.tensor for one in found.box(box).passes[layer].tensors if one.name == name)


@pytest.mark.parametrize("off", ["", "mask", "positions", "scaling", "residual", "mask,positions,scaling,residual"])
def test_every_equation_gives_the_tensors_of_the_model(case: FigureCase, off: str) -> None:
    switches = ",".join(name for name in off.split(",") if name and name not in missing_components(case.model))
    found = case.figure(switches)
    for box in found.model_boxes:
        assert len(box.passes) == (found.architecture.depth if box.group == "layer" else 1)
        for one in box.passes:
            size = max(1.0, float(one.tensors[-1].tensor.abs().max()))
            assert one.tensors[-1].name == "out" and one.difference <= 2e-5 * size, (box.name, one.difference)


def test_a_wrong_equation_has_a_difference() -> None:
    x = torch.tensor([[1.0, 2.0]])
    wrong = run_box("out = x * 3", [NamedTensor("x", x)], {}, x * 2, tensors=[("out", None, None)])
    assert wrong.difference == 2.0
    assert torch.equal(wrong.tensors[-1].tensor, x * 2)  # the model's tensor is shown


def test_tensors_equal_the_recorded_ones(case: FigureCase) -> None:
    found = case.figure()
    subject = figure_model_of(case.model, case.reader)
    with evaluation_mode(case.model):
        inputs = subject.read(case.text, max_tokens=max_tokens_of(subject.model))
        with record(case.model) as tape:
            logits = subject.run(inputs)
    last = list(subject.tokenizers)[-1]
    torch.testing.assert_close(tensor_of(found, f"{last}.linear", "out"), logits)
    torch.testing.assert_close(tensor_of(found, f"{last}.softmax", "out"), logits.softmax(-1))
    for part in subject.tokenizers:
        for kind, box in (("self", "attention"), ("cross", "cross")):
            if kind == "cross" and (part == "encoder" or len(subject.tokenizers) == 1):
                continue
            maps, queries, keys = (ask(kind, part) for ask in (tape.attention, tape.queries, tape.keys))
            for layer in range(found.architecture.depth):
                for name, expected in (("weights", maps), ("q", queries), ("k", keys)):
                    torch.testing.assert_close(tensor_of(found, f"{part}.{box}", name, layer), expected[layer][0])
        states = tape.hidden(part)
        torch.testing.assert_close(tensor_of(found, f"{part}.attention_residual", "x"), states[0][0])
        torch.testing.assert_close(tensor_of(found, f"{part}.ffn_residual", "out", 0), states[1][0])


def test_boxes_match_the_paper_or_its_successors(case: FigureCase) -> None:
    found = case.figure()
    titles = [box.title for box in found.model_boxes]
    before = case.kind in ("decoder", "pre")
    assert found.architecture.norm_first == before
    around = (lambda title: ["Norm", title, "Add"]) if before else (lambda title: [title, "Add & Norm"])
    encoder = [*around("Multi-Head Attention"), *around("Feed Forward")]
    decoder = [*around("Masked Multi-Head Attention"), *around("Encoder-Decoder Attention"), *around("Feed Forward")]
    end = ["Norm"] if before else []
    expected = {
        "encoder": ["Input Embedding", "Positional Encoding", "Norm", *encoder, "Layer & Norm"],
        "decoder": ["Input Embedding", "Positional Encoding", *decoder[:3], *decoder[6:], *end],
        "post": [
            "Input Embedding",
            "Positional Encoding",
            *encoder,
            "Output Embedding",
            "Positional Encoding",
            *decoder,
        ],
        "pre": [
            *["Input Embedding", "Positional Encoding", *encoder, *end],
            *["Output Embedding", "Positional Encoding", *decoder, *end],
        ],
    }[case.kind]
    assert titles == [*expected, "Linear", "Softmax"]


def test_the_code_reflects_removed_components(case: FigureCase) -> None:
    part = "encoder" if case.kind == "encoder" else "decoder"
    whole = case.figure()
    able = [name for name in COMPONENTS if name not in whole.disabled]
    without_all = case.figure(",".join(able))
    attention = [found.box(f"{part}.attention").code for found in (whole, without_all)]
    assert ["math.sqrt" in code for code in attention] == [True, False]
    assert ["-math.inf" in code for code in attention] == [part == "decoder", False]
    assert ["x + sublayer" in found.box(f"{part}.ffn_residual").code for found in (whole, without_all)] == [True, False]
    assert without_all.box(f"{part}.positions").code == "out = x"
    scores = tensor_of(whole, f"{part}.attention", "scores")
    assert bool((scores == -math.inf).any()) == (part == "decoder")


def test_a_translator_decodes_its_own_translation_or_the_target(subwords: Subwords) -> None:
    model = translator(subwords)
    with_target = figure_of(LoadedModel("", model, subwords), "a dog", "ein Hund")
    assert with_target.inputs.target == "ein Hund"
    assert with_target.inputs.target_ids == tuple(subwords.encode_targets(["ein Hund"])[0])
    assert with_target.inputs.decoder_ids == (subwords.begin, *with_target.inputs.target_ids[:-1])
    own = figure_of(LoadedModel("", model, subwords), "a dog", without=["residual"])
    with evaluation_mode(model):
        logits = figure_model_of(model, subwords).run(own.inputs)
    assert own.inputs.target_ids is not None
    best = logits.argmax(-1).tolist()[: len(own.inputs.target_ids)]
    # The output of the complete model, whatever is removed; the last token may be forced by the length limit.
    assert best[:-1] == list(own.inputs.target_ids[:-1])


def test_blanks_are_masked(case: FigureCase) -> None:
    if case.kind != "encoder":
        return
    found = figure_of(LoadedModel("", case.model, case.reader), "the _ was good")
    assert found.tokens["encoder"][2] == "[MASK]"
    assert [prediction.token for prediction in found.ablation.outcomes[0].predictions] == ["the", None, "was", "good"]


def test_a_long_text_is_truncated_with_a_note(case: FigureCase) -> None:
    found = figure_of(LoadedModel("", case.model, case.reader), "good day " * 60)
    assert len(next(iter(found.tokens.values()))) <= 32
    assert "did not fit" in found.notes[-1]


def test_the_json_document(case: FigureCase) -> None:
    found = figure_of(LoadedModel("", case.model, case.reader), case.text, layer=2)
    document = found.to_dict()
    one = next(box for box in document["boxes"] if box["name"].endswith(".attention"))
    weights = next(tensor for tensor in one["tensors"] if tensor["name"] == "weights")
    expected = tensor_of(found, one["name"], "weights", 1)
    assert weights["shape"] == list(expected.shape)
    torch.testing.assert_close(torch.tensor(weights["first"][0]), expected[0, 0, :4])
    with pytest.raises(InputError, match="no layer 9"):
        figure_of(LoadedModel("", case.model, case.reader), case.text, layer=9)


def test_unsupported_models_are_rejected(subwords: Subwords, t5: Both, bert: Both) -> None:
    lstm = translator(subwords, family="lstm")
    assert isinstance(lstm, Seq2Seq)
    with pytest.raises(InputError, match="no Transformer"):
        figure_of(LoadedModel("", lstm, subwords), "a dog")
    with pytest.raises(InputError, match="a T5 differs"):
        figure_of(LoadedModel("", t5.ours, t5.tokenizer), "a dog")
    with pytest.raises(InputError, match="needs a masked-word head"):
        figure_of(LoadedModel("", bert.ours, bert.tokenizer), "a dog")
    with pytest.raises(InputError, match="empty"):
        figure_of(LoadedModel("", bert.ours, bert.tokenizer), " ")


def test_equations_can_access_only_their_inputs() -> None:
    assert run("out = math.sqrt(x)", {"x": 4.0})["out"] == 2.0
    with pytest.raises(NameError):
        run("out = y", {})


def test_cache_requires_the_causal_mask(gpt: Both) -> None:
    ids = torch.tensor([[1, 2, 3]])
    with without_components(gpt.ours, ["mask"]), pytest.raises(ValueError, match="no cache"):
        gpt.ours.start(ids, Padded())  # type: ignore[operator]


def test_a_removed_mask_is_named(case: FigureCase) -> None:
    if case.kind != "encoder":
        titles = [case.figure(without).box("decoder.attention").title for without in ("", "mask")]
        assert titles == ["Masked Multi-Head Attention", "Multi-Head Attention (mask off)"]
