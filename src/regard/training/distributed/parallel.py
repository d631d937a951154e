"""How several processes train one model: replicas that average gradients (DDP), or shards of every tensor (FSDP2).

With FSDP2 each process keeps 1/n of the parameters, gradients and optimizer states, and the processes send one another
the parameters of a layer when it computes. Knows modules and devices; the training loop and files are elsewhere.
"""

from __future__ import annotations

import copy
import os
from typing import Any

import torch
from torch import nn

from regard.errors import InputError
from regard.nn.layer import layers_of
from regard.training.distributed.shards import gather_whole
from regard.training.distributed.world import World
from regard.training.optimizer import OptimizerName, state_tensors
from regard.training.settings import Parallel

ROOM = 0.6  # share of the memory for parameters, gradients and optimizer states; the rest is for activations


def choose_parallel(
    setting: Parallel, model: nn.Module, *, optimizer: OptimizerName, world: World, device: torch.device
) -> tuple[Parallel, str]:
    """How the processes of a run share the training, and a sentence about it, which is empty for one process.

    "auto" is DDP unless parameters, gradients and optimizer states take more than `ROOM` of a device's memory.
    """
    if world.size == 1:
        note = "run.parallel=fsdp divides a model between processes, and there is one, which trains it whole; start "
        more = "several with torchrun --nproc-per-node N -m regard ..."
        return "ddp", note + more if setting == "fsdp" else ""
    obstacle = _obstacle(model)
    if setting == "fsdp" and obstacle:
        raise InputError(f"run.parallel=fsdp cannot divide this model: {obstacle}; use run.parallel=ddp")
    needed, available = training_bytes(model, optimizer), device_memory(device)
    chosen = setting
    if setting == "auto":
        chosen = "fsdp" if needed > ROOM * available and not obstacle else "ddp"
    each = needed // world.size if chosen == "fsdp" else needed
    how = "each has a part of the model (fsdp)" if chosen == "fsdp" else "each has the whole model (ddp)"
    return chosen, (
        f"{world.size} processes, {how}: parameters, gradients and optimizer states take {_gigabytes(each)} of "
        f"{_gigabytes(available)} on {device.type}"
    )


def training_bytes(model: nn.Module, optimizer: OptimizerName) -> int:
    """Bytes of parameters, gradients and optimizer states, if one process has them all."""
    states = state_tensors(model, optimizer)
    return sum(p.numel() * p.element_size() * (2 + states[p] if p.requires_grad else 1) for p in model.parameters())


def device_memory(device: torch.device) -> int:
    """Bytes of memory of a device; of a CPU the share of one of the processes on this machine."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # unknown on this system: then it is no reason for FSDP
        return 1 << 62
    return total // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


class ShardedModel:
    """Divides the model inside `module`, whose forward pass uses all of it, between the processes, with FSDP2.

    The model may be on the CPU: its layers move to the device one by one, as shards. Computation is in `dtype`, if
    there is one, from parameters that are sent in `dtype`; shards, optimizer states and the sum of gradients are
    float32. Create the optimizers afterwards.
    """

    def __init__(
        self,
        model: nn.Module,
        module: nn.Module,
        blank: nn.Module,
        *,
        world: World,
        device: torch.device,
        dtype: torch.dtype | None,
    ) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        self.model, self._blank, self._world, self._device = model, blank, world, device
        mesh = init_device_mesh(device.type, (world.size,))
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32 if dtype else None)
        for layer in layers_of(module):
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        # The rest, such as embeddings and heads, stays whole from the forward pass to the end of the backward pass.
        fully_shard(module, mesh=mesh, mp_policy=policy)

    def gather(self) -> nn.Module | None:
        """A copy of the model with whole parameters in the main process, None in the others; all take part."""
        tensors = {}
        for name, tensor in self.model.state_dict().items():
            whole = gather_whole(tensor.detach())
            if self._world.is_main:
                tensors[name] = whole.to(self._device)
        if not self._world.is_main:
            return None
        result = copy.deepcopy(self._blank)
        result.load_state_dict(tensors, assign=True)
        return result.eval()


def blank_copy(model: nn.Module) -> nn.Module:
    """A copy of a model without memory for its parameters, for `ShardedModel.gather`."""
    memo: dict[int, Any] = {
        id(parameter): nn.Parameter(torch.empty_like(parameter, device="meta"), parameter.requires_grad)
        for parameter in model.parameters()
    }
    return copy.deepcopy(model, memo)


def _obstacle(model: nn.Module) -> str:
    """Why FSDP2 cannot divide a model; empty if it can."""
    if any(isinstance(module, nn.RNNBase) for module in model.modules()):
        return "the weights of its recurrent layers are one block of memory"
    scalars = [name for name, parameter in model.named_parameters() if not parameter.ndim]
    return f"{scalars[0]} is a single number" if scalars else ""


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.3g} GB"
