"""A clean model and clean data; each test introduces one mistake."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import regard
from regard.data.examples import TextExample
from regard.data.readers import ExampleSet
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.tasks.inputs import InputBuilder
from regard.tasks.text_classification import TextClassification
from regard.training.doctor import ExaminedModel
from tests.training.doctor.seeds import clean_texts, read_of


@pytest.fixture(scope="session")
def train() -> ExampleSet[TextExample]:
    return read_of(clean_texts(120, first=0), "train.tsv")


@pytest.fixture(scope="session")
def dev() -> ExampleSet[TextExample]:
    return read_of(clean_texts(60, first=120), "dev.tsv")


@pytest.fixture(scope="session")
def tuned(tiny_bert_folder: Path, train: ExampleSet[TextExample]) -> FineTunedModel:
    """A tiny model trained to separate the two classes of the clean data; use `subject` to modify a copy."""
    encoder, tokenizer = regard.load(tiny_bert_folder)
    assert tokenizer is not None
    torch.manual_seed(0)
    task = TextClassification.from_examples(train.examples)
    model = EncoderWithHead.from_encoder(encoder, task)
    items = task.preprocess(train.examples, InputBuilder(tokenizer, family="bert", max_length=64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(60):
        batch = [items[(step * 24 + index) % len(items)] for index in range(24)]
        optimizer.zero_grad()
        task.loss(model(model.collate(batch)), batch).backward()
        optimizer.step()
    return FineTunedModel(task, model.eval(), tokenizer, 64)


@pytest.fixture
def fine_tuned(tuned: FineTunedModel) -> FineTunedModel:
    return replace(tuned, model=copy.deepcopy(tuned.model))


@pytest.fixture
def subject(fine_tuned: FineTunedModel) -> ExaminedModel:
    return ExaminedModel(
        fine_tuned.model.encoder, fine_tuned.tokenizer, fine_tuned, ("input_ids", "token_type_ids", "attention_mask")
    )
