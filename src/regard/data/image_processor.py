"""Converts images to the pixel values that a model was trained on, by the settings of preprocessor_config.json.

The values equal those of transformers' image processors: Pillow resizes, then the center is cut out, then the values
are rescaled and normalized.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.examples import ImageExample
from regard.data.readers.images import Pixels
from regard.errors import InputError
from regard.files.json_files import read_json
from regard.models.family import get_family

PROCESSOR_FILE = "preprocessor_config.json"
NUM_PATCHES = 256  # approximate maximum for a new model: the cost of attention is quadratic in it
MAX_PIXELS = 50_000_000  # of a resized image
NUM_FILTERS = 6  # Pillow's resampling filters; 2 is bilinear, 3 bicubic
BILINEAR = 2


@dataclass(frozen=True)
class ImageProcessor:
    """The images that a model reads, of `image_size` (height, width), and how others become such images.

    An image is resized to `size`, which is (height, width) or the length of the shortest edge; None: it is not resized.
    `do_center_crop` then cuts out the center; a smaller image gets black edges. A pixel, 0 to 255, becomes
    (pixel * rescale_factor - image_mean) / image_std, with one number for all channels or one for each.
    """

    image_size: tuple[int, int]
    num_channels: int
    size: tuple[int, int] | int | None = None
    do_center_crop: bool = False
    resample: int = BILINEAR
    rescale_factor: float = 1 / 255
    image_mean: tuple[float, ...] = (0.5,)
    image_std: tuple[float, ...] = (0.5,)

    @classmethod
    def for_images(cls, images: Sequence[ImageExample], *, patch: int) -> ImageProcessor:
        """For a new model: the median size, limited and rounded to whole patches; in color if any image is."""
        high, wide = (statistics.median(image.pixels.shape[side] for image in images) for side in (0, 1))
        scale = min(1.0, patch * math.sqrt(NUM_PATCHES / (high * wide)))
        height, width = (max(1, round(side * scale / patch)) * patch for side in (high, wide))
        channels = 3 if any(image.pixels.ndim == 3 for image in images) else 1
        return cls((height, width), channels, size=(height, width))

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], config: Any) -> ImageProcessor:
        """The settings of a preprocessor_config.json for a model; those that it lacks are the family's."""
        image_size: tuple[int, int] = tuple(config.image_size)
        high, wide = image_size
        settings = {
            "size": high if high == wide else {"height": high, "width": wide},
            "crop_size": {"height": high, "width": wide},
            "resample": BILINEAR,
            "rescale_factor": 1 / 255,
            "image_mean": 0.5,
            "image_std": 0.5,
            **get_family(config.family).image_processor,
            **document,
        }
        if settings.get("do_pad"):
            raise InputError("do_pad is true, and Regard does not pad images")
        crop = bool(settings.get("do_center_crop"))
        size = None
        if settings.get("do_resize", True):
            size = _size("size", settings["size"], square=settings.get("default_to_square", True) is not False)
        made = _size("crop_size", settings["crop_size"], square=True) if crop else size
        if made not in (None, image_size):
            raise InputError(f"the images would have the size {made}, and the model reads {image_size}")
        resample = settings["resample"]
        if resample not in range(NUM_FILTERS):
            raise InputError(f"resample is {resample!r:.60}; expected one of Pillow's filters, 0 to {NUM_FILTERS - 1}")
        rescaled, normalized = settings.get("do_rescale", True), settings.get("do_normalize", True)
        return cls(
            image_size,
            config.num_channels,
            size,
            crop,
            int(resample),
            _numbers("rescale_factor", settings["rescale_factor"], 1)[0] if rescaled else 1.0,
            _numbers("image_mean", settings["image_mean"], config.num_channels) if normalized else (0.0,),
            _numbers("image_std", settings["image_std"], config.num_channels) if normalized else (1.0,),
        )

    def to_dict(self) -> dict[str, object]:
        """The preprocessor_config.json of these settings, which transformers reads too."""
        kind = "CLIP" if isinstance(self.size, int) else "DeiT" if self.do_center_crop else "ViT"
        document: dict[str, object] = {
            "image_processor_type": f"{kind}ImageProcessor",
            "do_resize": self.size is not None,
            "do_center_crop": self.do_center_crop,
            "do_rescale": True,
            "do_normalize": True,
            "resample": self.resample,
            "rescale_factor": self.rescale_factor,
            "image_mean": list(self._per_channel(self.image_mean)),
            "image_std": list(self._per_channel(self.image_std)),
        }
        if self.size is not None:
            document["size"] = {"shortest_edge": self.size} if isinstance(self.size, int) else _document(self.size)
        if self.do_center_crop:
            document["crop_size"] = _document(self.image_size)
        return document

    def count_resized(self, images: Sequence[ImageExample]) -> int:
        """The number of images that have to be resized."""
        return sum(image.pixels.shape[:2] != self.image_size for image in images)

    def pixels(self, image: ImageExample) -> Tensor:
        """The pixels of an image, resized and cropped: (channels, height, width), 0 to 255."""
        pixels: Any = image.pixels
        if pixels.ndim == 2 and self.num_channels == 3:
            pixels = np.repeat(pixels[..., None], 3, axis=-1)
        elif pixels.ndim == 3 and self.num_channels == 1:
            pixels = pixels.mean(-1, dtype=np.float32).astype(np.uint8)
        if self.size is not None:
            pixels = _resized(pixels, self._resized_size(pixels.shape[:2], image.name), self.resample)
        if self.do_center_crop:
            pixels = _cropped(pixels, self.image_size)
        if pixels.shape[:2] != self.image_size:
            raise InputError(
                f"{image.name} has {pixels.shape[:2]} pixels; this model reads {self.image_size}, unresized"
            )
        tensor = torch.from_numpy(np.array(pixels))
        return tensor[None] if tensor.ndim == 2 else tensor.permute(2, 0, 1)

    def normalize(self, pixels: Tensor) -> Tensor:
        """The values that the model reads from pixels (..., channels, height, width), 0 to 255."""
        mean, std = (
            torch.tensor(values, device=pixels.device)[:, None, None] for values in (self.image_mean, self.image_std)
        )
        return (pixels.float() * self.rescale_factor - mean) / std

    def _resized_size(self, shape: tuple[int, int], name: str) -> tuple[int, int]:
        if not isinstance(self.size, int):
            assert self.size is not None
            return self.size
        short, long = sorted(shape)
        length = int(self.size * long / short)
        if self.size * length > MAX_PIXELS:
            raise InputError(
                f"{name} has {shape[0]:,} x {shape[1]:,} pixels; with a shortest edge of {self.size} it has more "
                f"than {MAX_PIXELS:,}. Cut it to a less narrow shape"
            )
        return (self.size, length) if shape[0] <= shape[1] else (length, self.size)

    def _per_channel(self, values: tuple[float, ...]) -> tuple[float, ...]:
        return values * self.num_channels if len(values) == 1 else values


