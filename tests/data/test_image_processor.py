"""Image processing equals transformers' image processors with Pillow, up to float32 rounding (2e-6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import regard
from regard.data.examples import ImageExample
from regard.data.image_processor import ImageProcessor, image_processor_of, read_image_processor
from regard.errors import InputError
from regard.models import Clip, ClipConfig, DeitConfig, Vit, VitConfig

pytest.importorskip("PIL")
CLIP = ClipConfig(image_size=(24, 24), patch_size=(8, 8))
DEIT = DeitConfig(image_size=(24, 24), patch_size=(8, 8))
VIT = VitConfig(image_size=(24, 18), patch_size=(6, 6))
SHAPES = [(40, 61, 3), (61, 40, 3), (24, 24, 3), (13, 9, 3), (33, 50), (7, 200, 3)]


def example(shape: tuple[int, ...]) -> ImageExample:
    """A smooth image with noise, so that filters differ."""
    rng = np.random.default_rng(0)
    waves = 127 + 100 * np.sin(np.arange(np.prod(shape)).reshape(shape) / 37)
    return ImageExample((waves + rng.integers(-27, 28, shape)).astype(np.uint8), name="a.png")


def theirs(kind: str, settings: dict[str, Any]) -> Any:
    return getattr(transformers, f"{kind}ImageProcessorPil")(**settings)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("kind", "config", "settings"),
    [
        ("CLIP", CLIP, {"size": {"shortest_edge": 24}, "crop_size": 24}),
        ("CLIP", CLIP, {"size": {"shortest_edge": 29}, "crop_size": 24, "resample": 1}),
        ("CLIP", CLIP, {"size": {"shortest_edge": 11}, "crop_size": 24, "do_normalize": False}),
        ("CLIP", CLIP, {"do_resize": False, "crop_size": 24}),
        ("DeiT", DEIT, {"size": 28, "crop_size": 24}),
        ("DeiT", DEIT, {"size": {"height": 27, "width": 31}, "crop_size": 24, "image_mean": [0.485, 0.456, 0.406]}),
        ("ViT", VIT, {"size": {"height": 24, "width": 18}}),
        ("ViT", VIT, {"size": {"height": 24, "width": 18}, "rescale_factor": 1 / 127.5, "image_std": [1, 2, 3]}),
    ],
)
def test_pixel_values_equal_transformers(
    kind: str, config: Any, settings: dict[str, Any], shape: tuple[int, ...], tmp_path: Path
) -> None:
    processor = theirs(kind, settings)
    processor.save_pretrained(tmp_path)
    image = example(shape)
    ours = read_image_processor(tmp_path, config)
    rgb = image.pixels if image.pixels.ndim == 3 else np.repeat(image.pixels[..., None], 3, -1)
    expected = processor(images=rgb, return_tensors="pt", input_data_format="channels_last").pixel_values[0]
    torch.testing.assert_close(ours.normalize(ours.pixels(image)), expected, atol=2e-6, rtol=0)
    # What Regard writes is read as the same settings, by transformers too.
    document = json.loads(json.dumps(ours.to_dict()))
    again = ImageProcessor.from_dict(document, config)
    assert again.to_dict() == ours.to_dict()
    back = getattr(transformers, document["image_processor_type"] + "Pil")(**document)
    values = back(images=rgb, return_tensors="pt", input_data_format="channels_last").pixel_values[0]
    torch.testing.assert_close(values, expected, atol=2e-6, rtol=0)


def test_the_defaults_are_those_of_the_families() -> None:
    clip, deit, vit = (ImageProcessor.from_dict({}, config) for config in (CLIP, DEIT, VIT))
    assert clip.size == 24 and clip.do_center_crop and clip.resample == 3
    assert clip.image_mean == tuple(transformers.CLIPImageProcessorPil().image_mean)
    assert clip.image_std == tuple(transformers.CLIPImageProcessorPil().image_std)
    assert deit.size == (24, 24) and deit.resample == 3 and deit.image_mean == (0.5,)
    assert vit.size == (24, 18) and vit.resample == 2 and not vit.do_center_crop


def test_feature_extractors_of_older_folders() -> None:
    """`size` and `crop_size` were numbers: the shortest edge in CLIP, both sides in DeiT, whose models may be ViTs."""
    clip = ImageProcessor.from_dict(
        {"feature_extractor_type": "CLIPFeatureExtractor", "size": 24, "crop_size": 24}, CLIP
    )
    assert clip == ImageProcessor.from_dict({}, CLIP)
    old = {"feature_extractor_type": "DeiTFeatureExtractor", "size": 28, "do_center_crop": True, "crop_size": 24}
    vit = ImageProcessor.from_dict({**old, "resample": 3}, VitConfig(image_size=(24, 24), patch_size=(8, 8)))
    assert (vit.size, vit.do_center_crop, vit.resample, vit.image_size) == ((28, 28), True, 3, (24, 24))


def test_a_processor_is_saved_with_its_model(tmp_path: Path) -> None:
    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = Vit(VitConfig(image_size=(16, 16), patch_size=(8, 8), num_labels=2, **small))
    regard.save(model, tmp_path / "new")
    loaded, _ = regard.load(tmp_path / "new")
    assert image_processor_of(loaded) == ImageProcessor(
        (16, 16), 3, (16, 16), image_mean=(0.5,) * 3, image_std=(0.5,) * 3
    )
    settings = {"size": {"shortest_edge": 20}, "crop_size": 16, "do_center_crop": True, "image_mean": [0.1, 0.2, 0.3]}
    (tmp_path / "new" / "checksums.json").unlink()
    (tmp_path / "new" / "preprocessor_config.json").write_text(json.dumps(settings))
    loaded, _ = regard.load(tmp_path / "new")
    regard.save(loaded, tmp_path / "again")
    reloaded, _ = regard.load(tmp_path / "again")
    again = image_processor_of(reloaded)
    assert again.size == 20 and again.image_mean == (0.1, 0.2, 0.3)
    assert again.to_dict() == image_processor_of(loaded).to_dict()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"size": {"height": 224, "width": 224}, "do_center_crop": False},
            r"would have the size \(224, 224\), and the model",
        ),
        ({"crop_size": 99}, r"would have the size \(99, 99\)"),
        ({"do_center_crop": False}, "would have the size 24, and the model reads"),
        (
            {"size": {"longest_edge": 24}},
            "size is {'longest_edge': 24}; expected a height and a width, or a shortest edge",
        ),
        ({"size": {"shortest_edge": 0}}, "size is"),
        ({"size": {"height": 10**6, "width": 10**6}}, "size is"),
        ({"size": "24"}, "size is 24; expected"),
        ({"resample": 9}, "resample is 9; expected one of Pillow's filters, 0 to 5"),
        ({"resample": "x" * 10**6}, "resample is 'xxx"),
        ({"image_mean": [0.5, 0.5]}, r"image_mean is \[0.5, 0.5\]; expected a number, or 3"),
        ({"image_std": [0.5, 0, 0.5]}, "image_std is"),
        ({"image_std": ["a", "b", "c"]}, "image_std is"),
        ({"rescale_factor": [1, 2]}, "rescale_factor is"),
        ({"do_pad": True}, "do_pad is true"),
    ],
    ids=str,
)
def test_unusable_settings_are_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    with pytest.raises(InputError, match=message) as caught:
        read_image_processor(tmp_path, CLIP)
    assert str(tmp_path) in str(caught.value) and len(str(caught.value)) < 400


def test_unusable_images_are_refused() -> None:
    narrow = ImageExample(np.zeros((1, 3_000_000, 3), dtype=np.uint8), name="narrow.png")
    with pytest.raises(InputError, match=r"narrow.png has 1 x 3,000,000 pixels; .* Cut it"):
        ImageProcessor.from_dict({}, CLIP).pixels(narrow)
    unresized = ImageProcessor.from_dict({"do_resize": False}, VIT)
    assert unresized.pixels(example((24, 18, 3))).shape == (3, 24, 18)
    with pytest.raises(InputError, match=r"a.png has \(10, 10\) pixels; this model reads \(24, 18\)"):
        unresized.pixels(example((10, 10, 3)))


def test_a_new_model_has_the_processor_of_its_family() -> None:
    with torch.device("meta"):
        assert image_processor_of(Clip(ClipConfig())) == ImageProcessor.from_dict({}, ClipConfig())
