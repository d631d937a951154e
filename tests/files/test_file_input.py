"""FIFOs, devices, sockets and folders are rejected immediately wherever a regular file is expected."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regard.checkpoints.files import read_tensors, verify
from regard.data.corpus import read_documents
from regard.data.files import open_bytes, open_text
from regard.data.readers import read_image_examples, read_tagged_examples
from regard.errors import InputError
from regard.files.durable_folder import FolderRecord
from regard.files.json_files import read_json
from regard.text import Tokenizer
from regard.training.recipes.finetuning.config import FineTuningConfig

pytestmark = [pytest.mark.skipif(os.name != "posix", reason="needs FIFOs"), pytest.mark.timeout(60)]


def text(path: Path) -> object:
    with open_text(path) as lines:
        return list(lines)


def content(path: Path) -> object:
    with open_bytes(path) as file:
        return file.read()


# The reader of each kind of file, and the expected file name.
READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "text": ("a.txt", text),
    "bytes": ("a.gz", content),
    "tagged": ("a.conll", read_tagged_examples),
    "image": ("a.png", read_image_examples),
    "idx": ("a-idx3-ubyte", read_image_examples),
    "documents": ("a.txt", lambda path: list(read_documents(path))),
    "settings": ("a.toml", FineTuningConfig.load),
    "json": ("config.json", read_json),
    "record": ("regard.json", lambda path: FolderRecord.read(path.parent)),
    "safetensors": ("model.safetensors", lambda path: read_tensors(path.parent)),
    "pickle": ("pytorch_model.bin", lambda path: read_tensors(path.parent)),
    "checksums": ("checksums.json", lambda path: verify(path.parent)),
    "tokenizer": ("tokenizer.json", lambda path: Tokenizer.open(path.parent)),
    "vocabulary": ("vocab.txt", lambda path: Tokenizer.open(path.parent)),
}


@pytest.fixture(params=["fifo", "device", "socket", "folder"])
def make_special_file(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Creates a FIFO, device, socket or folder with a given name."""
    opened: list[socket.socket] = []

    def make(name: str) -> Path:
        path = tmp_path / name
        if request.param == "fifo":
            os.mkfifo(path)
        elif request.param == "device":
            path.symlink_to("/dev/zero")
        elif request.param == "folder":
            path.mkdir()
        else:
            opened.append(socket.socket(socket.AF_UNIX))
            here = os.getcwd()
            os.chdir(tmp_path)  # the name of a socket must be short
            try:
                opened[-1].bind(name)
            finally:
                os.chdir(here)
        return path

    yield make
    for one in opened:
        one.close()


@pytest.mark.parametrize("kind", READERS)
def test_only_regular_files_are_read(kind: str, make_special_file: Callable[[str], Path]) -> None:
    name, read = READERS[kind]
    path = make_special_file(name)
    if kind in ("image", "idx") and path.is_dir():
        pytest.skip("a folder of pictures")
    if kind == "documents" and path.is_dir():
        pytest.skip("a folder of texts")
    with pytest.raises(InputError):
        read(path)


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_standard_input_is_accepted(name: str) -> None:
    program = "import sys\nfrom regard.data.files import open_text\nwith open_text(sys.argv[1]) as f: print(list(f))"
    found = subprocess.run(
        [sys.executable, "-c", program, name], input="one\ntwo\n", capture_output=True, text=True, timeout=200
    )
    assert found.stdout == "['one', 'two']\n", found.stderr


def test_fifo_is_named_in_the_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match=r"pipe is a FIFO.*expected a regular file"):
        text(tmp_path / "pipe")
    with pytest.raises(InputError, match=r"/dev/zero is a device.*expected a regular file"):
        text(Path("/dev/zero"))
