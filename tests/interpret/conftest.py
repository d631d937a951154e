"""Tiny models of every family with their tokenizers, and the same models in transformers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import regard
from regard.data.translation_pairs import TranslationPair
from regard.inference.translation.subwords import Subwords, train_subwords
from regard.text import Tokenizer
from regard.training.recipes.translation.config import TranslatorSection
from regard.training.recipes.translation.recipe import new_model
from tests.inference.folders import byte_level
from tests.parity.references import randomized

EAGER = {"attn_implementation": "eager"}  # the implementation that returns attention maps


@dataclass(frozen=True, eq=False)
class Both:
    """The same model twice: the transformers model, and Regard's model loaded from its saved folder."""

    theirs: Any
    ours: nn.Module
    tokenizer: Tokenizer | None


def both(theirs: transformers.PreTrainedModel, folder: Path, tokenizer: Tokenizer | None) -> Both:
    randomized(theirs).save_pretrained(folder)
    ours, _ = regard.load(folder)
    return Both(theirs, ours, tokenizer)


@pytest.fixture(scope="session")
def bert(tiny_bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Both:
    tokenizer = Tokenizer.open(tiny_bert_folder)
    config = transformers.BertConfig(
        vocab_size=tokenizer.size,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=37,
        max_position_embeddings=40,
        **EAGER,
    )
    return both(transformers.BertModel(config), tmp_path_factory.mktemp("bert"), tokenizer)


@pytest.fixture(scope="session")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> Both:
    tokenizer = byte_level(tmp_path_factory.mktemp("gpt") / "words", specials=["<|endoftext|>"], kind="gpt2")
    config = transformers.GPT2Config(
        vocab_size=tokenizer.size,
        n_embd=24,
        n_layer=3,
        n_head=4,
        n_positions=40,
        bos_token_id=0,
        eos_token_id=0,
        **EAGER,
    )
    return both(transformers.GPT2LMHeadModel(config), tmp_path_factory.mktemp("gpt2"), tokenizer)


@pytest.fixture(scope="session")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Both:
    specials = ["<pad>", "</s>", "<unk>"]
    tokenizer = byte_level(tmp_path_factory.mktemp("t5") / "words", specials=specials, kind="gpt2")
    config = transformers.T5Config(
        vocab_size=tokenizer.size,
        d_model=24,
        d_kv=5,
        d_ff=37,
        num_layers=3,
        num_decoder_layers=2,
        num_heads=4,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=6,
        decoder_start_token_id=0,
        **EAGER,
    )
    return both(transformers.T5ForConditionalGeneration(config), tmp_path_factory.mktemp("t5-model"), tokenizer)


@pytest.fixture(scope="session")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Both:
    config = transformers.ViTConfig(
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=37,
        num_channels=3,
        image_size=(8, 12),
        patch_size=(4, 3),
        **EAGER,
    )
    return both(transformers.ViTForImageClassification(config), tmp_path_factory.mktemp("vit"), None)


@pytest.fixture(scope="session")
def subwords() -> Subwords:
    pairs = [
        TranslationPair("the red house is big", "das rote Haus ist groß"),
        TranslationPair("a dog sees the cat", "ein Hund sieht die Katze"),
    ]
    return train_subwords(pairs, size=268, joint=True)


SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "embedding_size": 16,
}


def translator(subwords: Subwords, **settings: Any) -> nn.Module:
    model = new_model(TranslatorSection(**SIZES, **settings), subwords, seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.2)
    return model
