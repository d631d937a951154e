"""Model folders: reading every format, detecting every kind of damage, and atomic saves."""

from __future__ import annotations

import json
import os
import random
import resource
import stat
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from regard.checkpoints.files import read_tensor_file, read_tensors, verify, write_folder
from regard.errors import InputError, RegardError
from tests.crashes import Crash, die_after

FILES = {"config.json": b'{"model_type": "bert"}\n', "vocab.txt": b"[PAD]\n[UNK]\n", "1_Pooling/config.json": b"{}\n"}


def some_tensors(seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tensors = {f"layer.{i}.weight": torch.randn(4, 6, generator=generator) for i in range(4)}
    return {
        **tensors,
        "half": torch.randn(3, generator=generator).half(),
        "brain": torch.ones(2, dtype=torch.bfloat16),
        "positions": torch.arange(5),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
    }


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), name


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Reading


def test_a_single_file_is_memory_mapped_and_never_modified(tmp_path: Path) -> None:
    save_file(some_tensors(), tmp_path / "model.safetensors")
    before = (tmp_path / "model.safetensors").read_bytes()
    tensors = read_tensors(str(tmp_path))
    assert_same(tensors, some_tensors())
    tensors["layer.0.weight"].zero_()
    assert (tmp_path / "model.safetensors").read_bytes() == before


