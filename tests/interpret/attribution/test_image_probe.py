"""Probes of image classifiers: patches as tokens, removal of patches, faithfulness, and example images by name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.cli.app import run
from regard.data.example_images import example_images
from regard.errors import InputError
from regard.inference.load_model import load_model
from regard.interpret.attribution.attributions import integrated_gradients
from regard.interpret.attribution.image_probe import ImageProbe, image_probe
from regard.interpret.faithfulness import measure_faithfulness
from regard.interpret.images import read_image
from regard.models.vit import Vit, VitConfig
from regard.nn.masks import Padded
from regard.server.models.client_verbs import run_verb
from regard.tasks.fine_tuned_model import FineTunedModel, save_fine_tuned
from regard.tasks.image_classification import ImageClassifier, ImageTask
from tests.server.local import verb_host

CONFIG = VitConfig(
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    image_size=(28, 28),
    patch_size=(7, 7),
    num_channels=1,
    num_labels=3,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = ImageClassifier(Vit(CONFIG)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    path = tmp_path_factory.mktemp("digits") / "digits"
    save_fine_tuned(FineTunedModel(ImageTask(["1", "7", "9"]), model, None, 0), path)
    return path


@pytest.fixture(scope="module")
def probe(folder: Path) -> ImageProbe:
    return image_probe(load_model(folder), read_image("digit-7"))


def test_logits_equal_those_of_the_classifier(probe: ImageProbe) -> None:
    with probe.evaluation_mode():
        pixels = probe.pixels[None].float() / 127.5 - 1
        expected = probe.encoder.classifier(probe.encoder(pixels)[:, 0])
        torch.testing.assert_close(probe.logits()[:, 0], expected)
        torch.testing.assert_close(probe.logits(probe.token_embeddings()[None])[:, 0], expected)


def test_a_removed_patch_takes_its_position_with_it(probe: ImageProbe) -> None:
    keep = torch.ones(1, 17, dtype=torch.bool)
    keep[0, 5] = False
    with probe.evaluation_mode():
        embedded = probe.encoder.embedding(probe.pixels[None].float() / 127.5 - 1)
        hidden = probe.encoder.encoder(embedded[:, keep[0]], Padded())
        torch.testing.assert_close(probe.logits_of_subsets(keep)[:, 0], probe.encoder.classifier(hidden[:, 0]))


def test_integrated_gradients_sum_to_the_difference_from_a_black_image(probe: ImageProbe) -> None:
    found = integrated_gradients(probe, output="9", steps=64)
    with probe.evaluation_mode():
        black = probe.encoder(torch.full((1, 1, 28, 28), -1.0))[:, 0]
        expected = probe.encoder.classifier(black)[0, 2].item()
    assert (found.baseline, found.baseline_value) == ("black", pytest.approx(expected, abs=1e-5))
    assert sum(found.scores) == pytest.approx(found.value - expected, abs=1e-3)
    assert found.scores[1] == 0  # the corner of the image is black


def test_one_map_for_two_classes(probe: ImageProbe) -> None:
    first, second = (measure_faithfulness(probe, label=label) for label in ("7", "9"))
    assert first.weights == second.weights
    assert first.integrated.scores != second.integrated.scores
    assert first.verdict is not None and len(first.checks) == 6
    assert "patch" in first.checks[0].method and "word" not in str(first.checks)
    assert (first.grid, len(first.tokens), first.tokens[:2]) == ((4, 4), 17, ("[CLS]", "1,1"))
    assert first.integrated_other is not None and first.integrated_other.output == first.other
    view: Any = first.view_data()
    assert view["image"].startswith("data:image/png;base64,")


def test_the_command_takes_an_example_image_by_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["faithfulness", str(folder), "--image", "digit-7", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["texts"] == ["digit-7"]
    assert run(["faithfulness", str(folder), "--image", "digit-7"]) == 0
    out = capsys.readouterr().out
    assert "verdict:" in out and "integrated gradients, " in out
    assert run(["predict", str(folder), "digit-7", "--json"]) == 0
    assert "digit-7" in capsys.readouterr().out
    assert regard.look(image="digit-7", model=folder).grid == (4, 4)
    assert run(["look", "--image", "digit-x", "--model", str(folder)]) == 2
    assert "one of the examples digit-0" in capsys.readouterr().err


def test_clients_may_name_example_images_but_no_files(folder: Path) -> None:
    host = verb_host(str(folder))

    def call(verb: str, **arguments: object) -> Any:
        events = run_verb(host, verb, {"model": str(folder), **arguments})
        try:
            while True:
                next(events)
        except StopIteration as stop:
            return stop.value

    assert call("faithfulness", image="digit-7").texts == ("digit-7",)
    assert "--image digit-7" in call("look", image="digit-7").page_data()["cli"]
    assert call("predict", source="digit-7").rows == 1
    with pytest.raises(InputError, match="expected an image that was sent to the server"):
        call("faithfulness", image=str(example_images()["digit-7"]))


def test_what_is_no_image_classifier_is_rejected(tiny_bert_folder: Path) -> None:
    loaded = load_model(tiny_bert_folder)
    with pytest.raises(InputError, match="expected an image classifier"):
        image_probe(loaded, read_image("digit-7"))
    with pytest.raises(InputError, match="got both"):
        regard.faithfulness(tiny_bert_folder, "a text", image="digit-7")


def test_example_images_are_small_and_the_page_lists_them() -> None:
    images = example_images()
    assert len(images) == 12
    assert all(file.stat().st_size < 2000 for file in images.values())
    assert {read_image(name).pixels.shape for name in images} == {(28, 28)}
    assert np.ptp(read_image("digit-4-or-9").pixels) > 0
    page = Path(__file__).parents[3] / "web" / "src" / "patch_pictures.tsx"
    listed = re.search(r"EXAMPLE_IMAGES = \[(.*?)\]", page.read_text(encoding="utf-8"), re.DOTALL)
    assert listed is not None and re.findall(r'"([^"]+)"', listed[1]) == list(images)
