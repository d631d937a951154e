"""Cross-attention: scores as in the papers, their softmax, and the context vector used by the model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.inference.generation.beam_search import Beam
from regard.inference.generation.decoder import as_decoder
from regard.inference.translation.translator import Translator
from regard.interpret.translation import (
    DecodedHypothesis,
    TranslationSteps,
    replay_translations,
    translate_in_steps,
)
from regard.models import Seq2Seq, Transformer
from regard.nn.attention import Attention

TEXT = "a dog sees the red house"
BEAM = Beam(num_beams=3, num_return_sequences=3)


def attentions(translator: Translator) -> list[Attention]:
    model = translator.model
    if isinstance(model, Seq2Seq):
        assert model.decoder.cross is not None
        return [model.decoder.cross]
    return [layer.cross for layer in model.decoder.layers]  # type: ignore[misc]


def decode_without_recording(translator: Translator, decoded: DecodedHypothesis) -> list[list[Tensor]]:
    """The attention outputs of each layer at each step of an ordinary decoding without recording."""
    used: list[list[Tensor]] = [[] for _ in attentions(translator)]

    def append_input_to(outputs: list[Tensor]) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        return lambda module, given: outputs.append(given[0][0, 0])

    hooks = [
        attention.output.register_forward_pre_hook(append_input_to(outputs))
        for attention, outputs in zip(attentions(translator), used, strict=True)
    ]
    decoder = as_decoder(translator.model)
    with torch.inference_mode():
        _, state = decoder.start(torch.tensor(translator.subwords.encode_sources([TEXT])))
        for token in decoded.translation.ids[: len(decoded.steps) - 1]:
            _, state = decoder.step(torch.tensor([token]), state)
    for hook in hooks:
        hook.remove()
    return used


def values_of(found: TranslationSteps) -> NDArray[np.float32]:
    assert found.encoder is not None
    return found.encoder.states[None, None] if found.encoder.values is None else found.encoder.values


def test_context_equals_the_one_used_by_the_model(translator: Translator) -> None:
    found = translate_in_steps(translator, TEXT, beam=BEAM)
    assert len(found.hypotheses) == 3
    for decoded in found.hypotheses:
        attention = decoded.attention
        assert attention is not None
        powers = np.exp(attention.scores - attention.scores.max(-1, keepdims=True))
        np.testing.assert_allclose(attention.weights, powers / powers.sum(-1, keepdims=True), atol=1e-6)
        np.testing.assert_allclose(attention.context, attention.weights @ values_of(found), atol=1e-5)
        used = decode_without_recording(translator, decoded)
        for layer, steps in enumerate(used):
            assert len(steps) == len(decoded.steps) == attention.weights.shape[2]
            joined = attention.context[layer].swapaxes(0, 1).reshape(len(steps), -1)
            np.testing.assert_allclose(joined, torch.stack(steps).numpy(), atol=1e-4)
            assert np.ptp(attention.weights[layer], axis=-1).max() > 0.01  # the weights are not uniform


@pytest.mark.parametrize("recipe", ["luong", "deck"])
@pytest.mark.parametrize("score", ["dot", "general", "additive"])
def test_scores_of_recurrent_models_follow_the_papers(
    make_translator: Callable[[str], Translator], score: str, recipe: str
) -> None:
    """Recomputed from the cell: `luong` uses the new state as the query, `deck` the previous one."""
    translator = make_translator(f"lstm {score} {recipe}")
    model = translator.model
    assert isinstance(model, Seq2Seq)
    found = translate_in_steps(translator, TEXT, beam=None)
    [decoded] = found.hypotheses
    assert found.encoder is not None and decoded.attention is not None and found.encoder.values is None
    project = model.decoder.cross.project  # type: ignore[union-attr]
    with torch.inference_mode():
        state = model.encode(torch.tensor(translator.subwords.encode_sources([TEXT])))
        memory = state.memory[0]
        np.testing.assert_allclose(found.encoder.states, memory.numpy(), atol=1e-6)
        expected = []
        for number, token in enumerate(
            [
                model.config.decoder_start_token_id,
                *translator.subwords.encode_targets([""])[0][:0],
                *decoded.translation.ids,
            ]
        ):
            if number == len(decoded.steps):
                break
            before = state.output[0]
            _, state = model.step(torch.tensor([token]), state)
            query = before if recipe == "deck" else state.output[0]
            if score == "dot":
                expected.append(memory @ query)
            elif score == "general":
                expected.append((memory @ project.key.weight.T) @ query)  # type: ignore[union-attr, operator]
            else:
                both = query @ project.query.weight.T + memory @ project.key.weight.T  # type: ignore[union-attr, operator]
                expected.append(torch.tanh(both) @ model.decoder.cross.score.v.weight[0])  # type: ignore[union-attr, index]
    np.testing.assert_allclose(decoded.attention.scores[0, 0], torch.stack(expected).numpy(), atol=1e-5)


def test_scores_of_a_transformer_are_scaled_products(make_translator: Callable[[str], Translator]) -> None:
    translator = make_translator("transformer")
    assert isinstance(translator.model, Transformer)
    found = translate_in_steps(translator, TEXT, beam=BEAM)
    assert found.encoder is not None and found.encoder.values is not None
    assert found.encoder.scale == pytest.approx(8**-0.5)  # width 16, 2 heads
    for decoded in found.hypotheses:
        assert decoded.attention is not None
        for layer, attention in enumerate(attentions(translator)):
            states = torch.tensor(found.encoder.states)
            with torch.inference_mode():
                key = attention.project.key(states).view(-1, 2, 8).transpose(0, 1).numpy()  # type: ignore[union-attr, operator]
                value = attention.project.value(states).view(-1, 2, 8).transpose(0, 1).numpy()  # type: ignore[union-attr, operator]
            scores = decoded.attention.query[layer] @ key.swapaxes(1, 2) / np.sqrt(8)
            np.testing.assert_allclose(decoded.attention.scores[layer], scores, atol=1e-5)
            np.testing.assert_allclose(found.encoder.values[layer], value, atol=1e-5)


def test_hypotheses_do_not_affect_each_other(translator: Translator) -> None:
    several = translate_in_steps(translator, TEXT, beam=BEAM)
    for decoded in several.hypotheses:
        [alone] = replay_translations(translator, TEXT, [decoded.translation]).hypotheses
        assert alone.attention is not None and decoded.attention is not None
        np.testing.assert_allclose(alone.attention.weights, decoded.attention.weights, atol=1e-4)
