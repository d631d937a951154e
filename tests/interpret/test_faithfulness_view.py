"""The data of the faithfulness view: the verdict, the values, and the meaning of each test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.errors import InputError
from regard.interpret.attribution.attributions import gradient_times_input, integrated_gradients
from regard.interpret.attribution.probe import Probe, pretrained_probe, task_probe
from regard.interpret.faithfulness import measure_faithfulness
from regard.interpret.faithfulness_checks import VERDICTS, meanings
from regard.nn.recording import record
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.tasks.text_classification import TextClassification
from regard.tasks.token_classification import TokenClassification
from regard.text import Tokenizer
from tests.inference.folders import tiny_gpt
from tests.interpret.classifiers import deciding

TEXT = "it is a good day for them"


@pytest.fixture(scope="module")
def probe(tiny_bert_folder: Path) -> Probe:
    return task_probe(deciding(Tokenizer.open(tiny_bert_folder), 3), TEXT)


def probe_with_labels(tiny_bert_folder: Path, *labels: str, several: bool = False) -> Probe:
    encoder, tokenizer = regard.load(tiny_bert_folder)
    task = TextClassification(labels, multi_label=several)
    torch.manual_seed(1)
    return task_probe(FineTunedModel(task, EncoderWithHead.from_encoder(encoder, task).eval(), tokenizer, 64), TEXT)


def test_the_verdict_and_the_values(probe: Probe) -> None:
    result = measure_faithfulness(probe)
    data: Any = result.view_data()
    assert (data["verdict"], data["flagged"]) == (result.verdict, result.flagged) == ("faithful", False)
    assert data["means"] == VERDICTS["faithful"]
    for shown, check in zip(data["checks"], result.checks, strict=True):
        assert shown["value"] == pytest.approx(check.value, rel=1e-5)
        assert (shown["name"], shown["threshold"], shown["passed"]) == (check.name, check.threshold, check.passed)
        meaning = meanings(2)[check.name]
        assert shown["method"] == meaning.method
        assert shown["means"] == (meaning.passed if check.passed else meaning.failed)
    assert data["weights"] == pytest.approx(result.weights, rel=1e-5)
    assert data["integrated"]["scores"] == pytest.approx(result.integrated.scores, rel=1e-5)
    assert data["gradient"]["scores"] == pytest.approx(result.gradient.scores, rel=1e-5)
    assert (data["label"], data["token"]) == ("positive", 0)
    assert json.loads(json.dumps(data)) == data


def test_class_swap_of_two_classes_is_twice_one_correlation(probe: Probe, tiny_bert_folder: Path) -> None:
    """docs/faithfulness.md explains why."""
    swap = measure_faithfulness(probe).checks[0]
    own, other = swap.numbers["label"], swap.numbers["other"]
    assert own is not None and other == pytest.approx(-own) and swap.value == pytest.approx(2 * own)
    assert "twice one correlation" in meanings(2)["class swap"].method
    for several, labels in ((False, "abc"), (True, "ab")):
        numbers = measure_faithfulness(probe_with_labels(tiny_bert_folder, *labels, several=several)).checks[0].numbers
        assert numbers["label"] is not None and numbers["other"] != pytest.approx(-numbers["label"], abs=1e-3)
        assert "strongest other class" in meanings(len(labels), several=several)["class swap"].method


def test_every_test_has_a_meaning(probe: Probe) -> None:
    assert list(meanings(2)) == [check.name for check in measure_faithfulness(probe).checks]


def test_a_pretrained_bert_has_evidence_and_no_verdict(tiny_bert_folder: Path) -> None:
    probe = pretrained_probe(*regard.load(tiny_bert_folder), "the _ was a good film")
    data: Any = measure_faithfulness(probe, layer=1, head=2).view_data()
    assert data["verdict"] is None and "no verdict" in data["notes"][0]
    with probe.evaluation_mode(), record(probe.encoder) as tape:
        best = probe.logits()[0, 0].argmax()
        row = tape.attention()[0][0, 2, 2]
    assert (data["token"], data["label"]) == (2, probe.outputs[best])
    assert data["weights"] == pytest.approx(row.tolist(), rel=1e-5)
    assert data["integrated"]["scores"] == pytest.approx(integrated_gradients(probe).scores, rel=1e-5)
    assert data["gradient"]["scores"] == pytest.approx(gradient_times_input(probe).scores, rel=1e-5)


def test_the_map_of_a_gpt_is_that_of_its_last_token(tmp_path: Path) -> None:
    probe = pretrained_probe(*regard.load(tiny_gpt(tmp_path)), "the film day")
    result = measure_faithfulness(probe)
    with probe.evaluation_mode(), record(probe.encoder) as tape:
        probe.logits()
        row = tape.attention()[1][0, :, -1].mean(0)
    assert (result.token, result.layer, result.head) == (2, 2, None)
    assert result.weights == pytest.approx(row.tolist(), rel=1e-5)


def test_tasks_with_many_predictions_are_rejected(tiny_bert_folder: Path) -> None:
    encoder, tokenizer = regard.load(tiny_bert_folder)
    task = TokenClassification(["O", "B-PER"])
    with pytest.raises(InputError, match="many predictions for one text"):
        measure_faithfulness(
            task_probe(FineTunedModel(task, EncoderWithHead.from_encoder(encoder, task).eval(), tokenizer, 64), TEXT)
        )
