"""Row shards: division of rows, exchange of whole matrices, norms, and files that any number of processes reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import InputError
from regard.files.json_files import json_bytes
from regard.training.checkpoint import Checkpoints
from regard.training.distributed.shards import (
    StoredTensor,
    first_rows,
    is_sharded,
    local_part,
    local_rows,
    read_rows,
    read_stored,
)
from tests.training.distributed.test_world import free_port

PROGRAM = """
import os, sys
os.environ |= {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[1]}
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from regard.training.checkpoint import Checkpoints, capture
from regard.training.loop import AdversarialPerturbation, clip_gradients
from regard.training.optimizer import Muon
from regard.training.distributed.shards import WholeMatrices, gather_whole, local_part, local_rows, total_norm
from regard.training.distributed.world import join_world

children = []
rank = 0
for number in (1, 2):
    child = os.fork()
    if not child:
        rank, children = number, []
        break
    children.append(child)
os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}

def new():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 7, bias=False), nn.Linear(6, 2), nn.LayerNorm(9))

with join_world() as world:
    whole, model = new(), new()
    fully_shard(model, mesh=init_device_mesh("cpu", (3,)))
    parameters, expected = list(model.parameters()), list(whole.parameters())
    for parameter, other in zip(parameters, expected, strict=True):
        assert torch.equal(local_part(parameter), other[local_rows(parameter)])
        assert torch.equal(gather_whole(parameter), other)
        other.grad = torch.randn(other.shape, generator=torch.Generator().manual_seed(other.numel()))
        parameter.grad = torch.zeros_like(parameter)
        local_part(parameter.grad).copy_(other.grad[local_rows(parameter)])

    matrices = [parameter for parameter in parameters if parameter.ndim == 2]  # 2: one process owns none
    exchange = WholeMatrices(matrices)
    owned = exchange.collect([local_part(matrix) for matrix in matrices])
    originals = [other for other in expected if other.ndim == 2]
    assert [torch.equal(owned[i], originals[k]) for i, k in enumerate(exchange.owned)] == [True] * len(owned)
    back = exchange.distribute(owned)
    assert all(torch.equal(part, local_part(matrix)) for part, matrix in zip(back, matrices, strict=True))

    perturbation = AdversarialPerturbation(matrices[0], 0.5)
    with perturbation.applied():
        moved = originals[0] + originals[0].grad * (0.5 / originals[0].grad.norm())
        torch.testing.assert_close(gather_whole(matrices[0].detach()), moved)
    assert torch.equal(gather_whole(matrices[0].detach()), originals[0])

    norm = torch.nn.utils.clip_grad_norm_(expected, 1.0)
    assert norm > 1
    torch.testing.assert_close(clip_gradients(parameters, 1.0), norm)
    for parameter, other in zip(parameters, expected, strict=True):
        torch.testing.assert_close(gather_whole(parameter.grad), other.grad)

    optimizers = [Muon(each, lr=0.1, weight_decay=0.1) for each in (matrices, originals)]
    for optimizer in optimizers:
        for _ in range(3):
            optimizer.step()
    for matrix, other in zip(matrices, originals, strict=True):
        torch.testing.assert_close(gather_whole(matrix.detach()), other.detach())

    tensors, state = capture(model, optimizers[:1])
    Checkpoints(sys.argv[2]).save_shards(3, tensors, state | {"note": "x"}, world)
    if rank == 0:
        tensors, state = capture(whole, optimizers[1:])
        Checkpoints(sys.argv[3]).save(3, tensors, state | {"note": "x"})
    assert world.gather_json({"rank": rank}) == [{"rank": 0}, {"rank": 1}, {"rank": 2}]
    assert world.broadcast_json([rank, "main"]) == [0, "main"]
os.write(1, b"done\\n")
for child in children:
    assert os.waitpid(child, 0)[1] == 0
