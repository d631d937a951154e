"""Bulk embedding on Ray: killed workers and a killed driver (R13), overhead of the engine, and a simulation.

    python -m benchmarks.scale kills [--shards 1000] [--kills 10] [--workers 2] [--save]
    python -m benchmarks.scale overhead [--shards 60] [--rounds 3] [--save]
    python -m benchmarks.scale driver [--rows 200000] [--save]
    python -m benchmarks.scale simulate [--save]

kills: embeds a file in one process, and on Ray while workers are killed with SIGKILL at random moments; compares the
outputs byte by byte and row by row; runs the same command again; kills the driver and starts it again; and compares
the time with that of the simulation for the same shards, kills and workers. overhead: one worker on this machine
against one process, from the first finished shard to the last. driver: rows per second that the process of the command
reads, hashes and sends, which limits a cluster. simulate: makespan and wasted work for more workers and
rates of failure, with the shard times that `kills` measured. All of it on this machine, with the built-in model.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.timing import RESULTS, save_results

MODEL = "regard-embed"
IN_FLIGHT = 2  # shards that a worker holds, as in `regard.inference.bulk.workers`
WORDS = (
    "the",
    "film",
    "was",
    "long",
    "and",
    "dull",
    "but",
    "actors",
    "were",
    "good",
    "music",
    "of",
    "a",
    "small",
    "town",
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    kills = commands.add_parser("kills")
    kills.add_argument("--shards", type=int, default=1000)
    kills.add_argument("--shard-size", type=int, default=4)
    kills.add_argument("--kills", type=int, default=10)
    kills.add_argument("--workers", type=int, default=2)
    overhead = commands.add_parser("overhead")
    overhead.add_argument("--shards", type=int, default=60)
    overhead.add_argument("--shard-size", type=int, default=64)
    overhead.add_argument("--rounds", type=int, default=3)
    driver = commands.add_parser("driver")
    driver.add_argument("--rows", type=int, default=200_000)
    commands.add_parser("simulate")
    for command in commands.choices.values():
        command.add_argument("--save", action="store_true", help="write benchmarks/results/scale-COMMAND.json")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        if options.command == "kills":
            results = measure_kills(Path(folder), options.shards, options.shard_size, options.kills, options.workers)
        elif options.command == "overhead":
            results = measure_overhead(Path(folder), options.shards, options.shard_size, options.rounds)
        elif options.command == "driver":
            results = measure_driver(Path(folder), options.rows)
        else:
            results = simulate_grid(json.loads((RESULTS / "scale-kills.json").read_text()))
    print(json.dumps(results, indent=2))
    if options.save:
        print(save_results(f"scale-{options.command}", results))


# What is measured.


@dataclass
class Run:
    """A run of a job: when each row count was reached, in seconds since its start."""

    result: Any
    seconds: float
    progress: list[tuple[float, int]]
    killed: list[float] = field(default_factory=list)  # moments, by the clock
    computed: list[tuple[int, float, float]] = field(default_factory=list)  # process, begin and end of every shard

    def shard_times(self) -> list[float]:
        return [end - begin for _, begin, end in self.computed]

    def restarts(self) -> list[float]:
        """Seconds from each kill until a new process computes."""
        first: dict[int, float] = {}
        for pid, begin, _ in sorted(self.computed, key=lambda one: one[1]):
            first.setdefault(pid, begin)
        begins, found = deque(sorted(first.values())), []
        for moment in self.killed:
            while begins and begins[0] < moment:
                begins.popleft()
            if begins:
                found.append(begins.popleft() - moment)
        return found


def embed(
    source: Path, output: Path, *, shard_size: int, ray: bool = False, workers: int = 1, kill_at: Sequence[int] = ()
) -> Run:
    """Embed a file; kill a worker each time that a number of rows in `kill_at` is reached."""
    from regard.inference.bulk.job import BulkProgress
    from regard.inference.bulk.ray_engine import RayCluster
    from regard.inference.embedding.bulk import embed_events
    from regard.inference.load_model import load_model

    cluster = RayCluster(workers=workers, gpus_per_worker=0) if ray else None
    start = time.perf_counter()
    events = embed_events(source, output, lambda: load_model(MODEL), shard_size=shard_size, cluster=cluster)
    run, waiting, chooser = Run(None, 0.0, []), deque(sorted(kill_at)), random.Random(0)
    with closing(events), timed_shards(output.with_suffix(".times"), run):
        while True:
            try:
                event = next(events)
            except StopIteration as end:
                run.result, run.seconds = end.value, time.perf_counter() - start
                print(f"{output.name}: {run.seconds:.1f} s, {len(run.killed)} kills", file=sys.stderr)
                return run
            if isinstance(event, BulkProgress):
                run.progress.append((time.perf_counter() - start, event.done))
                while waiting and event.done >= waiting[0]:
                    waiting.popleft()
                    if pids := worker_pids():
                        os.kill(chooser.choice(pids), signal.SIGKILL)
                        run.killed.append(time.time())


@contextmanager
def timed_shards(log: Path, run: Run) -> Iterator[None]:
    """Let workers note when they computed each shard."""
    from regard.inference.embedding import bulk

    load = bulk._load
    bulk._load = TimedLoad(log)  # type: ignore[assignment]
    try:
        yield
    finally:
        bulk._load = load
        lines = log.read_text().splitlines() if log.exists() else []
        run.computed = [(int(pid), float(begin), float(end)) for pid, begin, end in map(str.split, lines)]


@dataclass(frozen=True)
class TimedLoad:
    """What embeds shards in a worker, and notes when each was computed."""

    log: Path

    def __call__(self, *arguments: Any) -> Any:
        from regard.inference.embedding import bulk

        compute = bulk._load(*arguments)  # of the worker, where it is not replaced

        def timed(rows: Iterator[Any]) -> Iterator[Any]:
            begin = time.time()
            yield from compute(rows)
            with self.log.open("a") as file:
                file.write(f"{os.getpid()} {begin:.6f} {time.time():.6f}\n")

        return timed


def worker_pids() -> list[int]:
    """The processes of Ray workers that descend from this process."""
    parents: dict[int, int] = {}
    workers = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.name)] = int(stat[1])
        if command.startswith(b"ray::ShardWorker") and stat[0] not in "ZX":
            workers.append(int(entry.name))
    return [pid for pid in workers if os.getpid() in _ancestors(pid, parents)]


def _ancestors(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while pid := parents.get(pid, 0):
        yield pid


def measure_kills(folder: Path, num_shards: int, shard_size: int, num_kills: int, workers: int) -> dict[str, Any]:
    import pyarrow.parquet

    rows = num_shards * shard_size
    source = write_texts(folder / "texts.txt", rows)
    alone = embed(source, folder / "one.parquet", shard_size=shard_size)
    kill_at = sorted(random.Random(13).sample(range(shard_size, rows - shard_size), num_kills))
    disturbed = embed(source, folder / "ray.parquet", shard_size=shard_size, ray=True, workers=workers, kill_at=kill_at)
    undisturbed = embed(source, folder / "calm.parquet", shard_size=shard_size, ray=True, workers=workers)
    lines = pyarrow.parquet.read_table(folder / "ray.parquet")["line"].to_pylist()
    again = embed(source, folder / "ray.parquet", shard_size=shard_size, ray=True, workers=workers)
    assert len(disturbed.killed) == num_kills
    times, restart = disturbed.shard_times()[:num_shards], statistics.median(disturbed.restarts())
    begin = min(begin for _, begin, _ in disturbed.computed)
    end = max(end for _, _, end in disturbed.computed)
    simulated = simulate(times, workers=workers, restart=restart, kills=[one - begin for one in disturbed.killed])
    return {
        "model": MODEL,
        "shards": num_shards,
        "rows": rows,
        "workers": workers,
        "kills": len(disturbed.killed),
        "lines_exact": lines == list(range(1, rows + 1)),
        "duplicates": len(lines) - len(set(lines)),
        "bytes_equal_to_one_process": same_bytes(folder / "one.parquet", folder / "ray.parquet"),
        "second_run": {
            "already_done": again.result.already_done,
            "shards_computed": len(again.computed) - len(disturbed.computed),
            "seconds": round(again.seconds, 2),
        },
        "one_process_seconds": round(alone.seconds, 2),
        "undisturbed_seconds": round(undisturbed.seconds, 2),
        "disturbed_seconds": round(disturbed.seconds, 2),
        "driver": measure_driver_kill(folder, source, shard_size, workers),
        "shard_seconds": {
            "mean": round(statistics.mean(times), 4),
            "median": round(statistics.median(times), 4),
            "p99": round(sorted(times)[int(0.99 * len(times))], 4),
            "restart": round(restart, 2),
        },
        "simulation": {
            "measured_makespan": round(end - begin, 2),
            "simulated_makespan": round(simulated.makespan, 2),
            "simulated_wasted_share": round(simulated.wasted / sum(times), 4),
        },
        "shard_times": [round(value, 4) for value in times],
    }


def measure_driver_kill(folder: Path, source: Path, shard_size: int, workers: int) -> dict[str, Any]:
    """Kill the command with SIGKILL in the middle of its work, and run it again."""
    output = folder / "driver.parquet"
    command = [sys.executable, "-m", "regard", "embed", str(source), "--output", str(output), "--model", MODEL]
    command += ["--shard-size", str(shard_size), "--engine", "ray", "--workers", str(workers)]
    command += ["--gpus-per-worker", "0", "--device", "cpu"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    partial, wanted = output.with_name(f"{output.name}.partial"), 100
    while process.poll() is None and len(list(partial.glob("[0-9]*.npz"))) < wanted:
        time.sleep(0.05)
    process.kill()
    process.wait()
    kept = len(list(partial.glob("[0-9]*.npz")))
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    return {
        "shards_kept": kept,
        "continued": "continuing behind" in finished.stderr,
        "bytes_equal_to_one_process": same_bytes(folder / "one.parquet", output),
    }


def measure_overhead(folder: Path, num_shards: int, shard_size: int, rounds: int) -> dict[str, Any]:
    """Texts per second from the first finished shard to the last, in alternating rounds; the best of each counts."""
    source = write_texts(folder / "texts.txt", num_shards * shard_size)
    best = {"one process": 0.0, "ray, one worker": 0.0}
    for number in range(rounds):
        for name in best:
            run = embed(source, folder / f"{name}-{number}.npy", shard_size=shard_size, ray="ray" in name)
            finished = [(moment, done) for moment, done in run.progress if done and done % shard_size == 0]
            (begin, first), (end, last) = finished[0], finished[-1]
            best[name] = max(best[name], (last - first) / (end - begin))
            print(f"{name}: {(last - first) / (end - begin):.1f} texts/s", file=sys.stderr)
    return {
        "model": MODEL,
        "texts": num_shards * shard_size,
        "shard_size": shard_size,
        "threads": int(os.environ.get("OMP_NUM_THREADS", 0)) or os.cpu_count(),
        "texts_per_second": {name: round(rate, 1) for name, rate in best.items()},
        "overhead": round(best["one process"] / best["ray, one worker"] - 1, 4),
    }


def measure_driver(folder: Path, num_rows: int) -> dict[str, Any]:
    """Rows per second of the scan before a job, and of reading and pickling shards for workers; best of 5 rounds."""
    import pickle

    from regard.data.readers import TableOptions
    from regard.inference.bulk.job import SHARD_SIZE
    from regard.inference.embedding.bulk import scan_texts

    source = write_texts(folder / "texts.txt", num_rows)
    scan = send = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        with tempfile.TemporaryFile("w+") as spool:
            texts = scan_texts(source, table=TableOptions(), spool=spool)
        scanned = time.perf_counter()
        rows, size = iter(texts), 0
        while shard := list(islice(rows, SHARD_SIZE)):
            size += len(pickle.dumps(shard, protocol=5))
        scan, send = min(scan, scanned - begin), min(send, time.perf_counter() - scanned)
    return {
        "rows": num_rows,
        "scan_rows_per_second": round(num_rows / scan),
        "send_rows_per_second": round(num_rows / send),
        "bytes_per_row": round(size / num_rows, 1),
    }


def write_texts(path: Path, count: int) -> Path:
    chooser = random.Random(0)
    lines = (" ".join(chooser.choices(WORDS, k=chooser.randint(4, 24))) for _ in range(count))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def same_bytes(one: Path, other: Path) -> bool:
    return one.read_bytes() == other.read_bytes()


# What is simulated.


@dataclass
class Outcome:
    """`makespan` is the time until the last shard is finished; `wasted` seconds of work were lost with workers."""

    makespan: float
    wasted: float
    failures: int


def simulate(
    times: Sequence[float],
    *,
    workers: int,
    restart: float,
    kills: Iterable[float] = (),
    mean_time_to_failure: float | None = None,
    slow_share: float = 0.0,
    slow_factor: float = 1.0,
    seed: int = 0,
) -> Outcome:
    """Run shards of these times on workers as the engine does.

    A worker holds `IN_FLIGHT` shards: it computes the first, and the others wait. When it fails, the shard that it
    computes is lost and begins again after `restart` seconds, on the same worker, together with those that wait.
    `kills` are moments at which one of the workers that compute fails; with a `mean_time_to_failure` each worker fails
    at random ones. A share of the workers is slower by a factor.
    """
    chooser = random.Random(seed)
    speed = [slow_factor if number < slow_share * workers else 1.0 for number in range(workers)]
    pending, queues = deque(times), [deque[float]() for _ in range(workers)]
    finishing, began, version = [0.0] * workers, [0.0] * workers, [0] * workers
    events: list[tuple[float, int, str, int, int]] = []
    serial = iter(range(sys.maxsize))

    def push(moment: float, kind: str, worker: int) -> None:
        heapq.heappush(events, (moment, next(serial), kind, worker, version[worker]))

    def begin(worker: int, now: float) -> None:
        if queues[worker]:
            began[worker] = now
            finishing[worker] = now + queues[worker][0] * speed[worker]
            push(finishing[worker], "done", worker)

    for _ in range(IN_FLIGHT):
        for queue in queues:
            if pending:
                queue.append(pending.popleft())
    for worker in range(workers):
        begin(worker, 0.0)
        if mean_time_to_failure is not None:
            push(chooser.expovariate(1 / mean_time_to_failure), "fail", worker)
    for moment in kills:
        push(moment, "kill", 0)
    makespan, wasted, failures, left = 0.0, 0.0, 0, len(times)
    while left:
        now, _, kind, worker, issued = heapq.heappop(events)
        if kind == "done":
            if issued != version[worker]:
                continue  # the worker failed meanwhile
            queues[worker].popleft()
            left, makespan = left - 1, now
            if pending:
                queues[worker].append(pending.popleft())
            begin(worker, now)
            continue
        if kind == "kill":
            computing = [number for number in range(workers) if queues[number] and began[number] <= now]
            worker = chooser.choice(computing or range(workers))
        failures += 1
        version[worker] += 1
        if queues[worker]:
            wasted += max(0.0, now - began[worker])
            begin(worker, now + restart)
        if kind == "fail" and mean_time_to_failure is not None:
            push(now + restart + chooser.expovariate(1 / mean_time_to_failure), "fail", worker)
    return Outcome(makespan, wasted, failures)


def simulate_grid(measured: dict[str, Any]) -> dict[str, Any]:
    """10 billion short texts on H200s, with the spread of the measured shard times around the rate of `regard cost`."""
    from regard.inference.embedding.cost import SHORT, estimate_embedding
    from regard.models import BertConfig

    estimate = estimate_embedding(BertConfig(), name="bert-base-uncased", texts=10**10, length=SHORT)
    mean = statistics.mean(measured["shard_times"])
    spread = [value / mean * estimate.seconds_per_shard for value in measured["shard_times"]]
    chooser = random.Random(1)
    times = chooser.choices(spread, k=estimate.shards)
    restart = 60.0  # a new node: its start is longer than that of the process that was measured
    rows = []
    for workers in (16, 64, 256, 1024):
        ideal = sum(times) / workers
        for hours in (None, 100.0, 10.0, 1.0):
            for slow in (0.0, 0.05):
                failure = None if hours is None else hours * 3600
                found = simulate(
                    times,
                    workers=workers,
                    restart=restart,
                    mean_time_to_failure=failure,
                    slow_share=slow,
                    slow_factor=3.0,
                )
                rows.append(
                    {
                        "workers": workers,
                        "hours_to_failure_of_a_worker": hours,
                        "slow_workers": slow,
                        "ideal_hours": round(ideal / 3600, 3),
                        "makespan_hours": round(found.makespan / 3600, 3),
                        "failures": found.failures,
                        "wasted_share": round(found.wasted / sum(times), 6),
                    }
                )
    return {"texts": 10**10, "shards": estimate.shards, "restart_seconds": restart, "runs": rows}


if __name__ == "__main__":
    main()