def read_image_processor(folder: Path, config: Any) -> ImageProcessor:
    """The processor in a model's folder; without such a file, that of the family."""
    path = folder / PROCESSOR_FILE
    document = read_json(path) if path.is_file() else {}
    try:
        return ImageProcessor.from_dict(document, config)
    except InputError as error:
        raise InputError(f"{path}: {error}; correct it, or remove the file") from None


def image_processor_of(model: nn.Module) -> ImageProcessor:
    """The processor that a model was loaded with; that of its family if it is new."""
    processor: ImageProcessor | None = vars(model).get("image_processor")
    return ImageProcessor.from_dict({}, model.config) if processor is None else processor


def _size(name: str, value: Any, *, square: bool) -> tuple[int, int] | int:
    """A (height, width), or the length of the shortest edge."""
    match value:
        case {"height": int(height), "width": int(width)}:
            found: tuple[int, ...] = height, width
        case {"shortest_edge": int(edge)} if value.get("longest_edge") is None:
            found, square = (edge,), False
        case int(edge):
            found = (edge, edge) if square else (edge,)
        case [int(height), int(width)]:
            found = height, width
        case _:
            found = ()
    if not found or min(found) < 1 or math.prod(found) > MAX_PIXELS:
        raise InputError(f"{name} is {str(value)[:60]}; expected a height and a width, or a shortest edge")
    return found[0] if len(found) == 1 else (found[0], found[1])


def _numbers(name: str, value: Any, count: int) -> tuple[float, ...]:
    """One number, or one for each of `count` channels; those to divide by are not 0."""
    numbers = value if isinstance(value, list | tuple) else [value]
    valid = all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers)
    if not valid or len(numbers) not in (1, count) or (name == "image_std" and 0 in numbers):
        raise InputError(f"{name} is {str(value)[:60]}; expected a number, or {count} for as many channels")
    return tuple(map(float, numbers))


def _document(size: tuple[int, int]) -> dict[str, int]:
    return {"height": size[0], "width": size[1]}


def _resized(pixels: Pixels, size: tuple[int, int], resample: int) -> Pixels:
    if pixels.shape[:2] == size:
        return pixels
    try:
        from PIL import Image
    except ImportError:
        raise InputError(
            "an image of another size than the model's needs Pillow: pip install 'regard[images]'"
        ) from None
    resized = Image.fromarray(np.ascontiguousarray(pixels)).resize(size[::-1], Image.Resampling(resample))
    return np.asarray(resized, dtype=np.uint8)


def _cropped(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """The center of an image, with black edges where it is smaller."""
    result = np.zeros((*size, *pixels.shape[2:]), dtype=np.uint8)
    starts = [(have - want) // 2 for have, want in zip(pixels.shape, size, strict=False)]
    source = tuple(slice(max(start, 0), start + want) for start, want in zip(starts, size, strict=True))
    center = pixels[source]
    target = tuple(
        slice(max(-start, 0), max(-start, 0) + length) for start, length in zip(starts, center.shape, strict=False)
    )
    result[target] = center
    return result
