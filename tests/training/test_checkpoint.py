"""Checkpoints: any damage is reported, and the last good one survives a full disk, a crash or a kill."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import InputError, RegardError
from regard.files.json_files import json_bytes
from regard.training import checkpoint as module
from regard.training.checkpoint import Checkpoints, TrainingCheckpoint
from regard.training.distributed.shards import StoredTensor
from tests.crashes import Crash, die_after

FILES = ["checksums.json", "model.safetensors", "state.json"]


def content(step: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    generator = torch.Generator().manual_seed(step)
    tensors = {
        "model.weight": torch.randn(5, 3, generator=generator),
        "optimizer.0.weight.step": torch.tensor(float(step)),
        "random.cpu": torch.randint(256, (40,), generator=generator, dtype=torch.uint8),
        "half": torch.randn(7, generator=generator).bfloat16(),
    }
    return tensors, {"loss": 1 / (step + 1), "seen": [step, None, True], "data": {"épochs": 2}}


def assert_is(found: TrainingCheckpoint | None, step: int) -> None:
    assert found is not None and found.step == step
    tensors, state = content(step)
    assert found.state == state and found.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found.tensors[name].dtype == tensor.dtype and torch.equal(found.tensors[name], tensor), name


def save_checkpoints(folder: Path, *steps: int, keep: int = 2) -> Checkpoints:
    checkpoints = Checkpoints(folder, keep=keep)
    for step in steps:
        assert checkpoints.save(step, *content(step)) == folder / f"step-{step:09d}"
    return checkpoints


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def skipped_message(checkpoints: Checkpoints, step: int) -> str:
    """The message about the one damaged checkpoint that is newer than `step`."""
    messages: list[str] = []
    assert_is(checkpoints.latest(on_damaged=messages.append), step)
    (message,) = messages
    return message


def test_a_saved_checkpoint_is_read_back(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path / "run" / "checkpoints"))
    assert checkpoints.latest() is None
    checkpoint_path = checkpoints.save(1200, *content(1200))
    assert checkpoint_path == tmp_path / "run" / "checkpoints" / "step-000001200" and names(checkpoint_path) == FILES
    assert_is(checkpoints.latest(), 1200)
    checkpoints.save(1200, *content(1200))
    assert_is(Checkpoints(checkpoint_path.parent).latest(), 1200)
    (checkpoint_path.parent / "step-1").mkdir()
    (checkpoint_path.parent / "notes").touch()
    assert_is(checkpoints.latest(), 1200)


def test_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    for keep in (1, 3):
        save_checkpoints(tmp_path / str(keep), 2, 10, 999_999_999, 1_000_000_000, keep=keep)
        newest = ["step-000000010", "step-1000000000", "step-999999999"]
        assert names(tmp_path / str(keep)) == (newest if keep == 3 else newest[1:2])
        assert_is(Checkpoints(tmp_path / str(keep)).latest(), 1_000_000_000)


def test_only_intact_checkpoints_count_and_only_older_ones_are_deleted(tmp_path: Path) -> None:
    checkpoints = save_checkpoints(tmp_path, 1, 2, 9)
    assert names(tmp_path) == ["step-000000002", "step-000000009"]
    (tmp_path / "step-000000009" / "state.json").write_bytes(b"{}")
    assert "step-000000009" in skipped_message(checkpoints, 2)
    save_checkpoints(tmp_path, 3, 4)
    assert names(tmp_path) == ["step-000000003", "step-000000004", "step-000000009"]
    (tmp_path / "step-000000004" / "model.safetensors").write_bytes(b"")
    save_checkpoints(tmp_path, 5)
    assert names(tmp_path) == ["step-000000003", "step-000000005", "step-000000009"]
    save_checkpoints(tmp_path, 10)
    assert names(tmp_path) == ["step-000000005", "step-000000010"]


def test_a_damaged_checkpoint_is_replaced_when_its_step_comes_again(tmp_path: Path) -> None:
    checkpoints = save_checkpoints(tmp_path, 1, 2)
    for name in FILES:
        (tmp_path / "step-000000002" / name).unlink()
        assert name in skipped_message(checkpoints, 1)
        save_checkpoints(tmp_path, 2)
        assert_is(checkpoints.latest(), 2)


def test_all_damaged(tmp_path: Path) -> None:
    checkpoints = save_checkpoints(tmp_path, 1, 2)
    for step in (1, 2):
        (tmp_path / f"step-00000000{step}" / "state.json").write_bytes(b"{}")
    messages: list[str] = []
    with pytest.raises(RegardError, match=r"all .*2 .* damaged: .*-000000002/st.*; .*-000000001/state"):
        checkpoints.latest(on_damaged=messages.append)
    assert len(messages) == 2
    with pytest.raises(RegardError, match="all of its 2 checkpoints"):
        checkpoints.latest()


def test_a_folder_under_another_name(tmp_path: Path) -> None:
    checkpoints = save_checkpoints(tmp_path, 1, 2)
    (tmp_path / "step-000000002").rename(tmp_path / "step-000000003")
    assert "step-000000003/state.json: expected the state of step 3" in skipped_message(checkpoints, 1)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"betas": (0.9, 0.98)}, "comes? back as another value; use lists"),
        ({"seen": {1: 2}}, "come back as another value"),
        ({"loss": float("nan")}, "must be JSON: .*not JSON compliant"),
        ({"generator": torch.ones(2)}, "must be JSON: .*Tensor is not JSON"),
        ({"log": "x" * 1000}, r"larger than 900 bytes; keep large values as tensors"),
    ],
)
def test_a_state_that_is_not_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr(module, "STATE_BYTES", 900)
    checkpoints = save_checkpoints(tmp_path, 1)
    with pytest.raises(InputError, match=message):
        checkpoints.save(2, {}, state)
    assert names(tmp_path) == ["step-000000001"]


def test_invalid_arguments(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="keep is 0; expected how many"):
        Checkpoints(tmp_path, keep=0)
    for step in (-1, 10**18):
        with pytest.raises(InputError, match=f"step is {step}; expected"):
            Checkpoints(tmp_path).save(step, {}, {})


# Damage


def damages(checkpoint_path: Path, kind: str) -> list[tuple[str, bytes]]:
    """300 ways to damage a checkpoint: the name of a file and its damaged content."""
    rng, found = random.Random(kind), []
    original = {name: (checkpoint_path / name).read_bytes() for name in FILES}
    header = 8 + int.from_bytes(original["model.safetensors"][:8], "little")
    for i in range(300):
        name = FILES[i % 3] if kind != "header" else "model.safetensors"
        data = original[name]
        if kind == "truncation":  # for each file, once only the last byte is removed
            found.append((name, data[: len(data) - 1 if i < 3 else rng.randrange(len(data))]))
            continue
        offsets = range(header) if kind == "header" else range(header * (name == "model.safetensors"), len(data))
        at = offsets[-1] if i < 3 else rng.choice(offsets)
        found.append((name, data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]))
    return found


@pytest.mark.parametrize("kind", ["truncation", "header", "payload"])
def test_any_damage_is_reported_and_the_previous_checkpoint_is_used(tmp_path: Path, kind: str) -> None:
    checkpoints = save_checkpoints(tmp_path, 1, 2)
    checkpoint_path = tmp_path / "step-000000002"
    trials = damages(checkpoint_path, kind)
    assert len(trials) == 300
    for name, data in trials:
        original = (checkpoint_path / name).read_bytes()
        assert data != original
        (checkpoint_path / name).write_bytes(data)
        message = skipped_message(checkpoints, 1)
        assert str(checkpoint_path) in message and name in message
        (checkpoint_path / name).write_bytes(original)
    assert_is(checkpoints.latest(on_damaged=pytest.fail), 2)


def test_a_file_that_the_disk_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing_read(checkpoint_path: Path, *, verified: bool) -> dict[str, torch.Tensor | StoredTensor]:
        if checkpoint_path.name.endswith("2"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(checkpoint_path / "model.safetensors"))
        return read(checkpoint_path, verified=verified)

    read = module.read_stored
    checkpoints = save_checkpoints(tmp_path, 1, 2)
    monkeypatch.setattr(module, "read_stored", failing_read)
    assert "Input/output error" in skipped_message(checkpoints, 1)


# Untrusted folders


@pytest.mark.parametrize("name", FILES)
def test_a_link_in_place_of_a_file(tmp_path: Path, name: str) -> None:
    checkpoints = save_checkpoints(tmp_path / "run", 1, 2)
    checkpoint_path = tmp_path / "run" / "step-000000002" / name
    checkpoint_path.rename(tmp_path / name)
    checkpoint_path.symlink_to(tmp_path / name)
    assert f"{checkpoint_path}: refused: a link" in skipped_message(checkpoints, 1)


def test_a_link_in_place_of_a_checkpoint(tmp_path: Path) -> None:
    checkpoints = save_checkpoints(tmp_path / "run", 1)
    save_checkpoints(tmp_path / "other", 2)
    checkpoint_path = tmp_path / "run" / "step-000000002"
    checkpoint_path.symlink_to(tmp_path / "other" / checkpoint_path.name)
    assert f"{checkpoint_path}: expected the folder of a checkpoint, found a link" in skipped_message(checkpoints, 1)
    with pytest.raises(InputError, match="step-000000002: cannot be written: it is a link"):
        checkpoints.save(2, *content(2))
    save_checkpoints(tmp_path / "run", 3, 4, keep=1)
    assert checkpoint_path.is_symlink()
    assert_is(Checkpoints(tmp_path / "other").latest(), 2)


def checksum(path: Path) -> str:
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "sub/../../secret", "..", "notes.txt", "a\\..\\b", ""])
def test_a_checksum_file_that_names_other_files(tmp_path: Path, name: str) -> None:
    checkpoints = save_checkpoints(tmp_path, 1, 2)
    (tmp_path / "secret").write_text("mine")
    manifest = tmp_path / "step-000000002" / "checksums.json"
    manifest.write_bytes(json_bytes(json.loads(manifest.read_bytes()) | {name: checksum(tmp_path / "secret")}))
    assert f"{manifest}: refused: it lists {name!r}" in skipped_message(checkpoints, 1)


def test_no_pickle_is_opened(tmp_path: Path) -> None:
    """Not even one with a correct checksum; the model reader, which can read pickles safely, is not called."""
    checkpoints = save_checkpoints(tmp_path, 1, 2)
    checkpoint_path = tmp_path / "step-000000002"
    (checkpoint_path / "model.safetensors").unlink()
    torch.save(content(2)[0], checkpoint_path / "pytorch_model.bin")
    for listed in (["state.json"], ["state.json", "pytorch_model.bin"]):
        (checkpoint_path / "checksums.json").write_bytes(
            json_bytes({name: checksum(checkpoint_path / name) for name in listed})
        )
        assert "pytorch_model.bin" in skipped_message(checkpoints, 1)


def test_a_checksum_file_with_missing_entries(tmp_path: Path) -> None:
    checkpoints = save_checkpoints(tmp_path, 1, 2)
    manifest = tmp_path / "step-000000002" / "checksums.json"
    listed = json.loads(manifest.read_bytes())
    for name in ("state.json", "model.safetensors"):
        manifest.write_bytes(json_bytes({key: value for key, value in listed.items() if key != name}))
        assert name in skipped_message(checkpoints, 1)
    manifest.write_bytes(json_bytes({}))
    assert "does not list state.json" in skipped_message(checkpoints, 1)


# Interrupted saves


@pytest.mark.parametrize("step", [2, 3])
def test_a_crash_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """While a checkpoint is written or replaced, or older ones are deleted."""
    outcomes = []
    for moment in range(200):
        checkpoints = save_checkpoints(tmp_path / str(moment), 1, 2)
        finished = False
        with monkeypatch.context() as patch:
            die_after(patch, moment)
            try:
                Checkpoints(checkpoints.folder, keep=1).save(step, *content(step))
                finished = True
            except Crash:
                pass
        found = checkpoints.latest(on_damaged=pytest.fail)
        assert found is not None
        assert_is(found, found.step)
        outcomes.append(found.step)
        save_checkpoints(checkpoints.folder, 4, keep=1)
        assert names(checkpoints.folder) == ["step-000000004"], "leftover files"
        if finished:
            break
    assert outcomes == sorted(outcomes) and set(outcomes) == {2, step} and len(outcomes) > 6


def test_a_checkpoint_is_never_seen_half_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash_while_deleting(checkpoint_path: Path, **options: object) -> None:
        (checkpoint_path / "state.json").unlink()
        raise Crash

    save_checkpoints(tmp_path, 1)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(shutil, "rmtree", crash_while_deleting)
        patch.setattr(
            module,
            "write_folder",
            lambda checkpoint_path, **given: shutil.copytree(tmp_path / "step-000000001", checkpoint_path),
        )
        Checkpoints(tmp_path, keep=1).save(2, *content(2))
    assert [name for name in names(tmp_path) if name[0] != "."] == ["step-000000002"]


def test_leftovers_are_deleted_before_saving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = save_checkpoints(tmp_path, 1)
    (tmp_path / ".step-000000007.123-0123abcd.partial").mkdir()
    (tmp_path / ".step-notes").mkdir()
    seen: list[str] = []
    monkeypatch.setattr(module, "write_folder", lambda checkpoint_path, **given: seen.extend(names(tmp_path)))
    checkpoints.save(2, *content(2))
    assert seen == [".step-notes", "step-000000001"]


def with_file_size_limit(folder: Path, *, large: str) -> int:
    """Limit the file size, with limits inside the header, the tensors and the state."""
    checkpoints = save_checkpoints(folder, 1)
    tensors = {"a": torch.zeros(2000 if large == "tensors" else 1)}
    state = {"log": "x" * (8000 if large == "state" else 1)}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limits = (0, 1, 8, 9, *range(400, 8000, 475))
    for limit in limits:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            with pytest.raises(RegardError, match=r"step-000000002: cannot be written: .* unchanged"):
                checkpoints.save(2, tensors, state)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert names(folder) == ["step-000000001"]
        assert_is(checkpoints.latest(on_damaged=pytest.fail), 1)
    checkpoints.save(2, tensors, state)
    return len(limits)


FULL = """
import json, os, sys, torch
from regard.errors import RegardError
from regard.training.checkpoint import Checkpoints