def shard(folder: Path, *, pickles: bool) -> dict[str, torch.Tensor]:
    """Write two shards and their index in Hugging Face's layout."""
    tensors = some_tensors()
    stem, suffix = ("pytorch_model", "bin") if pickles else ("model", "safetensors")
    where = {name: f"{stem}-0000{i % 2 + 1}-of-00002.{suffix}" for i, name in enumerate(tensors)}
    for file in set(where.values()):
        part = {name: tensors[name] for name in tensors if where[name] == file}
        torch.save(part, folder / file) if pickles else save_file(part, folder / file)
    (folder / f"{stem}.{suffix}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return tensors


@pytest.mark.parametrize("pickles", [False, True])
def test_shards(tmp_path: Path, pickles: bool) -> None:
    tensors = shard(tmp_path, pickles=pickles)
    assert_same(read_tensors(tmp_path), tensors)
    second = next(path for path in tmp_path.iterdir() if "00002-of" in path.name)
    original = second.read_bytes()
    second.write_bytes(original[: len(original) // 2])
    with pytest.raises(InputError, match=rf"{second.name}: .*cut short; download or copy it again"):
        read_tensors(tmp_path)
    second.unlink()
    with pytest.raises(InputError, match=rf"the folder lacks '{second.name}'"):
        read_tensors(tmp_path)


@pytest.mark.parametrize("pickles", [False, True])
def test_a_tensor_in_the_index_but_in_no_shard(tmp_path: Path, pickles: bool) -> None:
    shard(tmp_path, pickles=pickles)
    path = next(tmp_path.glob("*.index.json"))
    index = json.loads(path.read_text())
    index["weight_map"]["layer.9.weight"] = index["weight_map"]["layer.0.weight"]
    path.write_text(json.dumps(index))
    with pytest.raises(InputError, match=r"00001-of-00002.*: does not contain 'layer\.9\.weight'"):
        read_tensors(tmp_path)


def test_an_index_cannot_point_outside_the_folder_by_name_or_link(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside.safetensors", tmp_path / "model"
    save_file({"a": torch.ones(2)}, outside)
    folder.mkdir()
    index = folder / "model.safetensors.index.json"
    for name in ("../outside.safetensors", str(outside)):
        index.write_text(json.dumps({"weight_map": {"a": name}}))
        with pytest.raises(InputError, match="refused: tensor 'a' is listed in"):
            read_tensors(folder)
    index.write_text(json.dumps({"weight_map": {"a": "link.safetensors"}}))
    (folder / "link.safetensors").symlink_to(outside)
    with pytest.raises(InputError, match=r"link\.safetensors: refused: a link that leaves the folder"):
        read_tensors(folder)
    cache = tmp_path / "models--user--tiny"
    (cache / "blobs").mkdir(parents=True)
    (cache / "snapshots").mkdir()
    outside.rename(cache / "blobs" / "0123")
    folder.rename(cache / "snapshots" / "abcd")
    link = cache / "snapshots" / "abcd" / "link.safetensors"
    link.unlink()
    link.symlink_to("../../blobs/0123")
    assert read_tensors(link.parent)["a"].tolist() == [1, 1]


def test_folders_without_weights(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none: no such folder"):
        read_tensors(tmp_path / "none")
    with pytest.raises(InputError, match=r"expected one of model\.safetensors, .* found nothing"):
        read_tensors(tmp_path)
    (tmp_path / "tf_model.h5").touch()
    with pytest.raises(InputError, match=r"found tf_model\.h5\. Convert other formats"):
        read_tensors(tmp_path)


def test_every_truncation_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file(some_tensors(), path)
    original = path.read_bytes()
    cuts = sorted({0, 1, 7, 8, 9, len(original) - 1, *random.Random(0).sample(range(len(original)), 60)})
    for cut in cuts:
        path.write_bytes(original[:cut])
        with pytest.raises(InputError, match=r"model\.safetensors: .*damaged or cut"):
            read_tensors(tmp_path)
    assert len(cuts) >= 60


def test_a_damaged_header_never_crashes(tmp_path: Path) -> None:
    """Without checksums some flips only change a name or a number; the only error allowed is an InputError."""
    path = tmp_path / "model.safetensors"
    save_file(some_tensors(), path)
    original, rng = path.read_bytes(), random.Random(1)
    refused = 0
    for _ in range(200):
        damaged = bytearray(original)
        damaged[rng.randrange(8 + int.from_bytes(original[:8], "little"))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            read_tensors(tmp_path)
        except InputError:
            refused += 1
    assert refused > 100


# Checksums


@pytest.mark.parametrize("part", ["header", "payload", "config.json", "checksums.json"])
def test_every_flipped_bit_is_found(tmp_path: Path, part: str) -> None:
    write_folder(tmp_path, tensors=some_tensors(), files=FILES)
    path = tmp_path / (part if "." in part else "model.safetensors")
    original, rng = path.read_bytes(), random.Random(2)
    split = 8 + int.from_bytes(original[:8], "little")
    offsets = {"header": range(split), "payload": range(split, len(original))}.get(part, range(len(original) - 1))
    for _ in range(60):
        damaged = bytearray(original)
        damaged[rng.choice(offsets)] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(InputError) as caught:
            read_tensors(tmp_path)
        assert str(path if part != "checksums.json" else tmp_path) in str(caught.value)
    path.write_bytes(original)
    assert_same(read_tensors(tmp_path), some_tensors())


def test_checksum_errors_name_missing_and_added_files(tmp_path: Path) -> None:
    write_folder(tmp_path, tensors=some_tensors(), files=FILES, shard_bytes=200)
    assert set(verify(tmp_path)) == set(contents(tmp_path)) - {"checksums.json"}
    save_file({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"model\.safetensors: not listed in checksums\.json"):
        read_tensors(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(InputError, match=r"vocab\.txt: missing, but listed in checksums\.json"):
        read_tensors(tmp_path)
    (tmp_path / "checksums.json").unlink()
    assert verify(tmp_path) == {}
    assert_same(read_tensors(tmp_path), some_tensors())


@pytest.mark.parametrize("entry", [{"../x": "sha256:0"}, {"/etc/passwd": "sha256:0"}, {"a": 3}, {"a": "md5:0"}])
def test_malformed_checksum_entries(tmp_path: Path, entry: dict[str, object]) -> None:
    write_folder(tmp_path, tensors={}, files={})
    (tmp_path / "checksums.json").write_text(json.dumps(entry))
    with pytest.raises(InputError, match=r"checksums\.json: expected file names with 'sha256:"):
        read_tensors(tmp_path)


# Writing


@pytest.mark.parametrize(("shard_bytes", "shards"), [(5_000_000_000, 1), (250, 2), (1, 9)])
def test_save_load_save_gives_the_same_bytes(tmp_path: Path, shard_bytes: int, shards: int) -> None:
    tensors = some_tensors()
    write_folder(tmp_path / "one", tensors=tensors, files=FILES, shard_bytes=shard_bytes)
    loaded = read_tensors(tmp_path / "one")
    assert_same(loaded, tensors)
    write_folder(
        tmp_path / "two",
        tensors=dict(reversed(loaded.items())),
        files=dict(reversed(FILES.items())),
        shard_bytes=shard_bytes,
    )
    write_folder(tmp_path / "two", tensors=read_tensors(tmp_path / "two"), files=FILES, shard_bytes=shard_bytes)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert set(contents(tmp_path / "one")) >= {*FILES, "checksums.json"}
    assert len(list((tmp_path / "one").glob("*.safetensors"))) == shards


def test_a_saved_folder_is_readable_by_other_libraries(tmp_path: Path) -> None:
    write_folder(tmp_path / "f", tensors=some_tensors(), files=FILES)
    with safe_open(tmp_path / "f" / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
    (tmp_path / "plain").touch()
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "f").iterdir() if path.is_file()}
    assert modes == {stat.S_IMODE((tmp_path / "plain").stat().st_mode)}


def test_tied_transposed_and_trained_tensors(tmp_path: Path) -> None:
    matrix = torch.nn.Parameter(torch.randn(4, 3))
    tensors = {"a": matrix, "tied": matrix, "turned": matrix.T, "row": matrix[1], "wide": torch.ones(1).expand(5)}
    write_folder(tmp_path, tensors=tensors, files={})
    assert_same(read_tensors(tmp_path), {name: tensor.detach() for name, tensor in tensors.items()})


def test_an_earlier_save_is_removed_and_other_files_are_preserved(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    mine = {"notes.txt": b"mine", "runs/log": b"mine", "pytorch_model.bin": b"mine"}
    for name, data in mine.items():
        (tmp_path / name).write_bytes(data)
    write_folder(tmp_path, tensors=some_tensors(0), files=FILES)
    write_folder(tmp_path, tensors=some_tensors(1), files={"config.json": b"{}"}, shard_bytes=250)
    assert not {"model.safetensors", "vocab.txt", "1_Pooling/config.json"} & set(contents(tmp_path))
    assert_same(read_tensors(tmp_path), some_tensors(1))
    write_folder(tmp_path, tensors=some_tensors(2), files={"config.json": b"{}"})
    assert_same(read_tensors(tmp_path), some_tensors(2))
    assert set(contents(tmp_path)) == {"config.json", "model.safetensors", "checksums.json", *mine}
    assert mine.items() <= contents(tmp_path).items()


@pytest.mark.parametrize(
    "name", ["../x", "/x", "a\\b", "", ".hidden", "checksums.json", "model.safetensors", "sub/../../x"]
)
def test_invalid_file_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="is not allowed as the name of a file"):
        write_folder(tmp_path / "f", tensors={}, files={name: b""})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("large", ["tensors", "files"])
def test_a_full_disk_leaves_the_old_folder(tmp_path: Path, large: str) -> None:
    write_folder(tmp_path / "f", tensors=some_tensors(), files=FILES)
    before = contents(tmp_path)
    tensors = {"a": torch.zeros(50_000)} if large == "tensors" else {}
    files = {"vocab.txt": bytes(200_000)} if large == "files" else {}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        for folder in (tmp_path / "f", tmp_path / "new"):
            with pytest.raises(RegardError, match=rf"{folder}: cannot be written: .* unchanged"):
                write_folder(folder, tensors=tensors, files=files)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert contents(tmp_path) == before and os.listdir(tmp_path) == ["f"]
    assert_same(read_tensors(tmp_path / "f"), some_tensors())


def test_a_crash_at_any_step_leaves_the_old_or_the_new_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one file to shards and other files: a reader never sees a mix of files from both saves."""
    outcomes = []
    for step in range(200):
        folder = tmp_path / str(step)
        write_folder(folder, tensors=some_tensors(0), files={"config.json": b"old", "vocab.txt": b"old"})
        with monkeypatch.context() as patch:
            die_after(patch, step)
            try:
                write_folder(folder, tensors=some_tensors(1), files={"config.json": b"new"}, shard_bytes=250)
            except Crash:
                pass
            else:
                break
        tensors = read_tensors(folder)
        new = (folder / "config.json").read_bytes() == b"new"
        assert (folder / "vocab.txt").exists() is not new
        assert_same(tensors, some_tensors(1 if new else 0))
        outcomes.append(new)
    assert outcomes == sorted(outcomes) and set(outcomes) == {False, True} and len(outcomes) > 10


def test_weights_that_do_not_fit_into_memory_are_not_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"weight": torch.zeros(1 << 26)}, path)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 26), before[1]))
    try:
        with pytest.raises(RegardError, match="of weights do not fit into memory") as caught:
            read_tensor_file(path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert not isinstance(caught.value, InputError)
