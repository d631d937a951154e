"""ELMo's vector of a word: the scalar mix of its layers, step by step, and weights that a task learns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.interpret.layer_mix import learn_mix, mix_layers
from regard.models import Bert, BertConfig, Elmo, ElmoConfig
from regard.nn.stack import ScalarMix
from regard.text import Tokenizer

TEXT = "the film was good"


@pytest.fixture
def tokenizer(tiny_bert_folder: Path) -> Tokenizer:
    return Tokenizer.open(tiny_bert_folder)


@pytest.fixture
def elmo(randomized: Callable[..., Any], tokenizer: Tokenizer) -> LoadedModel:
    model = Elmo(ElmoConfig(vocab_size=tokenizer.size, num_characters=0, hidden_size=12, cell_size=12))
    randomized(model, std=0.5)
    return LoadedModel("elmo", model.eval(), tokenizer)


def test_the_steps_give_the_scalar_mix(elmo: LoadedModel, tokenizer: Tokenizer) -> None:
    mix = ScalarMix(3)
    with torch.no_grad():
        mix.s.copy_(torch.tensor([0.1, -1.0, 0.7]))
        mix.gamma.fill_(1.5)
        states = list(elmo.model.states(torch.tensor([tokenizer.encode(TEXT).ids])))
        expected = mix(states)[0, 2]  # [CLS] the film
    found = mix_layers(elmo, TEXT, "film", weights=mix.s.softmax(0).tolist(), gamma=1.5)
    assert found.concatenated.shape == (3, 24)
    np.testing.assert_array_equal(found.forward[0], found.backward[0])  # the embedding has no direction
    np.testing.assert_allclose(found.concatenated, [state[0, 2].numpy() for state in states], atol=1e-5)
    np.testing.assert_allclose(found.weighted.sum(0), found.vector)
    np.testing.assert_allclose(found.vector, expected.numpy(), atol=1e-5)
    assert mix_layers(elmo, TEXT, "film").weights == pytest.approx([1 / 3] * 3)


def test_a_task_weights_the_layer_that_has_the_answer() -> None:
    """Only layer 1 of three tells the labels apart; the others are the same for all texts."""
    layers = np.ones((3, 8, 4), dtype=np.float32)
    labels = [0, 1] * 4
    layers[1, [i for i, label in enumerate(labels) if label]] *= -1
    learned = learn_mix(layers, labels)
    assert learned.accuracy == 100 and sum(learned.weights) == pytest.approx(1)
    assert max(learned.weights) == learned.weights[1]
    assert learned.weights == learn_mix(layers, labels).weights


def test_other_models_and_weights_are_refused(elmo: LoadedModel, tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match="expected 3 numbers from 0 that sum to 1"):
        mix_layers(elmo, TEXT, "film", weights=[0.5, 0.5])
    config = BertConfig(
        vocab_size=tokenizer.size, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    with pytest.raises(InputError, match="how ELMo makes a vector, and bert is a BERT model"):
        mix_layers(LoadedModel("bert", Bert(config), tokenizer), TEXT, "film")
