"""Images: resized to a frame, augmented in training, and a folder that transformers can load."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from regard.data.examples import ImageExample
from regard.data.image_processor import ImageProcessor
from regard.errors import InputError
from regard.models import Vit, VitConfig
from regard.tasks.fine_tuned_model import FineTunedModel, load_fine_tuned, predict, save_fine_tuned
from regard.tasks.image_classification import ImageClassifier, ImageTask

CONFIG = VitConfig(
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    image_size=(8, 8),
    patch_size=(4, 4),
    num_channels=1,
    num_labels=3,
)


def image_example(seed: int, *, size: tuple[int, ...] = (8, 8), label: str | None = None) -> ImageExample:
    return ImageExample(np.random.default_rng(seed).integers(256, size=size, dtype=np.uint8), label, f"{seed}.png")


@pytest.fixture
def fine_tuned() -> FineTunedModel:
    model = ImageClassifier(Vit(CONFIG), shift=2).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return FineTunedModel(ImageTask(["a", "b", "c"]), model, None, 0)


@pytest.mark.parametrize(
    ("size", "patch", "expected"),
    [
        ((28, 28), 4, (28, 28)),
        ((31, 47), 4, (32, 48)),
        ((2, 3), 4, (4, 4)),
        ((600, 600), 4, (64, 64)),
        ((600, 600), 16, (256, 256)),
        ((375, 500), 4, (56, 72)),
    ],
)
def test_a_frame_has_whole_patches_up_to_a_limit(size: tuple[int, int], patch: int, expected: tuple[int, int]) -> None:
    frame = ImageProcessor.for_images([image_example(0, size=size)], patch=patch)
    assert frame.image_size == frame.size == expected
    assert frame.count_resized([image_example(0, size=size), image_example(1, size=(*expected, 3))]) == int(
        size != expected
    )


def test_a_frame_has_the_median_size_and_supports_color() -> None:
    gray, color = image_example(0), image_example(1, size=(12, 10, 3))
    sizes = [(8, 8), (12, 16), (40, 20)]
    assert ImageProcessor.for_images([image_example(0, size=size) for size in sizes], patch=4).image_size == (12, 16)
    in_gray, in_color = (ImageProcessor((8, 8), channels, (8, 8)) for channels in (1, 3))
    assert ImageProcessor.for_images([gray], patch=4) == in_gray
    assert ImageProcessor.for_images([gray, color, gray], patch=4) == in_color
    assert torch.equal(in_gray.pixels(gray)[0], torch.from_numpy(gray.pixels))
    assert torch.equal(in_color.pixels(gray)[2], torch.from_numpy(gray.pixels))
    assert in_gray.pixels(color).shape == (1, 8, 8) and in_color.pixels(color).shape == (3, 8, 8)
    flat = ImageExample(np.full((20, 16, 3), 77, dtype=np.uint8))
    assert (in_gray.pixels(flat) == 77).all()


def test_images_are_augmented_in_training_only(fine_tuned: FineTunedModel) -> None:
    items = fine_tuned.task.preprocess([image_example(n) for n in range(200)], fine_tuned.input_builder)
    still = fine_tuned.model.collate(items).values  # type: ignore[union-attr]
    torch.testing.assert_close(still[7, 0], items[7].extra[0].float() / 127.5 - 1, atol=1e-6, rtol=0)
    fine_tuned.model.train()
    moved = fine_tuned.model.collate(items).values  # type: ignore[union-attr]
    seen = set()
    for one, other in zip(still[:, 0], moved[:, 0], strict=True):
        found = [
            (down, right)
            for down in range(-2, 3)
            for right in range(-2, 3)
            if torch.equal(other[2:-2, 2:-2], one[2 + down : 6 + down, 2 + right : 6 + right])
        ]
        assert len(found) == 1
        seen.add(found[0])
    assert len(seen) == 25


def test_transformers_loads_the_folder(fine_tuned: FineTunedModel, tmp_path: Path) -> None:
    import transformers

    save_fine_tuned(fine_tuned, tmp_path / "run")
    again = load_fine_tuned(tmp_path / "run")
    image_examples = [image_example(n) for n in range(3)]
    device = torch.device("cpu")
    assert predict(again, image_examples, device=device) == predict(fine_tuned, image_examples, device=device)
    theirs = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "run").eval()
    assert theirs.config.id2label == {0: "a", 1: "b", 2: "c"}
    values = fine_tuned.model.collate(fine_tuned.task.preprocess(image_examples, fine_tuned.input_builder)).values  # type: ignore[union-attr]
    with torch.no_grad():
        torch.testing.assert_close(
            theirs(pixel_values=values).logits,
            fine_tuned.model(
                fine_tuned.model.collate(fine_tuned.task.preprocess(image_examples, fine_tuned.input_builder))
            ),
            atol=1e-5,
            rtol=1e-5,
        )
    found = predict(again, image_examples, device=device)
    assert [one["image"] for one in found] == ["0.png", "1.png", "2.png"] and set(found[0]["probabilities"]) == {*"abc"}


def test_an_image_model_refuses_text(fine_tuned: FineTunedModel) -> None:
    with pytest.raises(InputError, match="reads images"):
        fine_tuned.task.preprocess([image_example(0)], None)
    with pytest.raises(InputError, match="at least two classes"):
        ImageTask.from_examples([image_example(0, label="a")])  # type: ignore[list-item]
