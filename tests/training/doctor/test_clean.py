"""Public data: only true findings are reported, with figures computed independently."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import regard
from regard.inference.load_model import load_model
from regard.models import Bert, BertConfig
from regard.tasks.inputs import InputBuilder
from regard.tasks.registry import get_task, read_examples
from regard.text import Tokenizer
from regard.training.doctor import ExaminedModel, examine, examine_data, examined_model, problems
from tests.training.doctor.seeds import reported

Shared = Callable[[str], Path]


@pytest.fixture(scope="module")
def uncased(shared_data: Shared, tmp_path_factory: pytest.TempPathFactory) -> ExaminedModel:
    """A tiny new BERT with BERT's own vocabulary."""
    folder = tmp_path_factory.mktemp("uncased")
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=512
    )
    regard.save(Bert(config), folder, tokenizer=Tokenizer.open(shared_data("vocab-bert-base-uncased")))
    return examined_model(load_model(folder))


@pytest.mark.parametrize(
    ("task", "train", "data"),
    [
        ("classify", "sst2/train.tsv", "sst2/dev.tsv"),
        ("pair", "mrpc/train.tsv", "mrpc/validation.tsv"),
        ("pair", "rte/train.tsv", "rte/dev.tsv"),
        ("regress", "stsb/sts-train.csv", "stsb/sts-dev.csv"),
        ("classify", None, "sms-spam/SMSSpamCollection"),
        ("tag", None, "conll2003/eng.testa"),
        ("answer", None, "squad/nyt_v1.0.json.gz"),
        ("choose", None, "hellaswag/hellaswag_val_full.txt.bz2"),
    ],
)
def test_no_false_alarms(task: str, train: str | None, data: str, uncased: ExaminedModel, shared_data: Shared) -> None:
    learned = read_examples(task, str(shared_data(train)), labeled=True) if train else None
    dataset = read_examples(task, str(shared_data(data)), labeled=True)
    assert problems(examine(uncased, dataset, train=learned, task=task)) == []


@pytest.mark.parametrize(
    ("task", "train", "data", "check", "evidence"),
    [
        ("tag", "conll2003/eng.train", "conll2003/eng.testa", "train/dev leakage", "196 of 3,250 texts (6.0%)"),
        ("classify", "cola/train.tsv", "cola/dev.tsv", "train/dev leakage", "11 of 1,043 texts (1.1%)"),
        (
            "classify",
            None,
            "toxic/test.csv",
            "labels truncated away",
            "53 of a sample of 500 texts lose more than a tenth at 128 tokens",
        ),
    ],
)
def test_findings_on_public_files(
    task: str, train: str | None, data: str, check: str, evidence: str, uncased: ExaminedModel, shared_data: Shared
) -> None:
    learned = read_examples(task, str(shared_data(train)), labeled=True) if train else None
    dataset = read_examples(task, str(shared_data(data)), labeled=True)
    found = examine(uncased, dataset, train=learned, task=task)
    assert reported(found) == {check: "warning"}
    assert evidence in problems(found)[0].evidence


def test_the_data_checks_are_fast(uncased: ExaminedModel, shared_data: Shared) -> None:
    train, dev = (read_examples("classify", str(shared_data(f"sst2/{name}.tsv"))) for name in ("train", "dev"))
    task = get_task("classify").from_examples(train.examples)
    rows = InputBuilder(uncased.tokenizer, family="bert", max_length=128)
    begin = time.process_time()
    found = examine_data(task, train, dev, rows)
    assert time.process_time() - begin < 2  # measured 0.3 s of CPU time, which does not depend on the load
    assert len(found) == 6
    assert problems(found) == []
