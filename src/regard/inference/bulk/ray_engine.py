"""Bulk jobs on Ray: actors, on this machine or on a cluster, compute whole shards. The only file that knows Ray.

The process of the command reads the rows, numbers the shards and takes each result once; Ray places the actors,
carries rows and results, starts actors again that died and repeats their shards. A worker loads the model from its
folder, which must have the same path and content on every node.

These are actors of Ray Core, and not a dataset of Ray Data, because a dataset has to be read again by remote tasks: it
takes no rows from a generator in this process, and its own readers do not give the rows of `regard.data.rows` (line
numbers, quoted cells, missing texts), so that neither the numbers of the shards nor their rows would be exact.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import torch

from regard.errors import InputError, RegardError
from regard.inference.bulk.shards import Block
from regard.inference.bulk.workers import IN_FLIGHT, Compute, Computed, ShardTask, WorkerSetup
from regard.worker_process import WorkerFailure

ATTEMPTS = 6  # of a shard whose worker dies; a shard that needs too much memory would be repeated forever
CONNECT_SECONDS = 10
# Ray reports its use over the network and changes CUDA_VISIBLE_DEVICES of workers without a GPU, unless told not to.
ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


@dataclass(frozen=True)
class RayCluster:
    """Where a job runs. Without an `address` Ray is started on this machine, and stopped at the end.

    `workers` are as many as fit by default; `gpus_per_worker` may be a fraction, and is 1 if the cluster has GPUs.
    """

    address: str | None = None
    workers: int | None = None
    gpus_per_worker: float | None = None


def compute_on_ray(
    task: ShardTask,
    cluster: RayCluster,
    shards: Iterable[tuple[int, Iterator[Any]]],
    *,
    count: int,
    remedy: str,
) -> Computed:
    """Compute `count` numbered shards in Ray workers, at most `IN_FLIGHT` per worker at a time.

    Yields the number of a shard with a block, or with None when it is complete; shards come in any order. If shards
    have errors, that of the first one is raised, as in a single process. `remedy` ends the message about lost workers.
    """
    with _connection(cluster.address) as ray:
        num_workers, resources, device = _allot(ray, cluster, count)
        threads = max(1, int(resources["num_cpus"]))  # more than what Ray reserves would compete with other workers
        setup = WorkerSetup(task, device, threads, torch.get_float32_matmul_precision())
        actor = ray.remote(max_restarts=-1, max_task_retries=ATTEMPTS - 1, **resources)(ShardWorker)
        workers = [actor.remote(setup, version("regard")) for _ in range(num_workers)]
        # Only a worker that has loaded the model gets shards: one that waits for a node keeps none from the others.
        pending: dict[Any, tuple[Any, int | None]] = {worker.load.remote(): (worker, None) for worker in workers}
        waiting, exhausted, failures = iter(shards), False, dict[int, WorkerFailure]()
        try:
            while True:
                numbers = [number for _, number in pending.values() if number is not None]
                # After a failure only shards before it matter: the first one with an error is reported.
                if not any(number < min(failures) for number in numbers) if failures else exhausted and not numbers:
                    break
                (ready,), _ = ray.wait(list(pending), num_returns=1)
                worker, number = pending.pop(ready)
                result = _get(ray, ready, number, remedy)
                if isinstance(result, WorkerFailure):
                    if number is None:
                        raise result.error()
                    failures[number] = result
                for _ in range(IN_FLIGHT if number is None else 1):
                    shard = next(waiting, None) if not failures else None
                    if shard is not None:
                        pending[worker.compute.remote(list(shard[1]))] = worker, shard[0]
                    exhausted = shard is None
                if number is not None and not isinstance(result, WorkerFailure):
                    for block in result:
                        yield number, block
                    yield number, None
            if failures:
                raise failures[min(failures)].error()
        finally:
            for worker in workers:
                with suppress(Exception):  # the cluster may be gone, which is reported already
                    ray.kill(worker)


class ShardWorker:
    """The actor. It starts again with the same arguments after its process or its node died."""

    def __init__(self, setup: WorkerSetup, expected_version: str) -> None:
        self._setup, self._expected = setup, expected_version
        self._compute: Compute | None = None

    def load(self) -> WorkerFailure | None:
        """Load the model, unless it is loaded."""
        try:
            if self._compute is None:
                if (found := version("regard")) != self._expected:
                    raise InputError(f"this node has regard {found}, expected {self._expected}; install the same one")
                self._compute = self._setup.load()
        except Exception as error:
            failure = WorkerFailure.of(error)
            where = f"Ray node {import_ray().util.get_node_ip_address()}: {failure.message}"
            if failure.kind == "input" and self._expected == version("regard"):
                where += " (the model must be at the same path on every node)"
            return replace(failure, message=where)
        return None

    def compute(self, rows: list[Any]) -> list[Block] | WorkerFailure:
        if failure := self.load():
            return failure
        assert self._compute is not None
        try:
            return [item for item in self._compute(iter(rows)) if isinstance(item, dict)]
        except Exception as error:
            return WorkerFailure.of(error)


def import_ray() -> Any:
    """Ray; InputError if it is not installed."""
    os.environ.update({name: value for name, value in ENVIRONMENT.items() if name not in os.environ})
    try:
        import ray
    except ImportError as error:
        raise InputError(
            "--engine ray needs Ray, which is not installed: pip install 'regard[scale]', or leave --engine out"
        ) from error
    return ray


@contextmanager
def _connection(address: str | None) -> Iterator[Any]:
    """Ray, connected to a cluster or started here; a connection of the caller is used and left open."""
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    verbose = logging.getLogger("regard").isEnabledFor(logging.DEBUG)
    options: dict[str, Any] = {"log_to_driver": verbose, "logging_level": logging.INFO if verbose else logging.FATAL}
    handler, worker = signal.getsignal(signal.SIGTERM), ray._private.worker
    printing = worker.print_to_stdstream
    if not verbose:  # Ray prints the death of workers to stdout, whatever its level of logging
        worker.print_to_stdstream = lambda *_, **__: None
    try:
        if address is None:
            ray.init("local", include_dashboard=False, **options)
        else:
            _check_reachable(ray, address)
            ray.init(address, **options)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        if address is None:
            raise RegardError(f"Ray could not be started on this machine ({reason})") from error
        raise InputError(
            f"there is no Ray cluster at {address} ({reason}); expected auto or ray://HOST:10001 of a running one; "
            "without --address Ray is started on this machine"
        ) from error
    try:
        if handler is not None and signal.getsignal(signal.SIGTERM) is not handler:
            signal.signal(signal.SIGTERM, handler)  # Ray's would exit at once
        yield ray
    finally:
        ray.shutdown()
        worker.print_to_stdstream = printing


def _check_reachable(ray: Any, address: str) -> None:
    """ConnectionError, at once, if nothing answers at an address; Ray would try for minutes."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or ray._private.utils.read_ray_address() or ""
        if not address:
            raise ConnectionError("Ray is not running on this machine")
    match = re.fullmatch(r"(?:ray://)?(?:\[(.+)\]|([^/:]+)):(\d{1,5})", address)
    if match is None:
        raise ConnectionError("it is not an address")
    try:
        socket.create_connection((match[1] or match[2], int(match[3])), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConnectionError(getattr(error, "strerror", None) or str(error)) from error


def _allot(ray: Any, cluster: RayCluster, count: int) -> tuple[int, dict[str, float], torch.device]:
    """The number of workers, what Ray reserves for each, and the device that they compute on."""
    found = ray.cluster_resources()
    cpus, gpus = float(found.get("CPU", 0)), float(found.get("GPU", 0))
    share = cluster.gpus_per_worker if cluster.gpus_per_worker is not None else min(gpus, 1.0)
    if share > gpus:
        raise InputError(f"--gpus-per-worker {share:g}: the Ray cluster has {gpus:g} GPUs; 0 computes on CPUs")
    threads = torch.get_num_threads()
    fitting = int(gpus / share) if share else int(cpus) // threads
    num_workers = max(1, min(cluster.workers or fitting, count))
    reserved = 1 if share else threads
    # Workers that were asked for share the CPUs; a reservation that is never met would wait forever.
    resources = {"num_cpus": min(float(reserved), cpus / num_workers), "num_gpus": share}
    return num_workers, resources, torch.device("cuda" if share else "cpu")


def _get(ray: Any, ready: Any, number: int | None, remedy: str) -> Any:
    """What a worker returned, or the failure of a shard whose worker died too often.

    The shard that waits behind such a one loses its attempts, too; the first of them is reported, as for any failure.
    """
    try:
        return ray.get(ready)
    except ray.exceptions.RayError as error:
        if "No module named 'regard'" in str(error):
            raise InputError("a Ray node has no regard; install the same version on every node") from error
        what = "a Ray worker could not load the model" if number is None else f"shard {number} could not be computed"
        return WorkerFailure(
            "regard",
            f"{what}: its worker ended unexpectedly {ATTEMPTS} times ({type(error).__name__}); there may be too little "
            f"memory; {remedy}",
        )
