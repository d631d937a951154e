"""New models: their sizes, and that teacher forcing gives the scores of the search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from regard.errors import InputError
from regard.inference.generation.beam_search import greedy_search
from regard.inference.translation.subwords import train_subwords
from regard.inference.translation.translator import as_translation_model
from regard.models import Bert, BertConfig, Seq2Seq, Transformer
from regard.nn.masks import Padded
from regard.training.recipes.translation.config import TranslationConfig
from regard.training.recipes.translation.recipe import new_model
from tests.inference.translation.conftest import SMALL, sentences

PAIRS = sentences(60)
SUBWORDS = {joint: train_subwords(PAIRS, size=300 if joint else 280, joint=joint) for joint in (True, False)}
VARIANTS = [("transformer", "dot", "luong")] + [
    ("lstm", score, recipe) for score in ("none", "dot", "general", "additive") for recipe in ("luong", "deck")
]


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize(("kind", "score", "recipe"), VARIANTS)
def test_teacher_forcing_gives_the_scores_of_the_search(
    kind: str, score: str, recipe: str, joint: bool, randomized: Callable[..., Any]
) -> None:
    """The log-probability of a greedy translation, computed in one forward pass."""
    settings = TranslationConfig.read(
        overrides=[*SMALL, f"model.family={kind}", f"model.score={score}", f"model.recipe={recipe}"]
    )
    subwords = SUBWORDS[joint]
    model = randomized(new_model(settings.model, subwords, seed=0)).eval()
    rows = subwords.encode_sources([PAIRS[0].source, PAIRS[1].source + " dog dog"])
    ids = torch.zeros(2, max(map(len, rows)), dtype=torch.long)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row)
    layout = Padded.from_lengths([len(row) for row in rows])
    found = greedy_search(model, ids, layout, end=None, max_new_tokens=5)
    target = torch.tensor([one.ids for one in found])
    with torch.no_grad():
        scores = model.teacher_forced_logits(ids, layout, target).log_softmax(-1)
    assert scores.argmax(-1).equal(target)
    sums = scores.gather(2, target[..., None]).sum((1, 2))
    assert sums.tolist() == pytest.approx([one.log_probability for one in found], abs=1e-4)
    assert model.vocab_sizes == (subwords.source.size, subwords.target.size)


def test_a_seed_determines_the_weights_and_joint_embeddings_are_shared() -> None:
    settings = TranslationConfig.read(overrides=SMALL).model
    one, same, other = (new_model(settings, SUBWORDS[True], seed=seed) for seed in (1, 1, 2))
    assert isinstance(one, Transformer) and isinstance(same, Transformer) and isinstance(other, Transformer)
    assert one.embedding.tokens.weight.equal(same.embedding.tokens.weight)
    assert not one.embedding.tokens.weight.equal(other.embedding.tokens.weight)
    assert one.decoder_embedding is one.embedding
    separate = new_model(settings, SUBWORDS[False], seed=1)
    assert isinstance(separate, Transformer) and separate.decoder_embedding is not separate.embedding


def test_models_that_do_not_translate_are_refused() -> None:
    with pytest.raises(InputError, match="a BERT does not translate"):
        as_translation_model(
            Bert(
                BertConfig(
                    vocab_size=10, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
                )
            )
        )
    with pytest.raises(InputError, match="a Seq2Seq does not translate"):
        from regard.models import Seq2SeqConfig

        as_translation_model(Seq2Seq(Seq2SeqConfig()))
