"""Tiny models to export, one folder per family, and tasks for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.models import Bert, BertConfig
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.tasks.multiple_choice import MultipleChoice
from regard.tasks.question_answering import QuestionAnswering
from regard.tasks.regression import Regression
from regard.tasks.task import Task
from regard.tasks.text_classification import PairClassification, TextClassification
from regard.tasks.token_classification import TokenClassification
from tests.inference.folders import randomized, tiny_roberta

TASKS: dict[str, Callable[[], Task[Any]]] = {
    "classify": lambda: TextClassification(["negative", "neutral", "positive"]),
    "pair": lambda: PairClassification(["no", "yes"]),
    "regress": lambda: Regression(2.0, 1.5),
    "choose": lambda: MultipleChoice(),
    "tag": lambda: TokenClassification(["O", "B-PER", "I-PER"]),
    "answer": lambda: QuestionAnswering(),
}


@pytest.fixture(scope="session")
def folders(tiny_bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model folder of each family that can be exported."""
    bert, tokenizer = regard.load(tiny_bert_folder)
    config: BertConfig = replace(bert.config, family="distilbert", type_vocab_size=0)
    distilbert = tmp_path_factory.mktemp("distilbert") / "model"
    regard.save(randomized(Bert(config)), distilbert, tokenizer=tokenizer)
    roberta = tiny_roberta(tmp_path_factory.mktemp("roberta"))
    return {"bert": tiny_bert_folder, "distilbert": distilbert, "roberta": roberta}


@pytest.fixture(scope="session")
def fine_tuned(folders: dict[str, Path]) -> Callable[[str, str], FineTunedModel]:
    """Returns a model with random weights for a task."""

    def make(task: str, family: str = "bert") -> FineTunedModel:
        encoder, tokenizer = regard.load(folders[family])
        kind = TASKS[task]()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            model = EncoderWithHead.from_encoder(encoder, kind)
        randomized(model.head)
        return FineTunedModel(kind, model.eval(), tokenizer, encoder.config.max_position_embeddings)

    return make
