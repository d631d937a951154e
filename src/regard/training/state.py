"""The state of a run between two steps: taken out by name, and put back so that the run goes on bit for bit.

Knows modules, optimizers and torch's random numbers. Knows no files, no data and nothing of the order of the steps;
other generators of random numbers are their owners' to save. Gradients are not part of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regard.errors import InputError

__all__ = ["capture", "restore"]

RANDOM = "random.cpu"
RANDOM_CUDA = re.compile(r"random\.cuda\.(\d+)", re.ASCII)


def capture(model: nn.Module, optimizers: Sequence[Optimizer]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a run by name, and as JSON, under the key `optimizers`, what is no tensor.

    The tensors are the live ones, not copies: save them before the next step.
    """
    names = _names(model, optimizers)
    tensors = {name: place.detach() for name, place in _places(model, optimizers).items()}
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
    model: nn.Module, optimizers: Sequence[Optimizer], tensors: Mapping[str, Tensor], state: Mapping[str, Any]
) -> None:
    """Put back what `capture` took out of such a model and such optimizers; if they differ, refuse and change nothing.

    The numbers of the optimizers' groups (rates, weight decay) come back too: who wants others sets them afterwards.
    The random states of GPUs that are not there are left out.
    """
    names = _names(model, optimizers)
    places = _places(model, optimizers)
    records: list[dict[str, Any]] = state.get("optimizers") or []
    kept = _kept(records, tensors)
    differences = [
        *_other_optimizers(records, [_record(optimizer, names) for optimizer in optimizers]),
        *_other_tensors(tensors, {**places, RANDOM: torch.get_rng_state()}, kept=kept),
    ]
    if differences:
        raise InputError(
            f"this checkpoint is of another model or other optimizers: {'; '.join(differences)}. Nothing was changed; "
            "resume with the settings that the run was started with, or start a new run"
        )
    with torch.no_grad():
        for name, place in places.items():
            place.copy_(tensors[name])
    for i, (optimizer, record) in enumerate(zip(optimizers, records, strict=True)):
        optimizer.state.clear()
        for group, stored in zip(optimizer.param_groups, record["groups"], strict=True):
            group |= {k: tuple(v) if isinstance(v, list) else v for k, v in stored["numbers"].items()}
            for parameter in group["params"]:
                for key, value in kept[f"optimizer.{i}.{names[parameter]}"].items():
                    optimizer.state[parameter][key] = _placed(value, key=key, parameter=parameter, group=group)
    _restore_random(tensors)


def _names(model: nn.Module, optimizers: Sequence[Optimizer]) -> dict[Tensor, str]:
    """The model's name for each parameter: one name for a tied one."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    for optimizer in optimizers:
        for parameter in (parameter for group in optimizer.param_groups for parameter in group["params"]):
            if parameter not in names:
                raise InputError(
                    f"{type(optimizer).__name__} trains a parameter of shape {tuple(parameter.shape)} that is not in "
                    "the model; expected only those of the model, whose names there are their names in a checkpoint"
                )
    return names


def _places(model: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """The tensors that are there from the start, by name; buffers that the model itself would not save are left out."""
    saved = model.state_dict()
    own = [*model.named_parameters(), *model.named_buffers()]
    places: dict[str, Tensor] = {f"model.{name}": tensor for name, tensor in own if name in saved}
    for i, optimizer in enumerate(optimizers):
        for j, group in enumerate(optimizer.param_groups):
            places |= {f"group.{i}.{j}.{key}": value for key, value in group.items() if isinstance(value, Tensor)}
    return places


def _record(optimizer: Optimizer, names: Mapping[Tensor, str]) -> dict[str, Any]:
    """What an optimizer is, as JSON. Its switches (`fused` and the like) suit the machine and are not part of it."""
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


def _kept(records: Sequence[Mapping[str, Any]], tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Any]]:
    """For each parameter of each optimizer, `optimizer.I.NAME`, the values that the optimizer kept for it."""
    kept: dict[str, dict[str, Any]] = {}
    for i, record in enumerate(records):
        for name in (name for group in record["groups"] for name in group["parameters"]):
            kept[f"optimizer.{i}.{name}"] = dict(record["numbers"].get(name, {}))
    for name, tensor in tensors.items():
        owner, _, key = name.rpartition(".")
        if owner in kept:
            kept[owner][key] = tensor
    return kept


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
    found: Mapping[str, Tensor], expected: Mapping[str, Tensor], *, kept: Mapping[str, object]
) -> list[str]:
    missing = [name for name in expected if name not in found]
    others = [name for name in found if name not in expected and name.rpartition(".")[0] not in kept]
    strange = [name for name in others if not RANDOM_CUDA.fullmatch(name)]
    unlike = [
        f"{name} is {_kind(found[name])}, here {_kind(tensor)}"
        for name, tensor in expected.items()
        if name in found and _kind(found[name]) != _kind(tensor)
    ]
    differences = [f"it lacks {_some(missing)}"] if missing else []
    differences += [f"it has {_some(strange)}, for which there is no place"] if strange else []
    return differences + ([f"its {_some(unlike)}"] if unlike else [])


def _placed(value: Any, *, key: str, parameter: Tensor, group: Mapping[str, Any]) -> Any:
    """A copy of a kept value on the device where its optimizer wants it, laid out in memory as the parameter is."""
    if not isinstance(value, Tensor):
        return value
    on_host = key == "step" and not (group.get("fused") or group.get("capturable"))  # torch's own rule
    like = parameter if value.shape == parameter.shape else value
    device = torch.device("cpu") if on_host else parameter.device
    return torch.empty_like(like, dtype=value.dtype, device=device, requires_grad=False).copy_(value)


def _restore_random(tensors: Mapping[str, Tensor]) -> None:
    torch.set_rng_state(tensors[RANDOM].clone())
    for name, tensor in tensors.items():
        match = RANDOM_CUDA.fullmatch(name)
        if match and int(match[1]) < torch.cuda.device_count():
            torch.cuda.set_rng_state(tensor.clone(), int(match[1]))


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
