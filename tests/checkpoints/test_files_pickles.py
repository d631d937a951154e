"""Malicious, damaged and malformed `pytorch_model.bin` files: no code runs, and the message says what to do."""

from __future__ import annotations

import collections
import io
import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from regard.checkpoints.files import read_pickle, read_tensors
from regard.errors import InputError

TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4, dtype=torch.int64)}


class Calls:
    """Pickles to a call of `function`, which an unrestricted unpickler makes."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


class Module(torch.nn.Module):
    """A pickled module that creates the marker file when its state is restored."""

    def __init__(self, marker: Path) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.marker = str(marker)

    def __setstate__(self, state: dict[str, object]) -> None:
        Path(str(state["marker"])).touch()


def archive(path: Path, pickled: bytes, **more: bytes) -> None:
    """Write a zip archive in torch.save's layout that contains `pickled`."""
    with zipfile.ZipFile(path, "w") as file:
        for name, data in {"data.pkl": pickled, "version": b"3\n", "byteorder": b"little", **more}.items():
            file.writestr(f"archive/{name}", data)


def tar_of(path: Path, pickled: bytes) -> None:
    with tarfile.open(path, "w") as file:
        for name in ("storages", "tensors", "pickle"):
            entry = tarfile.TarInfo(name)
            entry.size = len(pickled)
            file.addfile(entry, io.BytesIO(pickled))


def opcodes(marker: Path) -> bytes:
    """A call of os.system with protocol 0 opcodes, which current picklers no longer write."""
    return b"(S'touch " + str(marker).encode() + b"'\nios\nsystem\n."


HOSTILE: dict[str, Callable[[Path, Path], object]] = {
    "os.system": lambda path, marker: torch.save(Calls(os.system, f"touch {marker}"), path),
    "in a dictionary": lambda path, marker: torch.save({**TENSORS, "c": Calls(os.system, f"touch {marker}")}, path),
    "in a key": lambda path, marker: torch.save({(Calls(os.mkdir, str(marker)),): 1}, path),
    "eval": lambda path, marker: torch.save(Calls(eval, f"open({str(marker)!r}, 'w')"), path),
    "open": lambda path, marker: torch.save(Calls(open, str(marker), "w"), path),
    "torch's own": lambda path, marker: torch.save(Calls(torch.save, 1, str(marker)), path),
    "whole module": lambda path, marker: torch.save(Module(marker), path),
    "ordered": lambda path, marker: torch.save(collections.OrderedDict(a=Calls(os.mkdir, str(marker))), path),
    "legacy": lambda path, marker: torch.save(
        Calls(os.system, f"touch {marker}"), path, _use_new_zipfile_serialization=False
    ),
    "legacy module": lambda path, marker: torch.save(Module(marker), path, _use_new_zipfile_serialization=False),
    "plain pickle": lambda path, marker: path.write_bytes(pickle.dumps(Calls(os.system, f"touch {marker}"))),
    "protocol 0": lambda path, marker: path.write_bytes(pickle.dumps(Calls(os.system, f"touch {marker}"), 0)),
    "old opcodes": lambda path, marker: path.write_bytes(opcodes(marker)),
    "old opcodes in an archive": lambda path, marker: archive(path, opcodes(marker)),
    "as TorchScript": lambda path, marker: archive(
        path, pickle.dumps(Calls(os.system, f"touch {marker}"), 2), **{"constants.pkl": opcodes(marker)}
    ),
    "in a tar": lambda path, marker: tar_of(path, pickle.dumps(Calls(os.system, f"touch {marker}"), 2)),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_malicious_files_are_refused_and_no_code_runs(tmp_path: Path, kind: str) -> None:
    marker = tmp_path / "marker"
    HOSTILE[kind](tmp_path / "pytorch_model.bin", marker)
    with pytest.raises(InputError, match=r"pytorch_model\.bin: refused: .* nothing in it was executed") as caught:
        read_tensors(tmp_path)
    assert not marker.exists()
    assert "safetensors.torch.save_file" in str(caught.value)


def test_the_error_names_the_forbidden_global(tmp_path: Path) -> None:
    torch.save(Calls(os.system, "true"), tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"it refers to \w+\.system, or"):
        read_pickle(tmp_path / "pytorch_model.bin")


def test_an_unrestricted_unpickler_would_run_the_code(tmp_path: Path) -> None:
    """Shows that the tests above can fail."""
    HOSTILE["in a dictionary"](tmp_path / "x.bin", tmp_path / "marker")
    torch.load(tmp_path / "x.bin", weights_only=False)
    assert (tmp_path / "marker").exists()


def test_a_pickle_named_safetensors(tmp_path: Path) -> None:
    HOSTILE["os.system"](tmp_path / "model.safetensors", tmp_path / "marker")
    with pytest.raises(InputError, match=r"model\.safetensors: cannot be read as safetensors"):
        read_tensors(tmp_path)
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("modern", [True, False])
def test_reads_both_formats_of_torch_save(tmp_path: Path, modern: bool) -> None:
    path = tmp_path / "pytorch_model.bin"
    tied = {**TENSORS, "c": torch.nn.Parameter(TENSORS["a"])}
    torch.save(collections.OrderedDict(tied), path, _use_new_zipfile_serialization=modern)
    before = path.read_bytes()
    tensors = read_tensors(tmp_path)
    assert list(tensors) == ["a", "b", "c"]
    assert all(torch.equal(tensors[name], tied[name]) for name in tied)
    assert type(tensors["c"]) is torch.Tensor and not tensors["c"].requires_grad
    tensors["a"].zero_()
    assert path.read_bytes() == before, "a memory mapped tensor must not write through"


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ([torch.ones(2)], "found list"),
        (torch.ones(2), "found Tensor"),
        ({"state_dict": TENSORS, "epoch": 3}, "found dict at 'state_dict'"),
        ({**TENSORS, "step": 3}, "found int at 'step'"),
        ({0: torch.ones(2)}, "found Tensor at 0"),
        ({"a": torch.ones(2, 2).to_sparse()}, "tensor 'a' is not a plain dense tensor"),
        ({"a": torch.ones(2, 2, device="meta")}, "tensor 'a' is not a plain dense tensor"),
    ],
)
def test_only_a_flat_dictionary_of_dense_tensors(tmp_path: Path, content: object, found: str) -> None:
    torch.save(content, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match=rf"pytorch_model\.bin: .*{found}"):
        read_tensors(tmp_path)


def test_a_zip_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin"
    torch.save(TENSORS, tmp_path / "good.bin")
    with zipfile.ZipFile(tmp_path / "good.bin") as good, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bomb:
        for entry in good.infolist():
            bomb.writestr(entry.filename, good.read(entry))
        bomb.writestr("good/data/9", bytes(100_000_000))
    assert path.stat().st_size < 200_000
    with pytest.raises(InputError, match="refused: an archive that grows"):
        read_pickle(path)


def test_a_tensor_that_claims_more_than_the_file_holds_is_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(1).expand(100_000, 100_000)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="claim 40,000,000,000 bytes"):
        read_tensors(tmp_path)


@pytest.mark.parametrize("modern", [True, False])
def test_every_truncation_is_refused_by_name(tmp_path: Path, modern: bool) -> None:
    path = tmp_path / "pytorch_model.bin"
    torch.save(TENSORS, path, _use_new_zipfile_serialization=modern)
    original = path.read_bytes()
    for cut in range(0, len(original), len(original) // 30 + 1):
        path.write_bytes(original[:cut])
        with pytest.raises(InputError, match=r"pytorch_model\.bin: .*(cut short|damaged)"):
            read_tensors(tmp_path)
