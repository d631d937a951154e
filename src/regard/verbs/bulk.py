"""The engine of a bulk job as fields of a request: this machine, or a cluster of Ray."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from regard.errors import InputError
from regard.verbs.base import force_option, option
from regard.verbs.tables import RowsRequest

if TYPE_CHECKING:
    from regard.inference.bulk.ray_engine import RayCluster

CLUSTER_GROUP = "Cluster"


class BulkRequest(RowsRequest):
    """Options of verbs that answer row by row into a file, on one machine or on many."""

    engine: Literal["local", "ray"] = option(
        "local",
        help="ray: compute shards in Ray workers (pip install 'regard[scale]'), with --output.",
        group=CLUSTER_GROUP,
    )
    address: str | None = option(
        None,
        help="Ray cluster: auto, or ray://HOST:10001. Default: start Ray on this machine.",
        metavar="ADDRESS",
        group=CLUSTER_GROUP,
    )
    workers: int | None = option(
        None, help="Ray workers. Default: as many as the cluster has room for.", metavar="N", ge=1, group=CLUSTER_GROUP
    )
    gpus_per_worker: float | None = option(
        None,
        help="0.5: two workers share a GPU; 0: CPUs. Default: 1 if the cluster has GPUs.",
        metavar="G",
        ge=0,
        le=1,
        group=CLUSTER_GROUP,
    )
    force: bool = force_option()


def cluster_of(request: BulkRequest, *, output: object) -> RayCluster | None:
    """The cluster that a request names; None for this machine. InputError for options that do not belong together."""
    if request.engine == "local":
        given = [name for name in ("address", "workers", "gpus_per_worker") if getattr(request, name) is not None]
        if given:
            raise InputError(f"--{given[0].replace('_', '-')} is for a cluster; add --engine ray, or leave it out")
        return None
    if output is None:
        raise InputError("--engine ray needs --output: its workers compute shards of a file")
    from regard.inference.bulk.ray_engine import RayCluster, import_ray

    import_ray()  # what is missing is an error before the work
    return RayCluster(request.address, request.workers, request.gpus_per_worker)
