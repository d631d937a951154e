"""Ten mistakes, each introduced into a clean run: the matching check reports it, and no other check does."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.data.examples import TextExample
from regard.data.readers import ExampleSet
from regard.inference.load_model import load_model
from regard.models import Bert
from regard.nn.masks import Layout, Padded
from regard.tasks.fine_tuned_model import FineTunedModel, score
from regard.training.doctor import CHECKS, ExaminedModel, examine, examined_model
from tests.training.doctor.seeds import (
    cased,
    clean_pairs,
    clean_texts,
    read_of,
    reported,
    with_inputs,
    without_segments,
)

Data = ExampleSet[TextExample]


class Unmasked(Bert):
    """Attends to padding, a common mistake in teaching code."""

    def forward(
        self,
        ids: Tensor,
        layout: Layout | None = None,
        segments: Tensor | None = None,
        *,
        output_positions: Tensor | None = None,
    ) -> Tensor:
        return super().forward(
            ids, Padded() if isinstance(layout, Padded) else layout, segments, output_positions=output_positions
        )


def test_a_clean_run_has_ten_findings_and_no_problem(
    subject: ExaminedModel, fine_tuned: FineTunedModel, train: Data, dev: Data
) -> None:
    assert score(fine_tuned, dev.examples, device=torch.device("cpu"))["accuracy"] > 90  # the model was trained
    found = examine(subject, dev, train=train)
    assert tuple(finding.check for finding in found) == CHECKS
    assert {finding.status for finding in found} == {"ok"}
    assert all(finding.evidence and not finding.remedy for finding in found)


def test_1_missing_mask(subject: ExaminedModel, train: Data, dev: Data) -> None:
    subject.encoder.__class__ = Unmasked
    found = examine(subject, dev, train=train)
    assert reported(found) == {"missing mask": "error"}
    assert "when padded in a batch with a text of 64" in found[0].evidence
    assert "mask" in found[0].remedy


def test_1_a_mask_that_other_software_does_not_create(
    tiny_bert_folder: Path, tmp_path: Path, train: Data, dev: Data
) -> None:
    folder = with_inputs(tiny_bert_folder, tmp_path / "model", ["input_ids", "token_type_ids"])
    found = examine(examined_model(load_model(folder)), dev, train=train)
    assert reported(found) == {"missing mask": "warning"}
    assert "model_input_names input_ids, token_type_ids" in found[0].evidence


def test_2_wrong_segment_ids(tiny_bert_folder: Path, tmp_path: Path) -> None:
    folder = without_segments(tiny_bert_folder, tmp_path / "model")
    pairs = read_of(clean_pairs(60))
    clean, found = (examine(examined_model(load_model(one)), pairs, task="pair") for one in (tiny_bert_folder, folder))
    assert reported(clean) == {}
    assert reported(found) == {"wrong segment ids": "error"}
    assert re.search(r"16 of 16 pairs have segment ids other than 0s and then 1s: 0+$", found[1].evidence)


def test_2_segment_ids_that_other_software_does_not_create(tiny_bert_folder: Path, tmp_path: Path) -> None:
    folder = with_inputs(tiny_bert_folder, tmp_path / "model", ["input_ids", "attention_mask"])
    found = examine(examined_model(load_model(folder)), read_of(clean_pairs(60)), task="pair")
    assert reported(found) == {"wrong segment ids": "warning"}


def test_2_single_texts_give_a_warning(tiny_bert_folder: Path, tmp_path: Path, dev: Data) -> None:
    folder = without_segments(tiny_bert_folder, tmp_path / "model")
    assert reported(examine(examined_model(load_model(folder)), dev)) == {"wrong segment ids": "warning"}


def test_3_casing_mismatch(tiny_bert_folder: Path, tmp_path: Path, train: Data, dev: Data) -> None:
    found = examine(examined_model(load_model(cased(tiny_bert_folder, tmp_path / "model"))), dev, train=train)
    assert reported(found) == {"casing mismatch": "error"}
    assert "120 of 120 capitalized words (100.0%)" in found[2].evidence
    assert "as '[UNK]'" in found[2].evidence


def test_4_labels_truncated_away(subject: ExaminedModel, fine_tuned: FineTunedModel, train: Data, dev: Data) -> None:
    found = examine(replace(subject, fine_tuned=replace(fine_tuned, length=8)), dev, train=train)
    assert reported(found) == {"labels truncated away": "error"}
    assert "of 120 texts lose more than a tenth at 8 tokens" in found[3].evidence


def test_5_train_dev_leakage(subject: ExaminedModel, train: Data) -> None:
    half = read_of([replace(one, text=f"  {one.text.upper()} ") for one in train.examples[:60]], "dev.tsv")
    found = examine(subject, half, train=train)
    assert reported(found) == {"train/dev leakage": "error"}
    assert found[4].evidence.startswith("60 of 60 texts (100.0%) are in train.tsv too")


def test_6_dropout_left_on(subject: ExaminedModel, fine_tuned: FineTunedModel, train: Data, dev: Data) -> None:
    fine_tuned.model.train()
    found = examine(subject, dev, train=train)
    assert reported(found) == {"dropout left on": "error"}
    assert "modules are in training mode" in found[5].evidence
    assert fine_tuned.model.training  # the model's mode is restored


def test_7_constant_predictions(subject: ExaminedModel, fine_tuned: FineTunedModel, train: Data, dev: Data) -> None:
    with torch.no_grad():
        fine_tuned.model.head.output.weight.zero_()
    found = examine(subject, dev, train=train)
    assert reported(found) == {"constant predictions": "error"}
    assert re.match("60 of 60 predictions are '(pos|neg)'", found[6].evidence)


def test_8_class_imbalance(subject: ExaminedModel, train: Data, dev: Data) -> None:
    texts = clean_texts(400, first=200)
    few = [one for one in texts if one.label == "pos"][:2] + [one for one in texts if one.label == "neg"][:98]
    found = examine(subject, dev, train=read_of(few, "train.tsv"))
    assert reported(found) == {"class imbalance": "warning"}
    assert "'pos' with 2 of 100 (2.0%)" in found[7].evidence


def test_9_label_noise_by_duplicates(subject: ExaminedModel, train: Data, dev: Data) -> None:
    flipped = [replace(one, label="neg" if one.label == "pos" else "pos") for one in train.examples[:3]]
    found = examine(subject, dev, train=read_of([*train.examples, *flipped], "train.tsv"))
    assert reported(found) == {"label noise by duplicates": "warning"}
    assert "6 of 123 examples (4.9%)" in found[8].evidence
    assert found[8].evidence.endswith("on line 2 and line 122")


def test_10_wrong_columns(subject: ExaminedModel, tiny_bert_folder: Path, train: Data, dev: Data) -> None:
    def swap_columns(read: ExampleSet[Any]) -> Data:
        return read_of([TextExample(str(one.label), None, one.text) for one in read.examples], read.path)

    for patient in (subject, examined_model(load_model(tiny_bert_folder))):
        found = examine(patient, swap_columns(dev), train=swap_columns(train))
        assert reported(found) == {"wrong columns": "error"}
        assert found[9].evidence.startswith("train.tsv: ")
        assert "--columns" in found[9].remedy
        assert [finding.status for finding in found if finding.check == "train/dev leakage"] == ["skipped"]
