"""Tiny model folders with random weights and byte-level vocabularies."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tokenizers import pre_tokenizers
from torch import nn

import regard
from regard.models import Bert, BertConfig, Clip, ClipConfig, Gpt, GptConfig
from regard.text import Tokenizer

__all__ = ["byte_level", "randomized", "tiny_clip", "tiny_gpt", "tiny_roberta"]

SPACED, WORDS = ("the", "film", "day"), ("the", "good")


def byte_level(folder: Path, *, specials: list[str], kind: str) -> Tokenizer:
    """A tokenizer of all bytes and a few words with and without a leading space."""
    folder.mkdir()
    merges: dict[tuple[str, str], None] = {}
    for word in (*(f"Ġ{word}" for word in SPACED), *WORDS):
        built = word[0]
        for letter in word[1:]:
            merges[built, letter] = None
            built += letter
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*specials, *letters, *("".join(pair) for pair in merges)]
    (folder / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("".join(f"{a} {b}\n" for a, b in merges), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    return Tokenizer.open(folder)


def tiny_gpt(folder: Path, *, begin: bool = True, positions: int = 16) -> Path:
    """A GPT of width 24; without `begin` its vocabulary has no begin-of-text token."""
    tokens = byte_level(folder / "vocabulary", specials=["<|endoftext|>"] if begin else [], kind="gpt2")
    number = 0 if begin else None
    config = GptConfig(
        vocab_size=tokens.size,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=positions,
        bos_token_id=number,
        eos_token_id=number,
    )
    regard.save(randomized(Gpt(config)), folder / "model", tokenizer=tokens)
    return folder / "model"


def tiny_roberta(folder: Path) -> Path:
    tokens = byte_level(folder / "vocabulary", specials=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], kind="roberta")
    config = BertConfig(
        family="roberta",
        vocab_size=tokens.size,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=32,
        position_offset=2,
        type_vocab_size=1,
        pad_token_id=1,
    )
    regard.save(randomized(Bert(config)), folder / "model", tokenizer=tokens)
    return folder / "model"


def tiny_clip(folder: Path) -> Path:
    """A CLIP for images of four patches; its vocabulary has every byte with and without the end of a word."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    specials = ["<|startoftext|>", "<|endoftext|>"]
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), "ph", *specials]
    vocabulary = folder / "vocabulary"
    vocabulary.mkdir()
    (vocabulary / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    (vocabulary / "merges.txt").write_text("#version: 0.2\np h\n", encoding="utf-8")
    (vocabulary / "config.json").write_text(json.dumps({"model_type": "clip"}))
    config = ClipConfig(
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=20,
        image_size=(16, 16),
        patch_size=(8, 8),
        vocab_size=len(tokens),
        text_hidden_size=12,
        num_text_layers=2,
        num_text_attention_heads=2,
        text_intermediate_size=18,
        max_position_embeddings=30,
        bos_token_id=len(tokens) - 2,
        eos_token_id=len(tokens) - 1,
        projection_dim=10,
    )
    regard.save(randomized(Clip(config)), folder / "model", tokenizer=Tokenizer.open(vocabulary))
    return folder / "model"


def randomized(model: nn.Module) -> nn.Module:
    """Draw parameters larger than at initialization, so that every part has an effect."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model
