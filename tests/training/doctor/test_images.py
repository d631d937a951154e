"""The doctor with images: both sides of each threshold."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.cli.app import run, verb_commands
from regard.data.examples import ImageExample, TextExample
from regard.data.image_processor import ImageProcessor
from regard.data.readers import ExampleSet
from regard.errors import InputError
from regard.inference.load_model import load_model
from regard.models import Vit, VitConfig
from regard.tasks.fine_tuned_model import FineTunedModel, save_fine_tuned
from regard.tasks.image_classification import ImageClassifier, ImageTask
from regard.training.doctor import CHECKS, DoctorFinding, examine, examine_data, examined_model, problems
from regard.training.doctor.examine import ExaminedModel

FRAME = ImageProcessor((8, 8), 1, (8, 8))


def images(count: int, *, first: int = 0, size: tuple[int, ...] = (8, 8)) -> ExampleSet[ImageExample]:
    """Different images of two classes: bright in the upper or the lower half."""
    found = []
    for number in range(first, first + count):
        pixels = np.random.default_rng(number).integers(60, size=size, dtype=np.uint8)
        half = size[0] // 2
        pixels[number % 2 * half : number % 2 * half + half] += 150
        found.append(ImageExample(pixels, "ab"[number % 2], f"{number}.png"))
    return ExampleSet(found, "digits", "image folder", {}, list(range(1, count + 1)))


@pytest.fixture
def fine_tuned() -> FineTunedModel:
    """A model with weights set by hand that separates the two classes."""
    torch.manual_seed(0)
    model = Vit(
        VitConfig(
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            image_size=(8, 8),
            patch_size=(4, 4),
            num_channels=1,
            num_labels=2,
        )
    )
    fine_tuned = FineTunedModel(ImageTask(["a", "b"]), ImageClassifier(model), None, 0)
    train = images(40)
    items = fine_tuned.task.preprocess(train.examples, FRAME)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(40):
        loss = fine_tuned.task.loss(fine_tuned.model(fine_tuned.model.collate(items)), items)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    fine_tuned.model.eval()
    return fine_tuned


def by_name(findings: list[DoctorFinding]) -> dict[str, DoctorFinding]:
    return {finding.check: finding for finding in findings}


def test_clean_images_have_no_findings(fine_tuned: FineTunedModel) -> None:
    subject = ExaminedModel(fine_tuned.model.encoder, None, fine_tuned)  # type: ignore[arg-type]
    found = examine(subject, images(40, first=40), train=images(40))
    assert [finding.check for finding in found] == [*CHECKS, "wrong image sizes"]
    assert problems(found) == []
    assert {finding.check for finding in found if finding.status == "skipped"} == {
        "missing mask",
        "wrong segment ids",
        "casing mismatch",
        "labels truncated away",
        "wrong columns",
    }
    assert problems(examine_data(fine_tuned.task, images(40), images(40, first=40), FRAME)) == []


def test_equal_images_in_both_files() -> None:
    task = ImageTask(["a", "b"])
    for shared, status in ((0, "ok"), (1, "warning"), (10, "error")):
        found = by_name(examine_data(task, images(100), images(100, first=100 - shared), FRAME))["train/dev leakage"]
        assert found.status == status
        assert found.evidence.startswith(f"{shared} of 100 images")


def test_rare_classes_and_equal_images_with_other_labels() -> None:
    train, task, other = images(100), ImageTask(["a", "b"]), images(9, first=500)
    for rare, status in ((5, "ok"), (4, "warning")):
        labels = ["a"] * rare + ["b"] * (100 - rare)
        named = [ImageExample(one.pixels, label) for one, label in zip(train.examples, labels, strict=True)]
        assert (
            by_name(examine_data(task, ExampleSet(named, "digits", ""), other, FRAME))["class imbalance"].status
            == status
        )
    first = train.examples[0]
    twins = ExampleSet(
        [*train.examples, ImageExample(first.pixels, "b")], "digits", "", {}, list(range(1, 102)), "picture"
    )
    noise = by_name(examine_data(task, twins, other, FRAME))["label noise by duplicates"]
    assert noise.status == "warning" and "on picture 1 and picture 101" in noise.evidence


@pytest.mark.parametrize(
    ("size", "status", "evidence"),
    [
        ((8, 8), "ok", "0 of 40 images are resized to 8 x 8"),
        ((16, 16), "ok", "40 of 40 images are resized to 8 x 8"),
        ((16, 17), "ok", "40 of 40"),
        ((16, 18), "warning", "40 of them stretched by more than a tenth"),
        ((4, 4), "ok", "40 of 40"),
        ((2, 2), "warning", "40 of them to more than twice their size"),
    ],
)
def test_sizes(size: tuple[int, int], status: str, evidence: str) -> None:
    found = by_name(examine_data(ImageTask(["a", "b"]), images(40), images(40, first=40, size=size), FRAME))
    assert found["wrong image sizes"].status == status
    assert evidence in found["wrong image sizes"].evidence


def test_a_model_that_learned_nothing_or_has_its_dropout_on(fine_tuned: FineTunedModel) -> None:
    subject = ExaminedModel(fine_tuned.model.encoder, None, fine_tuned)  # type: ignore[arg-type]
    classifier = fine_tuned.model.encoder.classifier
    with torch.no_grad():
        classifier.bias.copy_(torch.tensor([99.0, 0.0]))  # type: ignore[union-attr]
    found = by_name(examine(subject, images(40, first=40)))
    assert found["constant predictions"].status == "error"
    assert "40 of 40 predictions are 'a'; the most frequent label has 20" in found["constant predictions"].evidence
    fine_tuned.model.train()
    assert by_name(examine(subject, images(40, first=40)))["dropout left on"].status != "ok"


def test_the_verb(fine_tuned: FineTunedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = pytest.importorskip("PIL.Image")
    save_fine_tuned(fine_tuned, tmp_path / "model")
    for index, example in enumerate(images(40).examples):
        folder = tmp_path / "data" / str(example.label)
        folder.mkdir(parents=True, exist_ok=True)
        image.fromarray(example.pixels).save(folder / f"{index}.png")
    arguments = ["doctor", str(tmp_path / "model"), "--data", str(tmp_path / "data"), "--device", "cpu", "--json"]
    assert run(arguments, registers=verb_commands()) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [one["check"] for one in found] == [*CHECKS, "wrong image sizes"]
    with pytest.raises(InputError, match="the model reads images, and texts holds text"):
        examine(examined_model(load_model(tmp_path / "model")), ExampleSet([TextExample("a", None, "a")], "texts", ""))
