"""Pictures: made to fit a frame, moved in training, and a folder that transformers reads too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from regard.data.examples import Picture
from regard.errors import InputError
from regard.models import Vit, VitConfig
from regard.tasks.folder import Solved, read_task, write_task
from regard.tasks.pictures import Frame, Look, Seen
from regard.tasks.solve import predict

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


def picture(seed: int, *, size: tuple[int, ...] = (8, 8), label: str | None = None) -> Picture:
    return Picture(np.random.default_rng(seed).integers(256, size=size, dtype=np.uint8), label, f"{seed}.png")


@pytest.fixture
def solved() -> Solved:
    model = Seen(Vit(CONFIG), shift=2).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return Solved(Look(["a", "b", "c"]), model, None, 0)


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
def test_a_frame_has_whole_patches_and_not_too_many(
    size: tuple[int, int], patch: int, expected: tuple[int, int]
) -> None:
    frame = Frame.around([picture(0, size=size)], patch=patch)
    assert (frame.height, frame.width) == expected
    assert frame.others([picture(0, size=size), picture(1, size=(*expected, 3))]) == int(size != expected)


def test_a_frame_takes_the_middle_size_and_any_colour() -> None:
    grey, colour = picture(0), picture(1, size=(12, 10, 3))
    sizes = [(8, 8), (12, 16), (40, 20)]
    assert Frame.around([picture(0, size=size) for size in sizes], patch=4) == Frame(12, 16, 1)
    assert Frame.around([grey], patch=4) == Frame(8, 8, 1) and Frame.around([grey, colour, grey], patch=4) == Frame(
        8, 8, 3
    )
    assert torch.equal(Frame(8, 8, 1).pixels(grey)[0], torch.from_numpy(grey.pixels))
    assert torch.equal(Frame(8, 8, 3).pixels(grey)[2], torch.from_numpy(grey.pixels))
    assert Frame(8, 8, 1).pixels(colour).shape == (1, 8, 8) and Frame(8, 8, 3).pixels(colour).shape == (3, 8, 8)
    flat = Picture(np.full((20, 16, 3), 77, dtype=np.uint8))
    assert (Frame(8, 8, 1).pixels(flat) == 77).all()


def test_pictures_move_in_training_only(solved: Solved) -> None:
    items = solved.task.items([picture(n) for n in range(200)], solved.rows)
    still = solved.model.gathered(items).values  # type: ignore[union-attr]
    assert torch.equal(still[7, 0], items[7].note[0].float() / 127.5 - 1)
    solved.model.train()
    moved = solved.model.gathered(items).values  # type: ignore[union-attr]
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


def test_the_folder_is_one_that_transformers_reads(solved: Solved, tmp_path: Path) -> None:
    import transformers

    write_task(solved, tmp_path / "run")
    again = read_task(tmp_path / "run")
    pictures = [picture(n) for n in range(3)]
    device = torch.device("cpu")
    assert predict(again, pictures, device=device) == predict(solved, pictures, device=device)
    theirs = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "run").eval()
    assert theirs.config.id2label == {0: "a", 1: "b", 2: "c"}
    values = solved.model.gathered(solved.task.items(pictures, solved.rows)).values  # type: ignore[union-attr]
    with torch.no_grad():
        torch.testing.assert_close(
            theirs(pixel_values=values).logits,
            solved.model(solved.model.gathered(solved.task.items(pictures, solved.rows))),
            atol=1e-5,
            rtol=1e-5,
        )
    found = predict(again, pictures, device=device)
    assert [one["image"] for one in found] == ["0.png", "1.png", "2.png"] and set(found[0]["probabilities"]) == {*"abc"}


def test_a_model_of_pictures_is_asked_for_pictures(solved: Solved) -> None:
    with pytest.raises(InputError, match="looks at pictures"):
        solved.task.items([picture(0)], None)
    with pytest.raises(InputError, match="at least two classes"):
        Look.learn([picture(0, label="a")])  # type: ignore[list-item]
