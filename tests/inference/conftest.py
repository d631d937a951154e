"""Tiny models, each loaded once; tests must not modify them."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import pytest
from torch import nn

import regard
from regard.text import Tokenizer
from tests.inference.folders import tiny_gpt, tiny_roberta

Loaded: TypeAlias = tuple[nn.Module, Tokenizer]


def load(folder: Path) -> Loaded:
    model, tokenizer = regard.load(folder)
    assert tokenizer is not None
    return model, tokenizer


@pytest.fixture(scope="session")
def bert(tiny_bert_folder: Path) -> Loaded:
    return load(tiny_bert_folder)


@pytest.fixture(scope="session")
def roberta(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return load(tiny_roberta(tmp_path_factory.mktemp("roberta")))


@pytest.fixture(scope="session")
def gpt_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gpt(tmp_path_factory.mktemp("gpt"))


@pytest.fixture(scope="session")
def gpt(gpt_folder: Path) -> Loaded:
    return load(gpt_folder)