if rank:
    os._exit(0)
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Checkpoints of one state: written by three processes, and by one."""
    folder = tmp_path_factory.mktemp("shards")
    shards, whole = folder / "shards", folder / "whole"
    command = [sys.executable, "-c", PROGRAM, free_port(), str(shards), str(whole)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert result.returncode == 0 and result.stdout.count("done") == 3, result.stderr
    return shards, whole


@pytest.mark.parametrize(
    ("rows", "starts"), [(7, [0, 3, 6, 7]), (2, [0, 1, 2, 2]), (9, [0, 3, 6, 9]), (1, [0, 1, 1, 1])]
)
def test_rows_are_divided_as_torch_chunk_divides_them(rows: int, starts: list[int]) -> None:
    assert first_rows(rows, 3) == starts
    chunks = torch.arange(rows).chunk(3)
    assert [chunk[0].item() for chunk in chunks] == starts[: len(chunks)]


def test_an_ordinary_tensor_is_its_own_part() -> None:
    tensor, number = torch.arange(6).view(3, 2), torch.tensor(1.0)
    assert not is_sharded(tensor) and local_part(tensor) is tensor
    assert torch.equal(tensor[local_rows(tensor)], tensor) and local_part(number) is number
    assert read_rows(number, local_rows(number)) is number


@pytest.mark.parametrize("rows", [slice(0, 9), slice(2, 7), slice(3, 6), slice(0, 0), slice(8, 9)])
def test_rows_are_read_from_the_files_that_hold_them(rows: slice) -> None:
    whole = torch.arange(18).view(9, 2)
    stored = StoredTensor(whole.shape, (0, 3, 6), (whole[:3], whole[3:6], whole[6:]))
    assert torch.equal(read_rows(stored, rows), whole[rows]) and stored.dtype == whole.dtype


def test_three_processes_write_the_state_of_one(folders: tuple[Path, Path]) -> None:
    found, expected = (Checkpoints(folder).latest() for folder in folders)
    assert found is not None and expected is not None
    assert found.state == expected.state and found.tensors.keys() == expected.tensors.keys()
    for name, tensor in expected.tensors.items():
        assert isinstance(tensor, torch.Tensor)
        if name != "random.cpu":
            rows = read_rows(found.tensors[name], slice(0, len(tensor)))
            torch.testing.assert_close(rows, tensor)


def place(folders: tuple[Path, Path], copy: Path) -> Path:
    import shutil

    shutil.copytree(folders[0], copy)
    return copy / "step-000000003"


@pytest.mark.parametrize(
    "name", ["shards.json", "model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"]
)
@pytest.mark.parametrize("damage", ["flipped", "missing"])
def test_damage_is_found(folders: tuple[Path, Path], name: str, damage: str, tmp_path: Path) -> None:
    path = place(folders, tmp_path / "copy") / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink() if damage == "missing" else path.write_bytes(data)
    problems: list[str] = []
    with pytest.raises(Exception, match="all of its 1 checkpoints are damaged"):
        Checkpoints(tmp_path / "copy").latest(on_damaged=problems.append)
    assert name in problems[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"files": 2}, r"model-00001-of-00002\.safetensors: cannot be read"),
        ({"files": "../x"}, "does not list files and tensors"),
        ({"tensors": []}, "does not list files and tensors"),
        ({"tensors": {"model.0.weight": {"shape": [8, 4], "starts": [0, 3, 6]}}}, "do not make up a tensor of shape"),
        ({"tensors": {"model.0.weight": {"shape": [7, 4], "starts": [0, 2, 6]}}}, "do not make up a tensor of shape"),
        ({"tensors": {"model.0.weight": {"shape": [7, 5], "starts": [0, 3, 6]}}}, "do not make up a tensor of shape"),
        ({"tensors": {"nothing": {"shape": [7, 4], "starts": [0, 3, 6]}}}, "nothing is not in all files"),
        ({"tensors": {"model.0.weight": 5}}, "is not in all files"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(
    folders: tuple[Path, Path], change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = place(folders, tmp_path / "copy")
    index = json.loads((folder / "shards.json").read_text())
    (folder / "shards.json").write_bytes(json_bytes(index | change))
    with pytest.raises(InputError, match=message):
        read_stored(folder, verified=True)
