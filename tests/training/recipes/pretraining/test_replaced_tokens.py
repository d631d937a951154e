"""ELECTRA's pretraining: samples, replaced tokens, what both models learn, and the folders of a run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import regard
from regard.data.corpus import train_tokenizer
from regard.data.masking import IGNORE_INDEX
from regard.errors import InputError
from regard.events import drain
from regard.models.electra import Electra, ElectraConfig, ElectraWithGenerator
from regard.training.recipes.pretraining.evaluate import replace_tokens, sample_tokens
from regard.training.recipes.pretraining.objectives import ReplacedTokenDetection
from regard.training.recipes.pretraining.recipe import new_model
from regard.training.recipes.pretraining.run import pretrain
from tests.training.recipes.pretraining.runs import config, events, story

CPU = torch.device("cpu")
SIZES: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 8}


def test_samples_follow_the_probabilities() -> None:
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    samples = sample_tokens(probabilities.log().expand(20000, 4), torch.Generator().manual_seed(0))
    torch.testing.assert_close(samples.bincount() / 20000, probabilities, atol=0.02, rtol=0)


def test_replaced_tokens_are_those_that_differ_from_the_text() -> None:
    ids = torch.tensor([[1, 9, 3], [9, 5, 6]])  # 9 is the mask; 2 and 4 were there
    targets = torch.tensor([2, 4, IGNORE_INDEX])
    new, is_replaced = replace_tokens(ids, torch.tensor([1, 3, 5]), targets, torch.tensor([2, 7, 8]))
    assert new.tolist() == [[1, 2, 3], [7, 5, 6]]
    assert is_replaced.tolist() == [[False, False, False], [True, False, False]]


def test_generator_and_discriminator_share_their_embeddings() -> None:
    pair = ElectraWithGenerator(Electra(ElectraConfig(vocab_size=20, **SIZES), output_heads=("discriminator",)))
    own = [name for name, _ in pair.named_parameters() if name.startswith("generator.embedding.")]
    parts = ("norm.weight", "norm.bias", "project.weight", "project.bias")
    assert own == [f"generator.embedding.{part}" for part in parts]
    assert pair.generator.mlm_head is not None
    assert pair.generator.mlm_head.weight is pair.discriminator.embedding.tokens.weight
    assert pair.generator.config.hidden_size == 4


def test_both_models_learn() -> None:
    """The generator fills in masks; the discriminator knows more than how many tokens are replaced."""
    lines = story(4).splitlines()
    tokenizer = train_tokenizer(lines, size=100, max_length=32)
    settings = config("electra", model_num_attention_heads=4, data_max_length=16)
    model = new_model(settings, tokenizer)
    objective = ReplacedTokenDetection.from_config(settings, model, tokenizer)
    rows = [encoding.ids[:16] for encoding in map(tokenizer.encode, lines) if len(encoding) >= 16]
    ids, generator = torch.tensor(rows[:8]), torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    steps = []
    for _ in range(100):
        masked = objective.masking(ids, generator, num_positions=round(0.15 * ids.numel()))
        losses = objective(masked.ids, masked.positions, masked.targets)
        optimizer.zero_grad()
        losses["loss"].backward()
        optimizer.step()
        steps.append((losses["mlm"].item(), losses["replaced"].item()))
    first, last = torch.tensor(steps[:5]).mean(0), torch.tensor(steps[-20:]).mean(0)
    assert last[0] < first[0] - 1.5
    rate = 0.1  # fewer tokens are replaced than masked: some samples are right
    assert last[1] < 0.9 * -(rate * math.log(rate) + (1 - rate) * math.log(1 - rate))


def test_the_generator_learns_from_its_own_loss_only() -> None:
    tokenizer = train_tokenizer(story(4).splitlines(), size=100, max_length=32)
    settings = config("electra", model_num_attention_heads=4)
    model = new_model(settings, tokenizer)
    objective = ReplacedTokenDetection.from_config(settings, model, tokenizer)
    masked = objective.masking(torch.randint(5, 100, (4, 16)), torch.Generator().manual_seed(0))
    objective(masked.ids, masked.positions, masked.targets)["replaced"].backward()
    assert all(parameter.grad is None for parameter in model.generator.encoder.parameters())
    assert all(parameter.grad is not None for parameter in model.discriminator.encoder.parameters())


@pytest.mark.usefixtures("fast_run_settings")
def test_a_run_saves_both_models(source: Path, tmp_path: Path) -> None:
    """transformers computes the same with them."""
    settings = config("electra", model_num_attention_heads=4, run_checkpoint_every="")
    result = drain(pretrain(settings, [str(source)], tmp_path / "one", device=CPU))
    assert set(result.scores) == {"mlm", "replaced"} and result.scores["replaced"]["count"] > 0
    logged = [event["losses"] for event in events(tmp_path / "one", "step")]
    assert logged[-1]["replaced"] < logged[0]["replaced"]
    ids = torch.randint(5, 100, (2, 9))
    for folder, kind, head in (("", "PreTraining", "discriminator"), ("generator", "MaskedLM", "mlm_head")):
        model, tokenizer = regard.load(tmp_path / "one" / folder)
        theirs = getattr(transformers, f"ElectraFor{kind}").from_pretrained(tmp_path / "one" / folder).eval()
        with torch.no_grad():
            torch.testing.assert_close(getattr(model, head)(model(ids)), theirs(ids).logits, atol=1e-5, rtol=1e-5)
        assert tokenizer is not None
    assert regard.fill("The _ paints the letter.", model=str(tmp_path / "one" / "generator")).masks
    with pytest.raises(InputError, match="continue an interrupted run with --resume"):
        drain(pretrain(settings, [str(source)], tmp_path / "two", start=str(tmp_path / "one"), device=CPU))
