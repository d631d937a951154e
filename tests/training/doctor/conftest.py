"""A clean model and clean data, which each test spoils in one way."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import regard
from regard.data.examples import Text
from regard.data.readers import Read
from regard.tasks.folder import Solved
from regard.tasks.model import Tuned, gathered
from regard.tasks.rows import Rows
from regard.tasks.texts import Classify
from regard.training.doctor import Subject
from tests.training.doctor.seeds import clean_texts, read_of


@pytest.fixture(scope="session")
def train() -> Read[Text]:
    return read_of(clean_texts(120, first=0), "train.tsv")


@pytest.fixture(scope="session")
def dev() -> Read[Text]:
    return read_of(clean_texts(60, first=120), "dev.tsv")


@pytest.fixture(scope="session")
def tuned(tiny_bert_folder: Path, train: Read[Text]) -> Solved:
    """A tiny model that has learned to tell the two classes of the clean data apart; use `subject` to spoil one."""
    encoder, tokenizer = regard.load(tiny_bert_folder)
    assert tokenizer is not None
    torch.manual_seed(0)
    task = Classify.learn(train.examples)
    model = Tuned.new(encoder, task)
    items = task.items(train.examples, Rows(tokenizer, family="bert", limit=64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(60):
        batch = [items[(step * 24 + place) % len(items)] for place in range(24)]
        optimizer.zero_grad()
        task.loss(model(gathered(batch)), batch).backward()
        optimizer.step()
    return Solved(task, model.eval(), tokenizer, 64)


@pytest.fixture
def solved(tuned: Solved) -> Solved:
    return replace(tuned, model=copy.deepcopy(tuned.model))


@pytest.fixture
def subject(solved: Solved) -> Subject:
    return Subject(solved.model.encoder, solved.tokenizer, solved, ("input_ids", "token_type_ids", "attention_mask"))
