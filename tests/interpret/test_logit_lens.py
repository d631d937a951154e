"""The logit lens: the last layer is the model's own output, the others its norm and head on their hidden states."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import regard
from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.inference.masked_lm import fill_blanks
from regard.interpret.generation import next_tokens
from regard.interpret.logit_lens import hidden_states_before_head, logit_lens, output_head
from regard.nn.recording import record


@pytest.fixture(scope="module")
def gpt() -> tuple[Any, Any]:
    model, tokenizer = regard.load("regard-gpt")
    return model, tokenizer


@pytest.fixture(scope="module")
def bert() -> tuple[Any, Any]:
    model, tokenizer = regard.load("regard-bert")
    return model, tokenizer


def test_the_last_layer_of_a_gpt_is_its_own_output(gpt: tuple[Any, Any]) -> None:
    model, tokenizer = gpt
    found = logit_lens(LoadedModel("", model, tokenizer), "The king and the queen of France", top=3)
    own = next_tokens(model, tokenizer, "The king and the queen of France", top=3)
    last = found.layers[-1].predictions[-1]
    assert [one.id for one in last.candidates] == [one.token for one in own.candidates]
    assert [one.probability for one in last.candidates] == pytest.approx(
        [one.probability for one in own.candidates], rel=1e-4
    )
    assert all(one.rank == 1 for one in found.layers[-1].predictions)
    assert found.predicts == "next" and found.position == len(found.tokens) - 1
    assert len(found.layers) == model.config.num_hidden_layers + 1


def test_inner_layers_pass_through_the_final_norm_and_the_head(gpt: tuple[Any, Any]) -> None:
    model, tokenizer = gpt
    ids = torch.tensor([tokenizer.encode("The king and the queen").ids])
    with torch.no_grad():
        with record(model) as tape:
            model(ids)
        states = hidden_states_before_head(model, ids)
        expected = model.logits(model.decoder.norm(tape.hidden()[3]))
        assert torch.allclose(output_head(model)(states[3]), expected, atol=1e-4)
    found = logit_lens(LoadedModel("", model, tokenizer), "The king and the queen")
    probabilities = expected[0].softmax(-1)
    prediction = found.layers[3].predictions[2]
    assert prediction.candidates[0].id == int(probabilities[2].argmax())
    answer = found.answer(2).id
    assert prediction.probability == pytest.approx(float(probabilities[2, answer]), rel=1e-3)
    assert prediction.rank == 1 + int((probabilities[2] > probabilities[2, answer]).sum())


def test_the_last_layer_of_a_bert_fills_the_blank(bert: tuple[Any, Any]) -> None:
    model, tokenizer = bert
    found = logit_lens(LoadedModel("", model, tokenizer), "In winter the fields are _ with snow.", top=4)
    filled = fill_blanks(model, tokenizer, "In winter the fields are _ with snow.", top=4).masks[0]
    assert found.tokens[found.position] == "[MASK]" and found.predicts == "same"
    last = found.layers[-1].predictions[found.position]
    assert [one.id for one in last.candidates] == [one.id for one in filled]
    assert [one.probability for one in last.candidates] == pytest.approx([one.probability for one in filled], rel=1e-3)
    decided = found.decided(found.position)
    ranks = [layer.predictions[found.position].rank for layer in found.layers]
    assert all(rank == 1 for rank in ranks[decided:]) and (decided == 0 or ranks[decided - 1] > 1)
    assert f"layer {model.config.num_hidden_layers}: the final answer has rank 1" in found.to_text()


def test_long_texts_and_errors(bert: tuple[Any, Any], gpt: tuple[Any, Any]) -> None:
    found = logit_lens(LoadedModel("", *gpt), "one two three " * 40, max_tokens=10, position=-1, top=1)
    assert len(found.tokens) == 10 and found.truncated > 0 and found.position == 9 and "truncated" in found.notes[0]
    with pytest.raises(InputError, match="no position 3: the text has 3 tokens, 0 to 2"):
        logit_lens(LoadedModel("", *bert), "king", position=3)
    with pytest.raises(InputError, match="empty"):
        logit_lens(LoadedModel("", *gpt), "  ")
    model, tokenizer = regard.load("regard-embed")
    with pytest.raises(InputError, match="needs a model that predicts tokens"):
        logit_lens(LoadedModel("", model, tokenizer), "a text")
