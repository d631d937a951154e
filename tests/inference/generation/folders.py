"""Model folders of a tiny GPT and a tiny T5 with random weights and byte vocabularies."""

from __future__ import annotations

from pathlib import Path

import tokenizers
import torch
from torch import nn

import regard
from regard.models import T5, Gpt, GptConfig, Llama, T5Config
from regard.models.mistral import MistralConfig
from regard.text import Tokenizer
from tests.inference.folders import byte_level

__all__ = ["CHATML", "chat_folder", "gpt_folder", "t5_folder", "unigram"]


def gpt_folder(folder: Path, *, positions: int = 32, begin: bool = True) -> Path:
    """A GPT with a vocabulary of bytes and a few words; the end token is <|endoftext|>."""
    folder.mkdir(parents=True, exist_ok=True)
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
    return _saved(Gpt(config), folder / "model", tokens)


CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def chat_folder(folder: Path) -> Path:
    """A Mistral with a chat template; its tokenizer puts <s> before a text, and two tokens end one."""
    folder.mkdir(parents=True, exist_ok=True)
    plain = byte_level(folder / "vocabulary", specials=["<s>", "</s>", "<|im_start|>", "<|im_end|>"], kind="gpt2")
    pipeline = tokenizers.Tokenizer.from_str(plain.files()["tokenizer.json"].decode())
    pipeline.add_special_tokens(["<s>", "</s>", "<|im_start|>", "<|im_end|>"])
    pipeline.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 0)]
    )
    tokens = Tokenizer(pipeline, special_tokens={"bos_token": "<s>", "eos_token": "<|im_end|>"}, chat_template=CHATML)
    config = MistralConfig(
        vocab_size=tokens.size,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=40,
        max_position_embeddings=512,
        sliding_window=8,
        bos_token_id=0,
        eos_token_id=1,
        other_eos_token_id=(3,),
    )
    return _saved(Llama(config), folder / "model", tokens)


def t5_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tokens = unigram(folder / "vocabulary")
    config = T5Config(
        vocab_size=tokens.size,
        hidden_size=24,
        head_dim=6,
        num_hidden_layers=2,
        num_decoder_layers=2,
        num_attention_heads=4,
        intermediate_size=40,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=16,
    )
    return _saved(T5(config), folder / "model", tokens)


def unigram(folder: Path) -> Tokenizer:
    """A tokenizer like T5's: a marker before a word stands for a space, and </s> ends a text."""
    words = ["▁the", "▁film", "▁day", "▁", "s", *"abcdefghijklmnopqrtuvwxyz", ".", ","]
    specials = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces = [*specials, *((word, -1.0 - len(word) / 100) for word in words)]
    pipeline = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=2))
    pipeline.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    pipeline.decoder = tokenizers.decoders.Metaspace()
    pipeline.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    pipeline.add_special_tokens(["<pad>", "</s>", "<unk>"])
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokens = Tokenizer(pipeline, special_tokens=names)
    tokens.save(folder)
    return Tokenizer.open(folder)


def _saved(model: nn.Module, folder: Path, tokens: Tokenizer) -> Path:
    """Save the model with weights random enough that generated texts differ."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            size = 0.1 if "norm" in name else 0.3 if "tokens" in name else 0.8
            values = size * torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + values if "norm" in name and name.endswith("weight") else values)
    regard.save(model, folder, tokenizer=tokens)
    return folder
