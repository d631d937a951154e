"""The state of one studio: its models, its workspace, the training job and the images sent by the page."""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass, field
from pathlib import PurePath

from regard.errors import InputError
from regard.server.model_registry import ModelRegistry
from regard.server.training_jobs import TrainingJobs
from regard.server.workspace import Workspace

MAX_IMAGE_BYTES = 8_000_000
MAX_IMAGES = 8
MAX_TOTAL_BYTES = 16_000_000  # of all images, so that fewer large ones are kept


class UploadedImages:
    """The most recent images of the page, in memory."""

    def __init__(self) -> None:
        self._images: dict[str, bytes] = {}

    def add(self, content: str, name: str) -> str:
        """Check and keep a PNG or JPEG file, given in base64; returns the key of `get`."""
        name = PurePath(name).name
        if len(content) > MAX_IMAGE_BYTES * 4 // 3 + 4:
            raise InputError(
                f"{name} is too large; the studio accepts images of {MAX_IMAGE_BYTES:,} bytes. Make it smaller"
            )
        try:
            image = base64.b64decode(content, validate=True)
        except (binascii.Error, ValueError):
            raise InputError("'content' is not base64") from None
        from regard.interpret.images import check_image

        check_image(image, name)
        key = f"{hashlib.sha256(image).hexdigest()[:16]}/{name}"
        images = self._images
        images.pop(key, None)
        images[key] = image
        while len(images) > MAX_IMAGES or sum(map(len, images.values())) > MAX_TOTAL_BYTES:
            del images[next(iter(images))]
        return key

    def get(self, key: str) -> tuple[bytes, str]:
        """The image and its file name."""
        name = key.partition("/")[2]
        image = self._images.get(key)
        if image is None:
            raise InputError(
                f"the studio keeps the last {MAX_IMAGES} images, of {MAX_TOTAL_BYTES:,} bytes in all, until it ends; "
                f"send {name!r} again"
            )
        return image, name


@dataclass
class Studio:
    """What the views of one studio share."""

    models: ModelRegistry
    workspace: Workspace = field(default_factory=Workspace)
    training_jobs: TrainingJobs = field(default_factory=TrainingJobs)
    images: UploadedImages = field(default_factory=UploadedImages)
