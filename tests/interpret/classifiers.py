"""Classifiers with handcrafted weights: their attention and the words that determine the class are known."""

from __future__ import annotations

import random

import torch

from regard.models import Bert, BertConfig
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.tasks.text_classification import TextClassification
from regard.text import Tokenizer

__all__ = ["LABELS", "deciding", "sentence"]

LABELS = ("negative", "positive")
GOOD, BAD = ("good", "love", "funny"), ("bad", "dull")
PLAIN = ("the", "of", "and", "to", "in", "is", "it", "that", "was", "he", "she", "for", "on", "are", "with", "they")
WIDTH = 16
FIRST, DECIDING, SIDE = 0, 1, 2  # features: is [CLS]; is a decisive word; the class it indicates


def sentence(seed: int, *, words: int = 10) -> tuple[str, str]:
    """Neutral words with one decisive word among them, and its label."""
    source = random.Random(seed)
    positive = source.random() < 0.5
    chosen = [source.choice(PLAIN) for _ in range(words - 1)]
    chosen.insert(source.randrange(words), source.choice(GOOD if positive else BAD))
    return " ".join(chosen), LABELS[positive]


def deciding(tokenizer: Tokenizer, seed: int, *, uniform: bool = False, unused_head: bool = False) -> FineTunedModel:
    """A one-layer BERT that predicts the class of the words [CLS] attends to.

    [CLS] attends to the decisive word or, if `uniform`, to all words equally, as frozen attention does. With
    `unused_head` there are two heads: the first attends to the decisive word but outputs nothing; the second attends
    uniformly.
    """
    heads = 2 if unused_head else 1
    shape = BertConfig(
        vocab_size=tokenizer.size,
        hidden_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=heads,
        intermediate_size=8,
        max_position_embeddings=64,
        dropout=0.0,
    )
    generator = torch.Generator().manual_seed(seed)

    def noise(size: torch.Size, scale: float) -> torch.Tensor:
        return torch.randn(size, generator=generator) * scale

    model = EncoderWithHead.from_encoder(Bert(shape), TextClassification(LABELS)).eval()
    encoder, block = model.encoder, model.encoder.encoder.layers[0]
    pool, output = model.head.pool[0], model.head.output
    with torch.no_grad():
        for parameter in (*block.attention.parameters(), *block.ffn.parameters(), *pool.parameters()):
            parameter.copy_(noise(parameter.shape, 0.02))
        embedding = encoder.embedding.tokens.weight
        embedding.copy_(noise(embedding.shape, 1.0))
        embedding[:, :3] = noise(embedding[:, :3].shape, 0.05)
        embedding[tokenizer.cls_token_id, FIRST] = 4.0
        for words, side in ((GOOD, 3.0), (BAD, -3.0)):
            for word in words:
                embedding[tokenizer.id(word), DECIDING], embedding[tokenizer.id(word), SIDE] = 3.0, side
        # Layer norm subtracts the mean of a vector; it must be 0, or every word would contribute to a class.
        embedding[:, 3:] -= embedding.sum(1, keepdim=True) / (WIDTH - 3)
        encoder.embedding.positions.weight.copy_(noise(encoder.embedding.positions.weight.shape, 0.02))
        encoder.embedding.segments.weight.zero_()
        query, key, value = block.attention.project.weight.chunk(3)
        query_bias, _, value_bias = block.attention.project.bias.chunk(3)
        query[0, FIRST], key[0, DECIDING] = 4.0, 1.0
        value_dimension = WIDTH // 2 if unused_head else SIDE  # a dimension of the second head, or of the only head
        value[value_dimension, SIDE], block.attention.output.weight[SIDE, value_dimension] = 1.0, 4.0
        if unused_head:
            value[: WIDTH // 2], value_bias[: WIDTH // 2] = 0.0, 0.0
        if uniform or unused_head:
            second = slice(WIDTH // 2, None) if unused_head else slice(None)
            query[second], query_bias[second] = 0.0, 0.0
            block.attention.output.weight[SIDE, value_dimension] = 30.0  # a mean over many words is small
        pool.weight[SIDE, SIDE] = 1.0
        output.weight.copy_(noise(output.weight.shape, 0.02))
        output.weight[:, SIDE] = torch.tensor([-2.0, 2.0])
    return FineTunedModel(TextClassification(LABELS), model, tokenizer, 64)
