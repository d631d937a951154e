"""A tiny GPT with random weights in Regard and transformers, loaded once; tests must not modify it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.inference.conftest import Loaded, load
from tests.inference.folders import tiny_gpt

Reference = Callable[[list[int], int], tuple[float, bool]]


@pytest.fixture(scope="session")
def gpt_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gpt(tmp_path_factory.mktemp("gpt"), positions=48)


@pytest.fixture(scope="session")
def gpt(gpt_folder: Path) -> Loaded:
    return load(gpt_folder)


@pytest.fixture(scope="session")
def without_begin(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return load(tiny_gpt(tmp_path_factory.mktemp("gpt-without"), begin=False, positions=48))


@pytest.fixture(scope="session")
def bert(tiny_bert_folder: Path) -> Loaded:
    return load(tiny_bert_folder)


@pytest.fixture(scope="session")
def theirs(gpt_folder: Path) -> Reference:
    """transformers' log-softmax of one row, summed from a position on, and whether all ids are greedy choices."""
    from transformers import GPT2LMHeadModel

    model: Any = GPT2LMHeadModel.from_pretrained(gpt_folder).eval()

    def score(ids: list[int], scored: int) -> tuple[float, bool]:
        with torch.no_grad():
            log_probs = model(torch.tensor([ids[:-1]])).logits[0].double().log_softmax(-1)
        targets = range(scored, len(ids))
        total = sum(float(log_probs[position - 1, ids[position]]) for position in targets)
        return total, all(int(log_probs[position - 1].argmax()) == ids[position] for position in targets)

    return score
