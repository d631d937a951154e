"""Checkpoints of a run: a folder of folders `step-000001200`, each of them written whole and checked when it is read.

A checkpoint is a folder of safetensors and JSON with their SHA-256. One process at a time writes to a folder, which the
caller ensures, or all processes of a run together, each its shards: see `regard.training.distributed.shards`.
`capture` and `restore` convert the state of a run between two steps, so that a resumed run continues bit for bit: the
model, the optimizers and PyTorch's random states, without gradients. Owners of other random generators save them
themselves.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.optim import Optimizer

from regard.checkpoints.files import OUR_WEIGHTS, checksum, verify, weight_files, write_folder
from regard.errors import InputError, RegardError
from regard.files.checksums import CHECKSUMS, written_files
from regard.files.disk import COMMITTED, TEMPORARY, finish_save, replace_folder
from regard.files.json_files import json_bytes, read_json
from regard.training.distributed.shards import (
    SHARDS,
    StoredTensor,
    local_part,
    local_rows,
    read_rows,
    read_stored,
    shard_index,
    shard_name,
    write_shard,
)
from regard.training.distributed.world import World

RANDOM = "random.cpu"
RANDOM_CUDA = re.compile(r"random\.cuda\.(\d+)", re.ASCII)


def capture(model: nn.Module, optimizers: Sequence[Optimizer]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a run by name, and everything else as JSON, under the key `optimizers`.

    The tensors are the live ones, not copies: save them before the next step.
    """
    names = _names(model, optimizers)
    tensors = {name: target.detach() for name, target in _live_tensors(model, optimizers).items()}
    tensors[RANDOM] = torch.get_rng_state()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        tensors |= {f"random.cuda.{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    records = []
    for i, optimizer in enumerate(optimizers):
        record = _record(optimizer, names)
        for parameter, values in optimizer.state.items():
            for key, value in values.items():
                if isinstance(value, Tensor) and "." not in key:
                    tensors[f"optimizer.{i}.{names[parameter]}.{key}"] = value.detach()
                elif value is None or isinstance(value, int | float):
                    record["numbers"].setdefault(names[parameter], {})[key] = value
                else:
                    raise InputError(
                        f"{record['kind']} keeps {key!r} of {names[parameter]} as a {type(value).__name__}; "
                        "expected a tensor or a number, under a name without dots"
                    )
        records.append(record)
    return tensors, {"optimizers": records}


def restore(
    model: nn.Module,
    optimizers: Sequence[Optimizer],
    tensors: Mapping[str, Tensor | StoredTensor],
    state: Mapping[str, Any],
) -> None:
    """Restore what `capture` returned; if model or optimizers differ, raise InputError and change nothing.

    The settings of the optimizers' groups (learning rate, weight decay) are restored too. The random states of missing
    GPUs are ignored. Of a sharded model, each process reads its own rows.
    """
    names = _names(model, optimizers)
    live = _live_tensors(model, optimizers)
    records: list[dict[str, Any]] = state.get("optimizers") or []
    values_of = _optimizer_values(records, tensors)
    differences = [
        *_other_optimizers(records, [_record(optimizer, names) for optimizer in optimizers]),
        *_other_tensors(tensors, {**live, RANDOM: torch.get_rng_state()}, values_of=values_of),
    ]
    if differences:
        raise InputError(
            f"this checkpoint is of another model or other optimizers: {'; '.join(differences)}. Nothing was changed; "
            "resume with the settings that the run was started with, or start a new run"
        )
    with torch.no_grad():
        for name, target in live.items():
            copy_rows(target, tensors[name])
    for i, (optimizer, record) in enumerate(zip(optimizers, records, strict=True)):
        optimizer.state.clear()
        for group, stored in zip(optimizer.param_groups, record["groups"], strict=True):
            group |= {k: tuple(v) if isinstance(v, list) else v for k, v in stored["numbers"].items()}
            for parameter in group["params"]:
                for key, value in values_of[f"optimizer.{i}.{names[parameter]}"].items():
                    optimizer.state[parameter][key] = _on_device(value, key=key, parameter=parameter, group=group)
    _restore_random(tensors)


def copy_rows(target: Tensor, stored: Tensor | StoredTensor) -> Tensor:
    """Fill a tensor, or this process's rows of it, with its stored values."""
    local_part(target).copy_(read_rows(stored, local_rows(target)))
    return target


def _names(model: nn.Module, optimizers: Sequence[Optimizer]) -> dict[Tensor, str]:
    """The name of each parameter in the model; tied parameters have one name."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    for optimizer in optimizers:
        for parameter in (parameter for group in optimizer.param_groups for parameter in group["params"]):
            if parameter not in names:
                raise InputError(
                    f"{type(optimizer).__name__} trains a parameter of shape {tuple(parameter.shape)} that is not in "
                    "the model; expected only those of the model, whose names there are their names in a checkpoint"
                )
    return names


def _live_tensors(model: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """The tensors that exist from the start, by name, without the model's non-persistent buffers."""
    saved = model.state_dict()
    own = [*model.named_parameters(), *model.named_buffers()]
    live: dict[str, Tensor] = {f"model.{name}": tensor for name, tensor in own if name in saved}
    for i, optimizer in enumerate(optimizers):
        for j, group in enumerate(optimizer.param_groups):
            live |= {f"group.{i}.{j}.{key}": value for key, value in group.items() if isinstance(value, Tensor)}
    return live


def _record(optimizer: Optimizer, names: Mapping[Tensor, str]) -> dict[str, Any]:
    """An optimizer as JSON, without machine-dependent switches such as `fused`."""
    groups = [
        {
            "parameters": [names[parameter] for parameter in group["params"]],
            "numbers": {k: list(v) if isinstance(v, tuple) else v for k, v in group.items() if _is_numeric(v)},
        }
        for group in optimizer.param_groups
    ]
    return {"kind": type(optimizer).__name__, "groups": groups, "numbers": {}}


def _is_numeric(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_numeric, value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def _optimizer_values(
    records: Sequence[Mapping[str, Any]], tensors: Mapping[str, Tensor | StoredTensor]
) -> dict[str, dict[str, Any]]:
    """For each parameter of each optimizer, `optimizer.I.NAME`, the values in the optimizer's state."""
    values_of: dict[str, dict[str, Any]] = {}
    for i, record in enumerate(records):
        for name in (name for group in record["groups"] for name in group["parameters"]):
            values_of[f"optimizer.{i}.{name}"] = dict(record["numbers"].get(name, {}))
    for name, tensor in tensors.items():
        owner, _, key = name.rpartition(".")
        if owner in values_of:
            values_of[owner][key] = tensor
    return values_of


def _other_optimizers(found: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]) -> list[str]:
    kinds = [[str(record["kind"]) for record in records] for records in (found, expected)]
    if kinds[0] != kinds[1]:
        return [f"it has {' and '.join(kinds[0]) or 'no optimizer'}, here is {' and '.join(kinds[1]) or 'none'}"]
    differences = []
    for record, here in zip(found, expected, strict=True):
        shapes = [[(group["parameters"], {*group["numbers"]}) for group in each["groups"]] for each in (record, here)]
        if shapes[0] != shapes[1]:
            sizes = [", ".join(str(len(names)) for names, _ in shape) for shape in shapes]
            differences.append(
                f"its {here['kind']} has groups of {sizes[0]} parameters, here of {sizes[1]}, or others in them"
            )
    return differences


def _other_tensors(
    found: Mapping[str, Tensor | StoredTensor], expected: Mapping[str, Tensor], *, values_of: Mapping[str, object]
) -> list[str]:
    missing = [name for name in expected if name not in found]
    others = [name for name in found if name not in expected and name.rpartition(".")[0] not in values_of]
    strange = [name for name in others if not RANDOM_CUDA.fullmatch(name)]
    unlike = [
        f"{name} is {_kind(found[name])}, here {_kind(tensor)}"
        for name, tensor in expected.items()
        if name in found and _kind(found[name]) != _kind(tensor)
    ]
    differences = [f"it lacks {_some(missing)}"] if missing else []
    differences += [f"it has {_some(strange)}, which are not expected here"] if strange else []
    return differences + ([f"its {_some(unlike)}"] if unlike else [])


def _on_device(value: Any, *, key: str, parameter: Tensor, group: Mapping[str, Any]) -> Any:
    """A copy of an optimizer value on the device of its parameter, with the parameter's memory layout."""
    if not isinstance(value, Tensor | StoredTensor):
        return value
    on_host = key == "step" and not (group.get("fused") or group.get("capturable"))  # torch's own rule
    device = torch.device("cpu") if on_host else parameter.device
    if value.shape == parameter.shape:
        blank = torch.empty_like(parameter, dtype=value.dtype, device=device, requires_grad=False)
    else:
        blank = torch.empty(value.shape, dtype=value.dtype, device=device)
    return copy_rows(blank, value)


def _restore_random(tensors: Mapping[str, Tensor | StoredTensor]) -> None:
    states = {name: tensor for name, tensor in tensors.items() if isinstance(tensor, Tensor)}
    torch.set_rng_state(states[RANDOM].clone())
    for name, tensor in states.items():
        match = RANDOM_CUDA.fullmatch(name)
        if match and int(match[1]) < torch.cuda.device_count():
            torch.cuda.set_rng_state(tensor.clone(), int(match[1]))


def _kind(tensor: Tensor | StoredTensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


STATE = "state.json"
STATE_BYTES = 64_000_000
STEP = re.compile(r"step-(\d{9,18})", re.ASCII)
UNFINISHED = re.compile(r"\.step-\d{9,18}\..+\.partial", re.ASCII)


@dataclass(frozen=True)
class TrainingCheckpoint:
    """The arguments of `save`: tensors, now on the CPU or in the files of several processes, and a state as JSON."""

    step: int
    tensors: dict[str, Tensor | StoredTensor]
    state: dict[str, Any]


class Checkpoints:
    """The checkpoints in a folder; the newest `keep` intact ones are kept."""

    def __init__(self, folder: str | os.PathLike[str], *, keep: int = 2) -> None:
        if keep < 1:
            raise InputError(f"keep is {keep}; expected how many checkpoints stay, at least 1")
        self.folder = Path(folder)
        self.keep = keep

    def save(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> Path:
        """Write one checkpoint, completely or not at all, and then delete the older ones that are no longer needed."""
        files = {STATE: _state_bytes(step, state)}
        place = self._prepare(step)
        write_folder(place, tensors=tensors, files=files, overwrite=True)
        with suppress(OSError):  # the new checkpoint is saved, and the next save tries again
            self._prune(step)
        return place

    def save_shards(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any], world: World) -> None:
        """Like `save`, by all processes of a sharded model together: each writes its rows to a file of its own.

        The folder gets its name when all files are written. If a process fails, there is no new checkpoint, and all
        processes end.
        """
        with ExitStack() as stack:
            staging = None
            with world.main_only() as is_main:
                if is_main:
                    state_bytes = _state_bytes(step, state)
                    place = self._prepare(step)
                    finish_save(place)
                    earlier = written_files(place) | weight_files(place)
                    new = {STATE, SHARDS, CHECKSUMS, *(shard_name(rank, world.size) for rank in range(world.size))}
                    staging = stack.enter_context(replace_folder(place, remove=sorted(earlier - new)))
            folder = Path(world.broadcast_json(str(staging)))
            written = world.gather_json(_write_part(folder, tensors, world))
            if problems := [part["error"] for part in written if "error" in part]:
                if not world.is_main:
                    raise SystemExit(1)
                raise RegardError(
                    f"{place}: cannot be written: {problems[0]}; earlier checkpoints are unchanged. Make room, or "
                    "write elsewhere"
                )
            with world.main_only() as is_main:
                if is_main:
                    files = {STATE: state_bytes, SHARDS: shard_index(tensors, processes=world.size)}
                    for name, data in files.items():
                        (folder / name).write_bytes(data)
                    sums = {part["name"]: part["checksum"] for part in written}
                    sums |= {name: checksum(folder / name) for name in files}
                    (folder / CHECKSUMS).write_bytes(json_bytes(sums))
                    stack.close()  # renames the folder
                    with suppress(OSError):  # the new checkpoint is saved, and the next save tries again
                        self._prune(step)

    def _prepare(self, step: int) -> Path:
        """The folder of a new checkpoint, after deleting what killed processes left."""
        if not 0 <= step < 10**18:
            raise InputError(f"step is {step}; expected the number of steps done, at least 0")
        place = self.folder / f"step-{step:09d}"
        if place.is_symlink():
            raise InputError(f"{place}: cannot be written: it is a link, which may lead anywhere; delete it")
        with suppress(OSError):  # the next save tries again
            self._sweep()  # first, because leftovers of a killed process take space that this save may need
        return place

    def read(self, step: int) -> TrainingCheckpoint:
        """The checkpoint of a step, which another process has compared with its checksums."""
        return _read(step, self.folder / f"step-{step:09d}", verified=True)

    def latest(self, *, on_damaged: Callable[[str], None] | None = None) -> TrainingCheckpoint | None:
        """The newest checkpoint whose checksums hold, or None if there is none.

        Newer ones that are damaged are skipped and described to `on_damaged`.
        """
        damaged = []
        for step, place in self._newest_first():
            try:
                return _read(step, place)
            except (RegardError, OSError) as error:
                damaged.append(str(error))
                if on_damaged is not None:
                    on_damaged(str(error))
        if damaged:
            raise RegardError(
                f"{self.folder}: all of its {len(damaged)} checkpoints are damaged: {'; '.join(damaged)}. "
                "Put a copy of one of them back, or start again in another folder"
            )
        return None

    def any(self) -> bool:
        """Whether there is a checkpoint, intact or damaged."""
        return bool(self._newest_first())

    def newest_is_good(self) -> bool:
        """Whether the newest checkpoint matches its checksums; True if there is none."""
        return all(_is_good(place) for _, place in self._newest_first()[:1])

    def _newest_first(self) -> list[tuple[int, Path]]:
        names = os.listdir(self.folder) if self.folder.is_dir() else []
        steps = {name: int(match[1]) for name in names if (match := STEP.fullmatch(name))}
        return sorted(((step, self.folder / name) for name, step in steps.items()), reverse=True)

    def _prune(self, written: int) -> None:
        """Delete the checkpoints older than the one just written, except the newest intact ones.

        A checkpoint that contains a foreign file is kept.
        """
        missing = self.keep - 1
        for step, place in self._newest_first():
            if step >= written or place.is_symlink() or not place.is_dir():
                continue
            if missing and _is_good(place):
                missing -= 1
            elif not _has_foreign_files(place):
                with suppress(OSError):  # the next save tries again
                    # A folder that is half deleted must not look like a damaged checkpoint.
                    os.rename(place, self.folder / f".{place.name}.deleted.partial")
        self._sweep()

    def _sweep(self) -> None:
        """Delete checkpoints marked for deletion, and incomplete ones that a killed process left."""
        for name in os.listdir(self.folder) if self.folder.is_dir() else []:
            if UNFINISHED.fullmatch(name):
                shutil.rmtree(self.folder / name, ignore_errors=True)


def _state_bytes(step: int, state: Mapping[str, Any]) -> bytes:
    """The state as JSON. Values that JSON would change are refused now, not when the run is resumed."""
    content = {"step": step, "state": dict(state)}
    try:
        data = json_bytes(content)
        same = json.loads(data) == content
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the state of a checkpoint must be JSON: {error}") from error
    if not same:
        raise InputError(
            "the state of a checkpoint must be JSON: it holds a tuple, a key that is not a string, or the like, "
            "which would come back as another value; use lists and text"
        )
    if len(data) > STATE_BYTES:
        raise InputError(
            f"the state of a checkpoint is larger than {STATE_BYTES:,} bytes; keep large values as tensors"
        )
    return data


def _write_part(folder: Path, tensors: Mapping[str, Tensor], world: World) -> dict[str, str]:
    """Write this process's file; returns its name and checksum, or the error."""
    try:
        name = write_shard(folder, tensors, rank=world.rank, processes=world.size)
        return {"name": name, "checksum": checksum(folder / name)}
    except (SafetensorError, OSError) as error:  # a full disk may raise SafetensorError
        return {"error": f"{getattr(error, 'strerror', None) or error} (process {world.rank})"}


def _read(step: int, place: Path, *, verified: bool = False) -> TrainingCheckpoint:
    if not verified:
        _check_manifest(place)
    tensors = read_stored(place, verified=verified)  # after comparing every file with its checksum
    content = read_json(place / STATE, limit=STATE_BYTES)
    state = content.get("state")
    if content.get("step") != step or not isinstance(state, dict):
        raise InputError(f"{place / STATE}: expected the state of step {step}; give the folder its own name again")
    return TrainingCheckpoint(step, tensors, state)


def _is_good(place: Path) -> bool:
    try:
        _check_manifest(place)
        verify(place)
    except (RegardError, OSError):
        return False
    return True


def _has_foreign_files(place: Path) -> bool:
    known = {STATE, SHARDS, CHECKSUMS, COMMITTED}
    return not all(
        name in known or OUR_WEIGHTS.fullmatch(name) or TEMPORARY.fullmatch(name) for name in os.listdir(place)
    )


def _check_manifest(place: Path) -> None:
    """Check the list of checksums itself: written by us to the byte, of our files only, and not a link.

    It is the one file without a checksum, so it must have exactly the form in which it is written.
    """
    if place.is_symlink() or not place.is_dir():
        raise InputError(f"{place}: expected the folder of a checkpoint, found a link or a file; delete it")
    finish_save(place)
    manifest = place / CHECKSUMS
    _refuse_link(manifest)
    listed = read_json(manifest)
    if manifest.read_bytes() != json_bytes(listed):
        raise InputError(f"{manifest}: not as it was written: damaged or cut short; copy the checkpoint again")
    for name in listed:
        if name not in (STATE, SHARDS) and not OUR_WEIGHTS.fullmatch(name):
            raise InputError(f"{manifest}: refused: it lists {name!r}, which is not a file of a checkpoint")
        _refuse_link(place / name)
    if STATE not in listed:
        raise InputError(f"{manifest}: does not list {STATE}; copy the checkpoint again")


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise InputError(f"{path}: refused: a link has no place in a checkpoint; put a copy of the file there")
