"""The state of one studio: its models, its workspace, the training job and the images sent by the page.

The studio writes below one folder, chosen when it starts. The page can name files in that folder and in the paths given
with --data, and no others: neither an answer nor an error may quote any other file of this machine.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import ClassVar

from pydantic import BaseModel, Field

from regard.errors import InputError
from regard.models.family import can
from regard.server.studio.model_registry import ModelRegistry
from regard.server.studio.training import TrainingJobs
from regard.verbs.base import validated

FOLDER = "trained"  # in the current folder
MAX_FILES = 100  # uploads, directly in the folder
MAX_BYTES = 100_000_000  # of all uploads
PROJECT = (".git", "pyproject.toml")  # found in the root of a project


class Workspace:
    """`folder` is written to; `data` are files and folders that are only read."""

    def __init__(self, folder: str | os.PathLike[str] = FOLDER, data: Sequence[str] = ()) -> None:
        self.folder = Path(os.path.expanduser(folder))
        self.data = [Path(os.path.expanduser(path)) for path in data]

    def check(self) -> None:
        """Raise InputError when the folder is not one to fill with models, or a path of `data` does not exist."""
        root, here, home = self.folder.resolve(), Path.cwd().resolve(), Path.home().resolve()
        problem = ""
        if root == Path(root.anchor):
            problem = "the root of the file system"
        elif root == home or root in home.parents:
            problem = "the home folder, or above it"
        elif root == here or root in here.parents:
            problem = "the folder where the studio was started, or above it"
        elif any((root / name).exists() for name in PROJECT):
            problem = "the root of a project"
        if problem:
            raise InputError(
                f"{self.folder} is {problem}; the studio needs a folder of its own to write to. Choose another, such "
                f"as --output {FOLDER}"
            )
        if root.exists() and not root.is_dir():
            raise InputError(f"{self.folder} is a file; expected a folder to write models to. Choose another --output")
        for path in self.data:
            if not path.exists():
                raise InputError(f"{path}: no such file or folder; --data expects examples that the page may name")

    def output(self, name: str) -> Path:
        """The folder for a new model of this name. Raises InputError when it is not below the workspace folder."""
        root = self.folder.resolve()
        path = next((path for path in _resolve(name, [self.folder]) if path != root), None)
        if path is None:
            raise InputError(
                f"{name[:80]!r} is not below {self.folder}, where the studio writes. Give a plain name, or restart the "
                "studio with another --output"
            )
        return self.folder / path.relative_to(root)

    def readable(self, name: str) -> Path:
        """A file or folder named by the page, existing or not. Raises InputError when it must not be read."""
        paths = _resolve(name, [self.folder, *self.data])
        if not paths:
            raise InputError(
                f"{name[:80]}: the page may name files below {self.folder}, and those given with --data. Send the "
                f"file instead, or restart with: regard studio --data {shlex.quote(name[:200])}"
            )
        return next((path for path in paths if path.exists()), paths[0])

    def check_quota(self, size: int) -> None:
        """Raise InputError when an upload of `size` bytes would exceed the quota."""
        try:
            with os.scandir(self.folder) as entries:
                sizes = [one.stat().st_size for one in entries if one.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return
        if len(sizes) >= MAX_FILES or sum(sizes) + size > MAX_BYTES:
            raise InputError(
                f"{self.folder} holds {len(sizes):,} files of {sum(sizes):,} bytes; uploads may be {MAX_FILES} files "
                f"of {MAX_BYTES:,} bytes in all. Delete some, or give a path with --data"
            )


def _resolve(name: str, folders: Sequence[Path]) -> list[Path]:
    """Resolve a name, with its links, relative to the current folder and then to each of `folders`; keep the paths that
    are in one of them."""
    path = Path(os.path.expanduser(name))
    try:
        roots = [folder.resolve() for folder in folders]
        candidates = [path.resolve(), *((root / path).resolve() for root in roots if not root.is_file())]
    except (OSError, ValueError, RuntimeError):  # an impossible file name, or a cycle of links
        raise InputError(f"{name[:80]!r} cannot be the name of a file") from None
    return [one for one in candidates if any(one == root or root in one.parents for root in roots)]


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
    """The most recent images of the page, in memory."""

    def __init__(self) -> None:
        self._images: dict[str, bytes] = {}

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
        return isinstance(key, str) and IMAGE_KEY.fullmatch(key) is not None

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


@dataclass
class Studio:
    """What the views of one studio share."""

    server: ClassVar[str] = "the studio"
    models: ModelRegistry
    workspace: Workspace = field(default_factory=Workspace)
    training_jobs: TrainingJobs = field(default_factory=TrainingJobs)
    images: UploadedImages = field(default_factory=UploadedImages)
    max_items: int = 20_000


class BranchRequest(BaseModel):
    """`ids` are the tokens after the prompt."""

    model: str
    prompt: str = Field("", max_length=20_000)
    ids: list[int] = Field(max_length=10_000)


class BranchPrompt(BaseModel):
    """The prompt that continues from a branch of a generated text."""

    prompt: str


def branch_prompt(studio: Studio, arguments: Mapping[str, object]) -> BranchPrompt:
    """The text of a branch: decoding needs the tokens before it, since a character may have several tokens."""
    from regard.inference.generation.text_generator import REPLACEMENT
    from regard.text import Tokenizer

    branch = validated(BranchRequest, arguments)
    loaded = studio.models.entry(branch.model).loaded
    if loaded is None or not can(loaded.model, "causal-lm") or not isinstance(tokenizer := loaded.tokenizer, Tokenizer):
        raise InputError(f"{branch.model} does not continue its prompt, so there is no prompt for a branch")
    if not all(0 <= token < tokenizer.size for token in branch.ids):
        raise InputError(f"'ids' should be numbers of tokens below {tokenizer.size:,}")
    before = tokenizer.encode(branch.prompt, add_special_tokens=False).ids
    new = tokenizer.decode([*before, *branch.ids])[len(tokenizer.decode(before)) :]
    if new.endswith(REPLACEMENT):
        raise InputError("this branch ends inside a character; go on from its next token")
    return BranchPrompt(prompt=branch.prompt + new)
