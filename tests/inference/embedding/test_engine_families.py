"""The engine with GPT-2, T5 and ELMo: other tokenizers, no [CLS], no length limit, bidirectional vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers, processors
from torch import nn

from regard.errors import InputError
from regard.inference.embedding.engine import EmbeddingEngine, TextError
from regard.models import T5, Elmo, ElmoConfig, Gpt, GptConfig, T5Config
from regard.text import Tokenizer

Pair = tuple[nn.Module, Tokenizer]


@pytest.fixture
def gpt() -> Pair:
    """A tiny GPT-2 over single bytes, without special tokens around a text."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pipeline = tokenizers.Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.decoder = decoders.ByteLevel()
    pipeline.post_processor = processors.ByteLevel(trim_offsets=False)
    torch.manual_seed(0)
    model = Gpt(
        GptConfig(
            vocab_size=256,
            hidden_size=16,
            num_hidden_layers=3,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=200,
        )
    )
    return model.eval(), Tokenizer(pipeline, special_tokens={})


@pytest.fixture
def t5() -> Pair:
    """A tiny T5 over letters; </s> ends a text, and the number of positions is unlimited."""
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
    pipeline = tokenizers.Tokenizer(models.Unigram(pieces + [(letter, -3.0) for letter in "abcdefghilmnorstuwy"], 2))
    pipeline.pre_tokenizer = pre_tokenizers.Metaspace()
    pipeline.decoder = decoders.Metaspace()
    pipeline.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=32,
        hidden_size=16,
        head_dim=8,
        num_hidden_layers=2,
        num_decoder_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )
    return T5(config).eval(), Tokenizer(
        pipeline, special_tokens={"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    )


@pytest.fixture
def elmo(tiny_bert_folder: Path) -> Pair:
    """A tiny ELMo over word pieces."""
    tokenizer = Tokenizer.open(tiny_bert_folder)
    torch.manual_seed(0)
    model = Elmo(
        ElmoConfig(vocab_size=tokenizer.size, num_characters=0, hidden_size=8, cell_size=12, num_hidden_layers=2)
    )
    return model.eval(), tokenizer


@pytest.mark.parametrize("family", ["gpt", "t5", "elmo"])
def test_vectors_equal_those_of_single_texts(family: str, request: pytest.FixtureRequest) -> None:
    model, tokenizer = request.getfixturevalue(family)
    texts = ["the film", "so long and thin", "a"]
    last, total = (EmbeddingEngine(model, tokenizer, layers=layers).embed(texts) for layers in ("-1", "sum(1:)"))
    for index, text in enumerate(texts):
        with torch.no_grad():
            states = [state[0] for state in model.states(torch.tensor([tokenizer.encode(text).ids]))]
        np.testing.assert_allclose(last[index], states[-1].mean(0).numpy(), atol=1e-5)
        np.testing.assert_allclose(total[index], sum(states[1:]).mean(0).numpy(), atol=1e-5)


def test_elmo_vectors_have_the_width_of_both_directions(elmo: Pair) -> None:
    assert EmbeddingEngine(*elmo).embed(["the film"]).shape == (1, 16)
    joined = EmbeddingEngine(*elmo, layers="concat(:)", pooling="none")
    (found,) = joined.embed_tokens(["the long film"])
    assert joined.width == 48 and found.vectors.shape == (5, 48)
    assert (found.vectors[:, :8] == found.vectors[:, 8:16]).all()  # both directions have the same word vectors


def test_a_character_elmo_is_refused(elmo: Pair) -> None:
    model = Elmo(ElmoConfig(vocab_size=9, num_characters=9, hidden_size=4, cell_size=4))
    with pytest.raises(InputError, match=r"reads characters; expected .*tokenizer's pieces"):
        EmbeddingEngine(model, elmo[1])


def test_a_text_without_tokens_is_reported(gpt: Pair) -> None:
    with pytest.raises(TextError, match="text 2 has no tokens for this model"):
        EmbeddingEngine(*gpt).embed(["a", ""])


def test_a_model_without_positions_has_no_limit(t5: Pair) -> None:
    assert EmbeddingEngine(*t5).max_length is None
