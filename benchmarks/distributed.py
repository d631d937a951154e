"""Training in several processes: memory of each process for BERT-large, and losses compared with one process.

    python -m benchmarks.distributed [--processes 1 2 4 8] [--corpus DIR --steps 50] [--save NAME]

Memory is counted on the meta device, from the shards of parameters, gradients and optimizer states that rank 0 of N
processes holds after one step; activations and the layer that is gathered at the time come on top. With a corpus (see
`regard corpus build`), a small BERT is pretrained on the CPU by 1, 2 and 4 processes with gloo, and the largest
difference of the loss of a step from that of one process is reported. There is no dropout: each process has its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.timing import save_results
from regard.models.family import build, get_family
from regard.training.distributed.parallel import ShardedModel, blank_copy
from regard.training.distributed.shards import local_part
from regard.training.distributed.world import World
from regard.training.optimizer import OptimizerName, build_optimizers

OPTIMIZERS: tuple[OptimizerName, ...] = ("adamw", "muon")
LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
WORKER = "worker"
SMALL = (
    "model.hidden_size=64",
    "model.num_hidden_layers=2",
    "model.num_attention_heads=2",
    "model.intermediate_size=128",
    "data.max_length=64",
    "data.tokens_per_batch=2048",
    "data.tokens_per_micro_batch=512",
    "optimizer.learning_rate=0.003",
    "run.evaluate_every=",
    "run.checkpoint_every=",
)


class _Root(nn.Module):
    """Stands for the objective that contains a model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model


def memory(processes: int, optimizer: OptimizerName) -> dict[str, int]:
    """Bytes of BERT-large in training that one of so many processes holds."""
    import torch.distributed as distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", rank=0, world_size=processes, store=FakeStore())
    try:
        with torch.device("meta"):
            model = build(get_family("bert").config_class(**LARGE))
        if processes > 1:
            cpu = torch.device("cpu")
            ShardedModel(model, _Root(model), blank_copy(model), world=World(0, processes), device=cpu, dtype=None)
        optimizers = build_optimizers(model, name=optimizer, learning_rate=1e-3)
        for parameter in model.parameters():
            parameter.grad = torch.empty_like(parameter)
        for each in optimizers:
            for group in each.param_groups:
                group["fused"] = group["foreach"] = False  # fused kernels have no meta form
            each.step()
        states = (value for each in optimizers for state in each.state.values() for value in state.values())
        parts = {
            "parameters": _bytes(model.parameters()),
            "gradients": _bytes(p.grad for p in model.parameters() if p.grad is not None),
            "optimizer_states": _bytes(states),
        }
        return {**parts, "total": sum(parts.values())}
    finally:
        distributed.destroy_process_group()


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(local_part(tensor).numel() * local_part(tensor).element_size() for tensor in tensors)


def largest_differences(corpus: Path, steps: int) -> dict[str, float]:
    """The largest difference of the loss of a step from that of one process, by optimizer, way and processes."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for optimizer in OPTIMIZERS:
            runs = {(1, "ddp"): {}, (2, "ddp"): {}, (4, "ddp"): {}, (2, "fsdp"): {}, (4, "fsdp"): {}}
            for size, parallel in runs:
                output = Path(folder, f"{optimizer}-{parallel}-{size}")
                settings = (f"optimizer.name={optimizer}", f"run.parallel={parallel}", f"schedule.max_steps={steps}")
                _pretrain(corpus, output, size, [*SMALL, *settings])
                runs[size, parallel] = _losses(output)
            alone = runs.pop((1, "ddp"))
            for (size, parallel), losses in runs.items():
                assert losses.keys() == alone.keys() == {*range(1, steps + 1)}
                name = f"{optimizer} {parallel} {size} processes"
                found[name] = max(abs(losses[step] - alone[step]) for step in alone)
                print(f"{name}: {found[name]:.2e}", flush=True)
    return found


def _pretrain(corpus: Path, output: Path, size: int, settings: Sequence[str]) -> None:
    starter = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
    arguments = ["pretrain", "bert", "-c", str(corpus), "-o", str(output), "--device", "cpu"]
    arguments += [part for setting in settings for part in ("--set", setting)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*starter, "-m", "benchmarks.distributed", WORKER, *arguments], check=True, env=environment)


def _losses(output: Path) -> dict[int, float]:
    events = map(json.loads, (output / "events.jsonl").read_text(encoding="utf-8").splitlines())
    return {event["step"]: event["loss"] for event in events if event["type"] == "step"}


def _work(arguments: Sequence[str]) -> int:
    """One process of a run, which logs every step."""
    from regard.cli import app
    from regard.training import speed, trainer

    trainer.LOG_EVERY, speed.SECONDS = 0.0, 0.1
    return app.run(arguments)


def main() -> None:
    if sys.argv[1:2] == [WORKER]:
        raise SystemExit(_work(sys.argv[2:]))
    parser = argparse.ArgumentParser(description="Memory and losses of training in several processes.")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--save")
    options = parser.parse_args()
    results: dict[str, object] = {"model": "bert-large, 336,226,108 parameters, float32"}
    for optimizer in OPTIMIZERS:
        each = {str(size): memory(size, optimizer) for size in options.processes}
        results[f"bytes per process, {optimizer}"] = each
        for size, parts in each.items():
            print(f"{optimizer} {size:>2} processes: {parts['total'] / 1e9:.3f} GB", flush=True)
    if options.corpus:
        results["steps"] = options.steps
        results["largest difference of the loss from one process"] = largest_differences(options.corpus, options.steps)
    if options.save:
        print(save_results(options.save, results))


if __name__ == "__main__":
    main()
