"""Bulk jobs on Ray: the output of one process, whatever dies on the way; errors in one line; no process is left behind.

Most tests share one Ray on this machine with two workers of one CPU. `benchmarks/scale.py` has the full form of R13.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

import regard
from benchmarks.scale import worker_pids
from regard.cli.app import run
from regard.data.readers import TableOptions
from regard.errors import InputError, RegardError
from regard.inference.bulk import ray_engine
from regard.inference.bulk.job import BulkProgress
from regard.inference.bulk.ray_engine import RayCluster, ShardWorker, compute_on_ray
from regard.inference.bulk.workers import WorkerSetup
from regard.inference.embedding import bulk as embedding
from regard.inference.embedding.engine import EmbeddingEngine
from regard.tasks.fine_tuned_model import save_fine_tuned
from regard.worker_process import WorkerFailure
from tests.heartbeat import without_heartbeat
from tests.inference.bulk import scripted
from tests.inference.measure import embed_file
from tests.object_store import ObjectStore
from tests.tasks.prediction.models import TASKS, random_model

pytestmark = [pytest.mark.long, pytest.mark.skipif(os.name != "posix", reason="Ray is tested on POSIX systems")]
CPUS = RayCluster(workers=2, gpus_per_worker=0)
TEXTS = [f"the film was {'so ' * (number % 7)}long" for number in range(60)]
TEXTS[9] = ""


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """A Ray of this machine, with workers that are started once."""
    module = ray_engine.import_ray()
    root = str(Path(__file__).parents[3])
    environment = {"PYTHONPATH": os.pathsep.join([root, *sys.path]), "OMP_NUM_THREADS": "1"}
    module.init(
        "local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100_000_000,
        runtime_env={"env_vars": environment},
    )
    yield module
    module.shutdown()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS), encoding="utf-8")
    return path


@pytest.fixture
def options(tiny_bert_folder: Path) -> dict[str, Any]:
    return {"model": tiny_bert_folder, "shard_size": 4, "max_length": 8, "device": "cpu"}


def test_killed_workers_leave_the_bytes_of_one_process(
    ray: Any,
    file: Path,
    tmp_path: Path,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, output = tmp_path / "one.npy", tmp_path / "ray.npy"
    alone = embed_file(file, one, **options)
    kills: list[int] = []

    def kill(progress: BulkProgress) -> None:
        if progress.done and len(kills) < 2 and progress.done >= 20 * len(kills) and (pids := worker_pids()):
            kills.append(pids[len(kills) % len(pids)])
            os.kill(kills[-1], signal.SIGKILL)

    monkeypatch.setattr(EmbeddingEngine, "embed_steps", lambda *_: pytest.fail("this process computes"))
    result = embed_file(file, output, cluster=CPUS, on_progress=kill, **options)
    assert len(kills) == 2
    assert output.read_bytes() == one.read_bytes()
    assert (result.rows, result.cut, result.missing) == (alone.rows, alone.cut, alone.missing)
    monkeypatch.setattr("regard.inference.bulk.job.compute_on_ray", lambda *_, **__: pytest.fail("it computes again"))
    assert embed_file(file, output, cluster=CPUS, **options).already_done
    parts = tmp_path / "parts"
    monkeypatch.undo()
    embed_file(file, tmp_path / "expected", **options)
    embed_file(file, parts, cluster=CPUS, **options)
    names = sorted(path.name for path in parts.iterdir())
    assert names == ["_regard.json", *(f"part-{number:06d}.parquet" for number in range(15))]
    assert all((parts / name).read_bytes() == (tmp_path / "expected" / name).read_bytes() for name in names)


def test_predictions_equal_those_of_one_process(ray: Any, tiny_bert_folder: Path, tmp_path: Path) -> None:
    folder, source = tmp_path / "model", tmp_path / "in.jsonl"
    save_fine_tuned(random_model(TASKS["classify"], tiny_bert_folder), folder)
    source.write_text("".join(json.dumps({"text": text, "id": n}) + "\n" for n, text in enumerate(TEXTS)))
    common: dict[str, Any] = {"keep": ["id"], "shard_size": 7, "device": "cpu"}
    regard.predict(folder, source, output=tmp_path / "one.jsonl", **common)
    cluster = {"engine": "ray", "workers": 2, "gpus_per_worker": 0}
    result = regard.predict(folder, source, output=tmp_path / "ray.jsonl", **cluster, **common)
    assert (result.rows, result.blank) == (60, 1)
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "ray.jsonl").read_bytes()


def test_workers_write_parts_to_an_object_store(
    ray: Any, object_store: ObjectStore, file: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    from regard.files import storage

    object_store.put({"in/a.txt": "\n".join(TEXTS[:31]).encode(), "in/b.txt": "\n".join(TEXTS[31:]).encode()})
    task = EnvironmentTask(object_store.server.environment())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.inference.embedding.bulk._load", task)
        source, output = f"{object_store.address}/in", f"{object_store.address}/out"
        result = embed_file(source, output, cluster=CPUS, **options)
    assert result.rows == 60
    embed_file(file, tmp_path / "parts", **options)
    expected = pq.read_table(tmp_path / "parts")["vector"].to_pylist()
    found = [
        row
        for address in storage.list_files(output)
        for row in pq.ParquetFile(storage.open_input(address)).read()["vector"].to_pylist()
    ]
    assert found == expected


class EnvironmentTask:
    """Loads a model in workers, which run already, after they got the variables of an object store."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment

    def __call__(self, *arguments: Any) -> Any:
        os.environ.update(self.environment)
        return embedding._load(*arguments)


