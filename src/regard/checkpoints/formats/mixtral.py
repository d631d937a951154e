"""The files of a Mixtral: keys of config.json and names of tensors, and those of experts in other families."""

from __future__ import annotations

from functools import partial
from typing import Any

from regard.checkpoints.file_format import Table, TensorNames
from regard.checkpoints.formats import llama
from regard.nn.experts import ExpertsConfig


def expert_names(prefix: str, parts: tuple[str, str, str], config: ExpertsConfig) -> Table:
    """Return the names in a layer of the router and of each expert: gate, input and output."""
    gate, up, down = parts
    table: dict[str, str | tuple[str, ...]] = {"ffn.router.weight": f"{prefix}.gate.weight"}
    for number in range(config.num_experts):
        expert = f"{prefix}.experts.{number}"
        table[f"ffn.experts.{number}.inner.weight"] = (f"{expert}.{gate}.weight", f"{expert}.{up}.weight")
        table[f"ffn.experts.{number}.outer.weight"] = f"{expert}.{down}.weight"
    return table


def tensor_names(prefix: str, parts: tuple[str, str, str], layer: Table, config: Any) -> TensorNames:
    """Return the names of a model with experts whose layers otherwise have those in `layer`."""
    return llama.tensor_names({**layer, **expert_names(prefix, parts, config)}, config)


LAYER = {ours: theirs for ours, theirs in llama.LAYER.items() if not ours.startswith("ffn.")}
KEYS = {
    **llama.KEYS,
    **{name: name for name in ("sliding_window", "num_experts_per_tok")},
    "num_experts": "num_local_experts",
}
FORMAT = llama.file_format(
    "Mixtral",
    KEYS,
    names=partial(tensor_names, "block_sparse_moe", ("w1", "w3", "w2"), LAYER),
    fixed={"router_jitter_noise": 0.0},
)