folder, page = sys.argv[1], os.sysconf("SC_PAGE_SIZE")
checkpoints = Checkpoints(folder)
checkpoint_path = checkpoints.save(1, {"a": torch.ones(20 * page // 4)}, {"step": 1})
pages = sum(-(-path.stat().st_size // page) for path in checkpoint_path.iterdir())
errors = []
for left in range(pages):
    free = os.statvfs(folder)
    with open(f"{folder}/filler", "wb") as filler:
        filler.write(bytes(free.f_bavail * free.f_frsize - left * page))
    try:
        checkpoints.save(2, {"a": torch.zeros(20 * page // 4)}, {"step": 2})
        errors.append("none")
    except RegardError as error:
        errors.append(str(error))
    found = checkpoints.latest(on_damaged=sys.exit)
    assert found.step == 1 and found.state == {"step": 1} and found.tensors["a"].eq(1).all()
    assert sorted(os.listdir(folder)) == ["filler", "step-000000001"]
    os.unlink(f"{folder}/filler")
checkpoints.save(2, {"a": torch.zeros(20 * page // 4)}, {"step": 2})
assert checkpoints.latest(on_damaged=sys.exit).step == 2
print(json.dumps(errors))
"""


def with_small_mount(folder: Path, *, prefix: list[str]) -> int:
    """A file system of 300 kB with every number of free pages that is too small for the next checkpoint."""
    call = f'mount -t tmpfs -o size=300k tmpfs {folder} && exec {sys.executable} -c "$0" {folder}'
    run = subprocess.run([*prefix, "sh", "-c", call, FULL], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    errors = json.loads(run.stdout)
    for error in errors:
        assert "step-000000002: cannot be written: " in error and "unchanged" in error
    return len(errors)


def full_disks() -> dict[str, Callable[[Path], int]]:
    """Ways to simulate a full disk, including a private mount where the system allows it."""
    disks = {large: partial(with_file_size_limit, large=large) for large in ("tensors", "state")}
    for prefix in (["unshare", "--user", "--map-root-user", "--mount"], ["unshare", "--mount"]):
        call = [*prefix, "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/tmp"]
        if shutil.which("unshare") and subprocess.run(call, capture_output=True, check=False).returncode == 0:
            return disks | {"mounted": partial(with_small_mount, prefix=prefix)}
    return disks


FULL_DISKS = full_disks()


@pytest.mark.parametrize("kind", FULL_DISKS)
def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path: Path, kind: str) -> None:
    assert FULL_DISKS[kind](tmp_path) >= 20


KILLED = """
import itertools, json, os, random, signal, sys, time, torch
from regard.training.checkpoint import Checkpoints

folder, rng, cut = sys.argv[1], random.Random(0), 0
checkpoints = Checkpoints(folder)

def save(step, number):
    checkpoints.save(step, {"a": torch.full((20_000,), number), "b": torch.full((3,), number)}, {"number": number})

save(0, 0)
step = number = 0
for turn in range(10):
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        for number in itertools.count(number + 1):
            step += turn % 2  # every other process replaces one checkpoint again and again
            save(step, number)
            os.write(writer, number.to_bytes(8, "little"))
    os.close(writer)
    time.sleep(rng.uniform(0.02, 0.1))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with open(reader, "rb") as file:
        sent = file.read()
    number = int.from_bytes(sent[-8:], "little") if sent else number
    cut += any(name.startswith(".") for _, folders, _ in os.walk(folder) for name in folders)
    found = checkpoints.latest(on_damaged=sys.exit)
    assert number <= found.state["number"] <= number + 1
    number, step = found.state["number"], found.step
    assert found.tensors["a"].eq(number).all() and found.tensors["b"].eq(number).all()
save(step + 1, number)
print(json.dumps({"cut": cut, "saved": number, "left": [name for name in os.listdir(folder) if name[0] == "."]}))
"""


@pytest.mark.long
def test_kill_while_saving(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", KILLED, tmp_path], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["cut"] >= 3 and report["saved"] >= 1, "no kill interrupted a save, so the test is not meaningful"
    assert report["left"] == []