def compute(shards: list[list[Any]], task: Any = None, workers: int = 1) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    numbered = enumerate(map(iter, shards))
    options: dict[str, Any] = {"count": len(shards), "remedy": "the same command continues"}
    cluster = RayCluster(workers=workers, gpus_per_worker=0)
    for number, item in compute_on_ray(task or scripted.Scripted(), cluster, numbered, **options):
        found.setdefault(number, []).append(item["lines"].tolist() if isinstance(item, dict) else item)
    return found


def test_errors_of_shards_are_one_line(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = compute([[10 * number, 10 * number + 1] for number in range(9)])
    assert found == {number: [[10 * number], [10 * number + 1], None] for number in range(9)}
    with pytest.raises(InputError, match=r"^first$"):
        compute([[*range(50), "first"], ["second"], ["third"], [4]], workers=2)
    monkeypatch.setattr(ray_engine, "ATTEMPTS", 2)
    # On a busy machine the worker may die before the shard that it computed before, 0, has been fetched from it.
    with pytest.raises(RegardError, match=r"shard [01] .*worker ended unexpectedly 2 times"):
        compute([[0], ["die"], [2]])
    with pytest.raises(InputError, match=r"--gpus-per-worker 1: .*has 0 GPUs; 0 computes on CPUs"):
        list(compute_on_ray(scripted.Scripted(), RayCluster(gpus_per_worker=1), iter([]), count=1, remedy=""))


def test_errors_of_a_worker_are_one_line() -> None:
    def failure(task: Any, rows: list[Any], expected: str = version("regard")) -> WorkerFailure:
        setup = WorkerSetup(task, torch.device("cpu"), torch.get_num_threads(), "highest")
        found = ShardWorker(setup, expected).compute(rows)
        assert isinstance(found, WorkerFailure)
        return found

    assert failure(scripted.Scripted(), ["bad row"]) == WorkerFailure("input", "bad row")
    bug = failure(scripted.Scripted(), ["bug"])
    assert (bug.kind, bug.message) == ("bug", "KeyError: 'bug'") and "Traceback" in bug.traceback
    absent = failure(scripted.Scripted("there is no folder m"), [1])
    assert re.fullmatch(
        r"Ray node [\d.]+: there is no folder m \(the model must be at the same path on every node\)", absent.message
    )
    other = failure(scripted.Scripted(), [1], expected="0.0.1")
    assert re.search(r"this node has regard \S+, expected 0\.0\.1; install the same one", other.message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "ray"], "--engine ray needs --output"),
        (["--workers", "2", "--output", "x.npy"], "--workers is for a cluster; add --engine ray"),
        (["--engine", "ray", "--output", "x.npy", "--gpus-per-worker", "2"], "gpus_per_worker is 2.0; expected"),
        (
            ["--engine", "ray", "--output", "x.npy", "--address", "auto"],
            "there is no Ray cluster at auto (Ray is not running",
        ),
        (["--engine", "ray", "--output", "x.npy", "--address", "127.0.0.1:1"], "at 127.0.0.1:1 (Connection refused)"),
        (["--engine", "ray", "--output", "x.npy", "--address", "ray://x"], "at ray://x (it is not an address)"),
    ],
)
def test_bad_requests(
    arguments: list[str],
    message: str,
    file: Path,
    tiny_bert_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class NotRunning:
        is_initialized = staticmethod(lambda: False)
        _private = ray_engine.import_ray()._private
        monkeypatch.setattr(_private.utils, "read_ray_address", lambda: None)
        monkeypatch.delenv("RAY_ADDRESS", raising=False)

        @staticmethod
        def init(*_: Any, **__: Any) -> None:
            raise ConnectionError("could not connect")

    monkeypatch.setattr(ray_engine, "import_ray", NotRunning)
    monkeypatch.chdir(file.parent)
    assert run(["embed", str(file), "--model", str(tiny_bert_folder), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error


def test_without_ray_the_error_names_the_extra(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert run(["embed", str(file), "--output", "x.npy", "--engine", "ray"]) == 2
    assert "pip install 'regard[scale]'" in capsys.readouterr().err


def test_a_model_in_memory_is_refused(file: Path, tiny_bert_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--engine ray needs a model that is read from a folder"):
        regard.embed(file, output=tmp_path / "x.npy", model=regard.load(tiny_bert_folder), engine="ray")


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGINT, 130, id="SIGINT"),
        pytest.param(signal.SIGTERM, 143, id="SIGTERM", marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, -9, id="SIGKILL", marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("default_sigint")
def test_a_stopped_command_continues(
    number: signal.Signals, code: int, tiny_bert_folder: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    (tmp_path / "in.txt").write_text("the film was so long\n" * 4000)
    command = [sys.executable, "-m", "regard", "embed", "in.txt", "--output", "out.npy", "--shard-size", "4"]
    command += ["--model", str(tiny_bert_folder), "--device", "cpu", "--json"]
    cluster = ["--engine", "ray", "--workers", "1", "--gpus-per-worker", "0"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([*command, *cluster], cwd=tmp_path, env=environment, start_new_session=True, **pipes)
    with process:
        wait_for(lambda: len(list(tmp_path.glob("out.npy.partial/0*.npz"))) > 5)
        os.killpg(process.pid, number)  # as a terminal does
        out, error = process.communicate(timeout=200)
    assert process.returncode == code, error
    assert out == ""
    if number != signal.SIGKILL:
        assert without_heartbeat(error).count("\n") <= 4 and "Traceback" not in error
        assert "the finished part is kept in out.npy.partial: the same command continues" in error
    wait_for(lambda: not ray_processes(process.pid), seconds=120)
    unlimited = {**options, "max_length": None}
    result = embed_file(tmp_path / "in.txt", tmp_path / "out.npy", table=TableOptions(missing="keep"), **unlimited)
    assert result.resumed >= 20


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ray_processes(driver: int) -> list[str]:
    """The processes of the Ray that a command has started, by the number in the name of its folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes()
            if entry.name.isdigit() and f"_{driver}".encode() in environment and b"RAY_" in environment:
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.mark.slow
def test_a_dead_node_leaves_the_bytes_of_one_process(
    file: Path, tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster of two nodes on this machine, reached by its address."""
    module = ray_engine.import_ray()
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    embed_file(file, tmp_path / "one.npy", **options)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1)]

    def remove(progress: BulkProgress) -> None:
        if progress.done >= 20 and nodes:
            cluster.remove_node(nodes.pop(), allow_graceful=False)

    try:
        where = RayCluster(address=cluster.address, workers=2, gpus_per_worker=0)
        embed_file(file, tmp_path / "ray.npy", cluster=where, on_progress=remove, **options)
    finally:
        cluster.shutdown()
    assert not module.is_initialized() and not nodes
    assert (tmp_path / "ray.npy").read_bytes() == (tmp_path / "one.npy").read_bytes()


@pytest.mark.slow
def test_r13(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.scale import measure_kills

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[3]), *sys.path]))
    found = measure_kills(tmp_path, 1000, 4, 10, 2)
    assert (found["kills"], found["duplicates"], found["lines_exact"]) == (10, 0, True)
    assert found["bytes_equal_to_one_process"] and found["driver"]["bytes_equal_to_one_process"]
    assert found["second_run"]["already_done"] and found["driver"]["continued"]
