"""The studio under malformed requests, overload and slow clients, on this machine.

    python -m benchmarks.studio_load [--model NAME] [--requests 10000] [--seconds 15] [--only fuzz,slow] [--save]

Starts `regard studio` on a free port of 127.0.0.1 and prints one JSON document:

`fuzz`      malformed requests, eight at a time, from a fixed seed: responses by status, connections that were reset or
            closed without a response, and the growth of the studio's resident memory after a warm-up of valid requests
            to every view.
`overload`  an open loop of Poisson arrivals, each on its own connection, at 0.9 and 4 times the capacity that a closed
            loop measured before: latencies, goodput relative to capacity, lost requests.
`threads`   Figure 1 alone and four requests at once, to an idle machine and beside two busy processes, with all threads
            for each request and with the default, one for a small model (`benchmarks/studio_threads.py`).
`slow`      clients that send headers or a body too slowly or not at all, and clients that disconnect while waiting.

Latencies are measured by this client, which shares the cores with the studio. If other programs are running, goodput
per CPU second of the studio is more reliable.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.serve_process import ServerProcess, start_server
from benchmarks.timing import save_results

TEXT = "The animal did not cross the street because it was too tired."
LINES = "\n".join(f"the film number {number} was {word} | {word}" for number in range(6) for word in ("good", "bad"))
VALID: dict[str, dict[str, Any]] = {
    "look": {"text": TEXT},
    "compare": {"text": "In Texas, they like to buy _.", "text_b": "In New York, they like to buy _."},
    "heads": {"text": TEXT},
    "senses": {"word": "film", "texts": "the film was good\na film is long"},
    "map": {"texts": LINES},
    "features": {"data": LINES},
    "figure": {"text": TEXT},
    "predict": {"source": TEXT},
    "generate": {"prompt": TEXT, "max_new_tokens": 5, "candidates": True},
    "ablate": {"text": "a short text", "at": "plain"},
    "faithfulness": {"text": "a short [MASK]"},
    "translate": {"source": TEXT, "steps": True},
    "image": {"name": "a.png", "content": "aGVsbG8="},
    "branch": {"prompt": TEXT, "ids": [1, 2]},
    "train": {"task": "classify", "path": "nowhere.tsv"},
    "training": {},
}
ACTIONS = ("image", "branch", "train", "training")  # endpoints of the page that are not verbs
FUZZ_CLIENTS = 8  # concurrent
TIMEOUT = 180.0  # seconds after which a request counts as lost
JSON = "application/json"


@dataclass
class Response:
    """The outcome of a request. `status` is 0 if the connection was closed without a response."""

    status: int = 0
    seconds: float = 0.0
    reset: bool = False
    headers: str = ""
    body: bytes = b""


async def send(
    studio: ServerProcess, content: bytes, *, disconnect: bool = False, timeout: float = TIMEOUT
) -> Response:
    """Send bytes on a new connection and read until the studio closes it; `disconnect` closes it at once instead."""
    begin, response = time.perf_counter(), Response()
    received = b""
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection("127.0.0.1", studio.port)
            try:
                writer.write(content)
                if disconnect:
                    return response
                with contextlib.suppress(ConnectionError):  # only the response matters
                    await writer.drain()
                while chunk := await reader.read(1 << 16):
                    received += chunk
            finally:
                writer.close()
    except ConnectionError:
        response.reset = True
    except TimeoutError:
        pass
    response.seconds = time.perf_counter() - begin
    head, _, response.body = received.partition(b"\r\n\r\n")
    found = re.match(rb"HTTP/1\.1 (\d{3})", head)
    response.status, response.headers = int(found[1]) if found else 0, head.decode("latin-1").lower()
    return response


def endpoint(name: str, suffix: str = "/view") -> str:
    return f"/api/{name}" if name in ACTIONS else f"/v1/{name}{suffix}"


def verb_request(studio: ServerProcess, name: str, arguments: object, *, tab: str = "", suffix: str = "/view") -> bytes:
    return studio.request(endpoint(name, suffix), json.dumps(arguments).encode(), tab=tab)


async def wait_for_models(studio: ServerProcess) -> list[str]:
    """Wait until all models are loaded, and return their names."""
    while True:
        response = await send(studio, studio.request("/api/models", method="GET"))
        models = json.loads(response.body)["models"]
        if all(model["state"] == "ready" for model in models):
            return [model["name"] for model in models]
        await asyncio.sleep(0.2)


# -- malformed requests


def malformed_request(studio: ServerProcess, models: list[str], rng: random.Random) -> tuple[str, bytes, bool]:
    """The kind of a malformed request, its bytes, and whether its client disconnects before the response."""
    kind = rng.choice([*MALFORMED])
    content = MALFORMED[kind](studio, models, rng)
    return kind, content, kind == "client leaves"


def _random_bytes(rng: random.Random, max_length: int = 200) -> bytes:
    return rng.randbytes(rng.randint(1, max_length))


def _bad_request_line(studio: ServerProcess, models: list[str], rng: random.Random) -> bytes:
    lines = [
        _random_bytes(rng) + b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
        b"POST /v1/look/view HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        b"GET /" + b"a" * rng.randint(10_000, 90_000) + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"b" * 70_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade, close\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + _random_bytes(rng) + b"\r\n\r\n",
    ]
    return rng.choice(lines)


def _bad_header(studio: ServerProcess, models: list[str], rng: random.Random) -> bytes:
    extra = [
        b"Content-Length: -5",
        b"Content-Length: 99999999999999999999",
        b"Content-Length: 3\r\nContent-Length: 4",
        b"Transfer-Encoding: gzip",
        b"Transfer-Encoding: chunked\r\nContent-Length: 3",
        b"A\x00B: c",
        b"no colon here",
        b": empty",
        b" folded: x",
        b"\r\n".join(b"X-%d: y" % number for number in range(3000)),
    ]
    head = f"POST /v1/look/view HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {studio.token}\r\n".encode()
    return head + b"Connection: close\r\n" + rng.choice(extra) + b"\r\n\r\n" + b"{}" * 20 + b"\r\n\r\n"


def _bad_chunks(studio: ServerProcess, models: list[str], rng: random.Random) -> bytes:
    head = (
        f"POST /v1/look/view HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {studio.token}\r\n"
        f"Connection: close\r\nContent-Type: {JSON}\r\nTransfer-Encoding: chunked\r\n\r\n"
    ).encode()
    return (
        head
        + rng.choice([b"zz\r\n{}\r\n0\r\n\r\n", b"-2\r\n{}\r\n", b"5\r\n{}\r\n0\r\n\r\n", _random_bytes(rng)])
        + b"\r\n\r\n"
    )


def _unauthenticated(studio: ServerProcess, models: list[str], rng: random.Random) -> bytes:
    body = json.dumps({"text": TEXT}).encode() * rng.choice([1, 1, 1, 20_000])
    path = rng.choice(["/", "/?token=" + "x" * 43, "/api/models", "/v1/look/view", "/static/x", "/api/train"])
    method, host = rng.choice(["GET", "POST", "PUT", "OPTIONS"]), rng.choice(["127.0.0.1", "evil.example"])
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n"
    cookies = [f"Cookie: regard-{studio.port}=wrong\r\n", "Cookie: \xff;;=\r\n"]
    credentials = rng.choice(["", "Authorization: Bearer wrong\r\n", *cookies])
    return (head + credentials + f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n").encode("latin-1") + body


def _bad_json(studio: ServerProcess, models: list[str], rng: random.Random) -> bytes:
    bodies = [
        b"{",
        b"",
        b"\xff\xfe",
        b"[" * rng.randint(1, 200_000),
        b'{"a":' * rng.randint(1, 50_000),
        b"[]",
        b"null",
        b"NaN",
        b'{"text": ' + b"9" * 100_000 + b"}",
        b'{"text": "\\ud800"',
        _random_bytes(rng, 100_000),
    ]
    return studio.request(endpoint(rng.choice([*VALID])), rng.choice(bodies))


def _too_large(studio: ServerProcess, models: list[str], rng: random.Random) -> bytes:
    name = rng.choice(["look", "map", "image"])
    size = rng.randint(1_000_001, 3_000_000) + (12_000_000 if name == "image" and rng.random() < 0.1 else 0)
    return studio.request(endpoint(name), b'"' + b"a" * size + b'"')


def _odd_value(rng: random.Random) -> object:
    values: list[Callable[[], object]] = [
        lambda: None,
        lambda: rng.randint(-(10**9), 10**9),
        lambda: 1e308,
        lambda: [],
        lambda: {"a": {"b": []}},
        lambda: True,
        lambda: "",
        lambda: " \n\t",
        lambda: "x" * rng.choice([20_001, 300_001]),
        lambda: "\x00\ud800\u202e😀",
        lambda: "".join(chr(rng.randint(0, 0x10FFFF)) for _ in range(50)),
        lambda: "../../../../etc/passwd",
        lambda: "/dev/zero",
        lambda: "nan",
        lambda: "9" * 5000,
        lambda: "0.*,9.9",
        lambda: "a word\n" * rng.randint(1, 50),
    ]
    return rng.choice(values)()


def _bad_arguments(studio: ServerProcess, models: list[str], rng: random.Random) -> bytes:
    name = rng.choice([*VALID])
    arguments: dict[str, object] = {"model": rng.choice(models), **VALID[name]}
    for key in rng.sample([*arguments], k=rng.randint(1, len(arguments))):
        arguments[key] = _odd_value(rng)
    for key in rng.sample(
        ["layer", "head", "num_beams", "at", "heads", "layers", "label", "image", "target", "pooling"], k=2
    ):
        arguments[key] = _odd_value(rng)
    suffix = rng.choice(["", "/view", "/view", "/page", "/events"])
    return verb_request(studio, name, arguments, tab=str(rng.randint(0, 40)), suffix=suffix)


def _bad_path(studio: ServerProcess, models: list[str], rng: random.Random) -> bytes:
    path = rng.choice(
        ["/%00", "/..%2f..%2fetc/passwd", "//", "/api/", "/api/%ff%fe", "/v1/look/x", "/v1/a/b/c", "/?a=b"]
    )
    return studio.request(path, b"{}", method=rng.choice(["GET", "POST", "DELETE", "HEAD", "BREW"]))


def _bad_content_type(studio: ServerProcess, models: list[str], rng: random.Random) -> bytes:
    return studio.request(
        "/v1/look/view",
        json.dumps({"text": TEXT}).encode(),
        content_type=rng.choice(["text/plain", "", "\xff", "a" * 500]),
    )


def _truncated(studio: ServerProcess, models: list[str], rng: random.Random) -> bytes:
    whole = verb_request(studio, "look", {"model": rng.choice(models), "text": TEXT})
    return whole[: rng.randint(1, len(whole))]


MALFORMED: dict[str, Callable[[ServerProcess, list[str], random.Random], bytes]] = {
    "bad request line": _bad_request_line,
    "bad header": _bad_header,
    "bad chunks": _bad_chunks,
    "no or wrong token": _unauthenticated,
    "bad JSON": _bad_json,
    "too large": _too_large,
    "bad arguments": _bad_arguments,
    "bad path": _bad_path,
    "bad content type": _bad_content_type,
    "client leaves": _truncated,
}


async def fuzz(studio: ServerProcess, models: list[str], requests: int) -> dict[str, Any]:
    for _ in range(2):
        for name, arguments in VALID.items():
            for model in models:
                await send(studio, verb_request(studio, name, {"model": model, **arguments}))
    before, peak = studio.memory_mb, 0.0
    rng, statuses, failures = random.Random(0), Counter[str](), list[str]()
    outcomes: Counter[str] = Counter()
    remaining = requests

    async def client() -> None:
        nonlocal remaining, peak
        while remaining > 0:
            remaining -= 1
            kind, content, disconnects = malformed_request(studio, models, rng)
            response = await send(studio, content, disconnect=disconnects)
            if disconnects:
                continue
            statuses[str(response.status)] += 1
            outcome = (
                "reset"
                if response.reset
                else "no answer"
                if not response.status
                else "5xx"
                if response.status >= 500
                else ""
            )
            if outcome:
                outcomes[outcome] += 1
                if len(failures) < 20:
                    failures.append(f"{kind}: {outcome} {response.status} {response.body[:200]!r} to {content[:300]!r}")
            peak = max(peak, studio.memory_mb) if remaining % 50 == 0 else peak

    begin = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(FUZZ_CLIENTS)))
    await asyncio.sleep(2)
    after = studio.memory_mb
    return {
        "requests": requests,
        "seconds": round(time.perf_counter() - begin, 1),
        "statuses": dict(sorted(statuses.items())),
        "5xx": outcomes["5xx"],
        "resets": outcomes["reset"],
        "no answer": outcomes["no answer"],
        "memory MB": {"after warm-up": round(before), "after": round(after), "highest": round(peak)},
        "growth MB": round(after - before, 1),
        "wrong": failures,
    }


# -- overload


@dataclass
class OpenLoopResult:
    """The responses to an open loop of requests. Latencies are in seconds."""

    rate: float
    seconds: float
    cpu_seconds: float  # of the studio
    responses: list[Response] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        accepted = [response.seconds for response in self.responses if response.status == 200]
        shed = [response for response in self.responses if response.status == 429]
        return {
            "offered per second": round(self.rate, 1),
            "requests": len(self.responses),
            "accepted": len(accepted),
            "shed": len(shed),
            "lost": len(self.responses) - len(accepted) - len(shed),
            "shed without Retry-After": sum("retry-after:" not in response.headers for response in shed),
            "answered per second": round(len(accepted) / self.seconds, 1),
            "answered per processor second": round(len(accepted) / self.cpu_seconds, 1),
            "accepted p50 ms": _percentile_ms(accepted, 0.5),
            "accepted p99 ms": _percentile_ms(accepted, 0.99),
            "shed p99 ms": _percentile_ms([response.seconds for response in shed], 0.99),
        }


def _percentile_ms(seconds: list[float], quantile: float) -> float | None:
    ordered = sorted(seconds)
    return round(1000 * ordered[min(len(ordered) - 1, int(quantile * len(ordered)))], 1) if ordered else None


async def overload(studio: ServerProcess, model: str, seconds: float) -> dict[str, Any]:
    def content(number: int) -> bytes:
        return verb_request(studio, "senses", {"model": model, **VALID["senses"]}, tab=str(number % 50))

    async def closed_loop(until: float, number: int) -> int:
        completed = 0
        while time.perf_counter() < until:
            completed += (await send(studio, content(number))).status == 200
        return completed

    await closed_loop(time.perf_counter() + min(3.0, seconds), 0)
    begin, used = time.perf_counter(), studio.cpu_seconds
    completed = sum(await asyncio.gather(*(closed_loop(begin + seconds, number) for number in range(6))))
    capacity, cpu_capacity = completed / (time.perf_counter() - begin), completed / (studio.cpu_seconds - used)

    async def open_loop(rate: float) -> OpenLoopResult:
        rng, tasks = random.Random(1), list[asyncio.Task[Response]]()
        begin, due, used = time.perf_counter(), 0.0, studio.cpu_seconds
        while due < seconds:
            await asyncio.sleep(max(0.0, begin + due - time.perf_counter()))
            tasks.append(asyncio.create_task(send(studio, content(len(tasks)))))
            due += rng.expovariate(rate)
        responses = await asyncio.gather(*tasks)
        return OpenLoopResult(rate, time.perf_counter() - begin, studio.cpu_seconds - used, list(responses))

    below_capacity = (await open_loop(0.9 * capacity)).summary()
    overloaded = (await open_loop(4 * capacity)).summary()
    return {
        "capacity per second": round(capacity, 1),
        "capacity per processor second": round(cpu_capacity, 1),
        "0.9x": below_capacity,
        "4x": overloaded,
        "accepted p99 at 4x over 0.9x": round(
            (overloaded["accepted p99 ms"] or 0) / (below_capacity["accepted p99 ms"] or 1), 2
        ),
        "goodput": round(overloaded["answered per second"] / capacity, 3),
        "goodput by processor time": round(overloaded["answered per processor second"] / cpu_capacity, 3),
    }


# -- slow clients


async def slow_clients(studio: ServerProcess, model: str) -> dict[str, Any]:
    whole = verb_request(studio, "look", {"model": model, "text": TEXT})
    head, _, body = whole.partition(b"\r\n\r\n")

    async def send_slowly(first: bytes, rest: bytes, pause: float) -> dict[str, Any]:
        begin = time.perf_counter()
        reader, writer = await asyncio.open_connection("127.0.0.1", studio.port)

        async def send_rest() -> None:
            writer.write(first)
            for number in range(len(rest)):
                await asyncio.sleep(pause)
                writer.write(rest[number : number + 1])

        sending = asyncio.create_task(send_rest())
        received = b""
        try:
            async with asyncio.timeout(TIMEOUT / 6):
                while chunk := await reader.read(1 << 16):
                    received += chunk
        except (TimeoutError, ConnectionError):
            received += b" (cut)"
        finally:
            sending.cancel()
            writer.close()
        return {"answer": received[:12].decode("latin-1"), "seconds": round(time.perf_counter() - begin, 2)}

    async def disconnecting_clients() -> dict[str, Any]:
        """Time until the next request is answered after clients of long requests disconnect."""
        long = {"model": model, "text": "a good day and a long film " * 12, "at": "plain"}
        tasks = [
            asyncio.create_task(send(studio, verb_request(studio, "ablate", long, tab=str(number))))
            for number in range(20)
        ]
        await asyncio.sleep(1.0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        response = await send(studio, whole)
        return {"status": response.status, "seconds": round(response.seconds, 2)}

    parts: dict[str, Awaitable[dict[str, Any]]] = {
        "body, one byte a second": send_slowly(head + b"\r\n\r\n", body, 1.0),
        "body that stops": send_slowly(head + b"\r\n\r\n" + body[:10], b"", 0.0),
        "headers, one byte a second": send_slowly(head[:20], head[20:], 1.0),
        "connection that says nothing": send_slowly(b"", b"", 0.0),
    }
    results = dict(zip(parts, await asyncio.gather(*parts.values()), strict=True))
    return {**results, "question after 20 that left": await disconnecting_clients()}


async def measure(options: argparse.Namespace, studio: ServerProcess) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    models = await wait_for_models(studio)
    if "slow" in options.only:
        yield "slow", await slow_clients(studio, models[0])
    if "overload" in options.only:
        yield "overload", await overload(studio, models[0], options.seconds)
    if "fuzz" in options.only:
        yield "fuzz", await fuzz(studio, models, options.requests)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", default=[], help="as for `regard studio`; may be repeated")
    parser.add_argument("--requests", type=int, default=10_000, help="number of malformed requests")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each part of the overload")
    parser.add_argument("--only", default="fuzz,overload,slow", type=lambda text: text.split(","), help="parts to run")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of `threads`; the best counts")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/studio_load.json")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    if "threads" in options.only:
        from benchmarks.studio_threads import compare_threads

        results["threads"] = await compare_threads(rounds=options.rounds)
        if options.save:
            print(save_results("studio_threads", results["threads"]), file=sys.stderr)
    if {*options.only} - {"threads"}:
        with start_server(options.model, door="studio") as studio:
            results |= {name: result async for name, result in measure(options, studio)}
    print(json.dumps(results, indent=1, ensure_ascii=False))
    if options.save and {*results} - {"threads"}:
        print(save_results("studio_load", results), file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main())
