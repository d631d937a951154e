"""Logit attribution: contributions sum to the logit, and each is what a hand-written computation gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.checkpoints.loaded_model import LoadedModel
from regard.errors import InputError
from regard.inference.causal_lm import prompt_ids
from regard.interpret.logit_attribution import attribute_logit
from regard.models import Gpt, GptConfig, Llama, LlamaConfig
from regard.models.gptj import GptJ, GptJConfig
from regard.models.openai_gpt import OpenAIGpt, OpenAIGptConfig
from regard.text import Tokenizer

WORDS = ["the", "film", "was", "good", "bad", "we", "love", "water", "it", "day"]
SHAPE: dict[str, Any] = {
    "vocab_size": len(WORDS) + 5,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 22,
}
GROUPED = SHAPE | {"num_key_value_heads": 2, "head_dim": 10}
MODELS = {
    "gpt2": lambda: Gpt(GptConfig(**SHAPE)),
    "llama": lambda: Llama(LlamaConfig(**GROUPED)),
    "gptj": lambda: GptJ(GptJConfig(**SHAPE, rotary_dim=4)),
    "llama-biases": lambda: Llama(
        LlamaConfig(**GROUPED, attention_bias=True, mlp_bias=True, query_key_norm=True, tie_word_embeddings=True)
    ),
}


def randomized(model: Any) -> Any:
    """Random biases and norms as well, which are 0 and 1 in a new model."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            numbers = 0.2 * torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + numbers if name.endswith("norm.weight") else numbers)
    return model.eval()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("words")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary), encoding="utf-8")
    return Tokenizer.open(folder)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("wrong", [None, "bad"])
def test_contributions_sum_to_the_logit(tokenizer: Tokenizer, name: str, wrong: str | None) -> None:
    model: Any = randomized(MODELS[name]())
    found = attribute_logit(LoadedModel("", model, tokenizer), "the film was", answer="good", wrong=wrong)
    ids = torch.tensor([prompt_ids(tokenizer, "the film was")])
    with torch.no_grad():
        logits = model.logits(model(ids))[0, -1]
    expected = logits[tokenizer.id("good")] - (logits[tokenizer.id("bad")] if wrong else 0)
    assert found.logit == pytest.approx(float(expected), abs=1e-4)
    assert sum(value for _, value in found.contributions) == pytest.approx(float(expected), abs=1e-4)
    assert len(found.heads) == 3 and len(found.heads[0]) == 4 and len(found.feed_forward) == 3
    assert max(abs(value) for row in found.heads for value in row) > 0.01
    assert (found.answer, found.wrong) == ("good", wrong)


def test_the_contribution_of_one_head_and_layer(tokenizer: Tokenizer) -> None:
    """Head 2 of layer 2 by its attention map and weights; the feed-forward network of layer 3 by a hook."""
    model: Any = randomized(MODELS["gpt2"]())
    ids = torch.tensor([prompt_ids(tokenizer, "the film was")])
    fed: list[torch.Tensor] = []
    last: list[torch.Tensor] = []
    layer = model.decoder.layers[1]
    hooks = [
        model.decoder.layers[2].ffn.register_forward_hook(lambda *call: fed.append(call[2])),
        model.decoder.norm.register_forward_pre_hook(lambda _, inputs: last.append(inputs[0])),
    ]
    with torch.no_grad(), regard.record(model) as tape:
        model(ids)
    for hook in hooks:
        hook.remove()
    with torch.no_grad():
        values = layer.attention.project.weight[48:] @ layer.attention_residual.norm(tape.hidden()[1])[0].T
        values = (values + layer.attention.project.bias[48:, None]).T
        head = (tape.attention()[1][0, 2, -1] @ values[:, 12:18]) @ layer.attention.output.weight[:, 12:18].T
        scale = last[0][0, -1].var(correction=0).add(model.decoder.norm.eps).sqrt()
        direction = model.embedding.tokens.weight[tokenizer.id("good")] * model.decoder.norm.weight / scale
        expected_head = float((head - head.mean()) @ direction)
        expected_fed = float((fed[0][0, -1] - fed[0][0, -1].mean()) @ direction)
    found = attribute_logit(LoadedModel("", model, tokenizer), "the film was", answer="good")
    assert found.heads[1][2] == pytest.approx(expected_head, abs=1e-4)
    assert found.feed_forward[2] == pytest.approx(expected_fed, abs=1e-4)


def test_default_answer_and_views(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model: Any = randomized(MODELS["llama"]())
    found = attribute_logit(LoadedModel("", model, tokenizer), "we love water")
    ids = torch.tensor([prompt_ids(tokenizer, "we love water")])
    with torch.no_grad():
        assert found.answer_id == int(model.logits(model(ids))[0, -1].argmax())
    headers, rows = found.to_table()
    assert list(headers) == ["part", "contribution"] and len(rows) == 1 + 3 * 5 + 1
    assert "Largest contributions" in found.to_text() and "head 3.3" in {part for part, _ in found.contributions}
    assert found.page_data()["view"] == "logit_attribution"
    found.save(tmp_path / "found.svg")
    assert b"feed-forward" in (tmp_path / "found.svg").read_bytes()


def test_models_without_a_residual_sum_are_refused(tokenizer: Tokenizer) -> None:
    model: Any = MODELS["gpt2"]()
    for layer in model.decoder.layers:
        layer.ffn_residual.first = False
    with pytest.raises(InputError, match="needs a pre-norm model"):
        attribute_logit(LoadedModel("", model, tokenizer), "the film")
    model = MODELS["gpt2"]()
    model.decoder.norm = torch.nn.Identity()
    with pytest.raises(InputError, match="final layer norm or RMS norm; this model has Identity"):
        attribute_logit(LoadedModel("", model, tokenizer), "the film")
    model = randomized(MODELS["gpt2"]())
    model.decoder.layers[1].attention_residual.dropout = torch.nn.Tanh()  # more than a sum
    with pytest.raises(InputError, match="computes more than a sum"):
        attribute_logit(LoadedModel("", model, tokenizer), "the film")
    with pytest.raises(InputError, match="needs a pre-norm model"):
        attribute_logit(LoadedModel("", OpenAIGpt(OpenAIGptConfig(**SHAPE)), tokenizer), "the film")
    bert, words = regard.load("regard-bert")
    with pytest.raises(InputError, match=r"logit attribution needs .*predicts the next token"):
        attribute_logit(LoadedModel("", bert, words), "the film")


def test_invalid_prompts_and_answers(tokenizer: Tokenizer) -> None:
    model = MODELS["gpt2"]()
    with pytest.raises(InputError, match="'good water' is 2 tokens"):
        attribute_logit(LoadedModel("", model, tokenizer), "the film was", answer="good water")
    with pytest.raises(InputError, match="both 'good'"):
        attribute_logit(LoadedModel("", model, tokenizer), "the film was", answer="good", wrong="good")
    with pytest.raises(InputError, match="has 41 tokens; expected 1 to 22"):
        attribute_logit(LoadedModel("", model, tokenizer), "water " * 40)
    with pytest.raises(InputError, match="expected 1 to 22"):
        attribute_logit(LoadedModel("", model, tokenizer), " ")
