"""Fine-tuning on images: a new model learns which half of an image is bright."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import regard
from regard.cli.app import run
from regard.data.image_processor import image_processor_of
from regard.data.readers import read_image_examples
from regard.errors import InputError
from regard.events import Event, drain
from regard.models import Deit, DeitConfig
from regard.tasks.evaluation.evaluate import evaluate_model
from regard.tasks.fine_tuned_model import load_fine_tuned, predict
from regard.training.recipes.finetuning.config import FineTuningConfig
from regard.training.recipes.finetuning.run import fine_tune
from tests.inference.folders import tiny_clip

SMALL = (
    "vision.hidden_size=16",
    "vision.num_hidden_layers=1",
    "vision.num_attention_heads=2",
    "vision.intermediate_size=32",
    "vision.max_shift=0",
)


def idx_bytes(values: np.ndarray) -> bytes:
    sizes = b"".join(int(size).to_bytes(4, "big") for size in values.shape)
    return bytes([0, 0, 8, values.ndim]) + sizes + values.astype(np.uint8).tobytes()


def fit(*arguments: Any, on_event: Callable[[Event], object] | None = None, **options: Any) -> None:
    drain(fine_tune(*arguments, **options), on_event)


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """Files in MNIST's format: the upper half is bright in class 0, the lower half in class 1."""
    rng = np.random.default_rng(0)
    labels = np.arange(80) % 2
    images = rng.integers(60, size=(80, 8, 8))
    for image, label in zip(images, labels, strict=True):
        image[4 * label : 4 * label + 4] += 150
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx_bytes(images))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
    return tmp_path / "train-images-idx3-ubyte"


