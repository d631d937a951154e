"""Images that the page has sent, by the keys with which requests name them.

The studio keeps the most recent ones in memory; with a verb that names some it sends them to the process of a model.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory

from pydantic import BaseModel, Field

from regard.errors import InputError
from regard.verbs.base import validated

MAX_IMAGE_BYTES = 8_000_000
MAX_IMAGES = 8
IMAGE_KEY = re.compile(r"[0-9a-f]{16}/[^/\n]+")  # the start of its hash, and the name of its file
MAX_TOTAL_BYTES = 16_000_000  # of all images, so that fewer large ones are kept


class ImageUpload(BaseModel):
    """A PNG or JPEG file of the page, in base64."""

    name: str = Field("image", max_length=1000)
    content: str


class ImageKey(BaseModel):
    """By which requests refer to an uploaded image."""

    image: str


class UploadedImages:
    """The most recent images of the page, in memory. A server for programs keeps none: to it no string is a key."""

    def __init__(self, images: Mapping[str, bytes] | None = None) -> None:
        self._kept = images is not None
        self._images = dict(images or {})

    def named_in(self, arguments: Mapping[str, object]) -> dict[str, bytes] | None:
        """The images that arguments name; None of a server for programs."""
        if not self._kept:
            return None
        texts = [value for value in arguments.values() if isinstance(value, str)]
        return {text: self._images[text] for text in texts if text in self._images}

    def add(self, arguments: Mapping[str, object]) -> ImageKey:
        """Check and keep an `ImageUpload`."""
        upload = validated(ImageUpload, arguments)
        name, content = PurePath(upload.name).name, upload.content
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
        return ImageKey(image=key)

    def has(self, key: object) -> bool:
        """Whether it is the key of an image, perhaps of one that is no longer kept."""
        return self._kept and isinstance(key, str) and IMAGE_KEY.fullmatch(key) is not None

    @contextmanager
    def file(self, key: str) -> Iterator[Path]:
        """The image as a temporary file."""
        name = key.partition("/")[2]
        image = self._images.get(key)
        if image is None:
            raise InputError(
                f"the studio keeps the last {MAX_IMAGES} images, of {MAX_TOTAL_BYTES:,} bytes in all, until it ends; "
                f"send {name!r} again"
            )
        with TemporaryDirectory() as folder:
            path = Path(folder) / "image.png"  # the client's name may be none that a file can have
            path.write_bytes(image)
            try:
                yield path
            except InputError as error:
                raise InputError(str(error).replace(str(path), name)) from None