def test_images_are_classified(
    digits: Path, tmp_path: Path, one_thread: None, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [part for setting in (*SMALL, "training.batch_size=16") for part in ("--set", setting)]
    arguments = [
        "train",
        "classify",
        "--train",
        str(digits),
        "--dev",
        str(digits),
        "-o",
        str(tmp_path / "run"),
        *settings,
    ]
    assert run([*arguments, "--device", "cpu", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["mean"]["accuracy"] == 100.0 and document["model"] == "a new ViT"
    assert run(["evaluate", str(tmp_path / "run"), "--data", str(digits), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["accuracy"] == 100.0
    assert run(["predict", str(tmp_path / "run"), str(digits)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["label"] for line in lines] == ["0", "1"] * 40


def test_a_fine_tuned_vit_is_fine_tuned_again(digits: Path, tmp_path: Path, one_thread: None) -> None:
    config = FineTuningConfig.load(overrides=[*SMALL, "training.learning_rate=3e-3", "training.batch_size=16"])
    fit("classify", str(digits), str(digits), output=tmp_path / "one", config=config, device="cpu")
    frozen = FineTuningConfig.load(overrides=[*SMALL, "training.learning_rate=3e-2", "training.frozen=true"])
    fit("classify", str(digits), str(digits), model=str(tmp_path / "one"), output=tmp_path / "two", config=frozen)
    one, two = (load_fine_tuned(tmp_path / name).model.state_dict() for name in ("one", "two"))
    changed = {name for name in one if not torch.equal(one[name], two[name])}
    assert changed == {"encoder.classifier.weight", "encoder.classifier.bias"}


def test_a_distilled_deit_gets_one_new_classifier(digits: Path, tmp_path: Path, one_thread: None) -> None:
    """Its two classifiers are those of another task; its preprocessing stays."""
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = DeitConfig(image_size=(8, 8), patch_size=(4, 4), num_channels=1, num_labels=5, **small)
    torch.manual_seed(0)
    regard.save(Deit(config), tmp_path / "deit")
    settings = {"size": 10, "crop_size": 8, "do_center_crop": True, "image_mean": [0.3], "image_std": [0.2]}
    (tmp_path / "deit" / "checksums.json").unlink()
    (tmp_path / "deit" / "preprocessor_config.json").write_text(json.dumps(settings))
    train = FineTuningConfig.load(
        overrides=[
            "training.batch_size=16",
            "training.learning_rate=1e-2",
            "training.num_epochs=20",
            "vision.max_shift=0",
        ]
    )
    fit("classify", str(digits), str(digits), model=str(tmp_path / "deit"), output=tmp_path / "run", config=train)
    fine_tuned = load_fine_tuned(tmp_path / "run")
    encoder: Any = fine_tuned.model.encoder
    assert encoder.classifier.out_features == 2 and encoder.cls_classifier is encoder.distillation_classifier is None
    processor = image_processor_of(encoder)
    assert (processor.size, processor.do_center_crop, processor.image_mean) == ((10, 10), True, (0.3,))
    found = drain(evaluate_model(fine_tuned, str(digits), name="run"))
    assert found.metrics["accuracy"] > 90
    theirs = transformers.DeiTForImageClassification.from_pretrained(tmp_path / "run").eval()
    reader = transformers.DeiTImageProcessorPil.from_pretrained(tmp_path / "run")
    example = read_image_examples(digits).examples[0]
    with torch.no_grad():
        pixels = reader(
            images=example.pixels[None], return_tensors="pt", input_data_format="channels_first"
        ).pixel_values
        expected = theirs(pixels).logits.softmax(-1)[0].tolist()
    (prediction,) = predict(fine_tuned, [example], device=torch.device("cpu"))
    assert list(prediction["probabilities"].values()) == pytest.approx(expected, abs=1e-5)


def test_a_clip_takes_no_classes(digits: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a CLIP, which takes no classes"):
        fit("classify", str(digits), str(digits), model=str(tiny_clip(tmp_path)), output=tmp_path / "run")


def test_settings_that_do_not_fit_are_refused(digits: Path, tiny_bert_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a Vision Transformer"):
        fit("classify", str(digits), str(digits), model=str(tiny_bert_folder), output=tmp_path / "run")
    with pytest.raises(InputError, match=r"vision\.num_attention_heads is 3, .*vision\.hidden_size, 16"):
        config = FineTuningConfig.load(overrides=[*SMALL, "vision.num_attention_heads=3"])
        fit("classify", str(digits), str(digits), output=tmp_path / "run", config=config)


def test_images_of_another_size_are_resized_and_reported(digits: Path, tmp_path: Path, one_thread: None) -> None:
    config = FineTuningConfig.load(
        overrides=[*SMALL, "vision.patch_size=3", "training.num_epochs=1", "training.batch_size=16"]
    )
    lines: list[str] = []
    fit(
        "classify",
        str(digits),
        str(digits),
        output=tmp_path / "run",
        config=config,
        device="cpu",
        on_event=lambda event: lines.append(event.line() or ""),
    )
    assert (
        "train: 80 of 80 images have another size than 9 x 9 and are resized, in patches of 3 (larger images fit with "
        "a larger vision.patch_size)" in lines
    )
    lines.clear()
    events = evaluate_model(load_fine_tuned(tmp_path / "run"), str(digits))
    drain(events, lambda event: lines.append(event.line() or ""))
    assert "80 of them have another size than 9 x 9 and are resized" in lines


def test_a_run_on_images_begins_with_the_data_checks(digits: Path, tmp_path: Path, one_thread: None) -> None:
    lines: list[str] = []
    config = FineTuningConfig.load(overrides=[*SMALL, "training.num_epochs=1", "training.batch_size=16"])
    fit(
        "classify",
        str(digits),
        str(digits),
        output=tmp_path / "run",
        config=config,
        device="cpu",
        on_event=lambda event: lines.append(event.line() or ""),
    )
    leak = [line for line in lines if line.startswith("warning: train/dev leakage: 80 of 80 images (100.0%)")]
    assert len(leak) == 1 and "--split" in leak[0]
