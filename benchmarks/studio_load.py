"""The studio under malformed requests, overload and slow clients, on this machine.

    python -m benchmarks.studio_load [--model NAME] [--requests 10000] [--seconds 15] [--only fuzz,slow] [--keep]

Starts `regard studio` on a free port of 127.0.0.1 and prints one JSON document:

`fuzz`      malformed requests, eight at a time, from a fixed seed: responses by status, connections that were reset or
            closed without a response, and the growth of the studio's resident memory after a warm-up of valid requests
            to every view.
`overload`  an open loop of Poisson arrivals, each on its own connection, at 0.9 and 4 times the capacity that a closed
            loop measured before: latencies, goodput relative to capacity, lost requests.
`slow`      clients that send headers or a body too slowly or not at all, and clients that leave the queue.

Latencies are measured by this client, which shares the cores with the studio. If other programs are running, goodput
per CPU second of the studio is more reliable.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TEXT = "The animal did not cross the street because it was too tired."
LINES = "\n".join(f"the film number {number} was {word} | {word}" for number in range(4) for word in ("good", "bad"))
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
ACTIONS = ("image", "branch", "train", "training")  # of the page, beside the verbs
AT_ONCE = 8  # fuzz clients side by side
PATIENCE = 180.0  # seconds until a request counts as lost
JSON = "application/json"


@dataclass
class Studio:
    """A studio that runs in its own process."""

    process: subprocess.Popen[str]
    port: int
    token: str
    folder: Path

    @property
    def memory(self) -> float:
        """Resident memory in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) / 1024

    @property
    def processor(self) -> float:
        """CPU time used, in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def request(
        self, path: str, body: bytes = b"", *, method: str = "POST", kind: str = JSON, headers: str = "", tab: str = ""
    ) -> bytes:
        """A complete request as bytes; the connection is closed after the response."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Connection: close"]
        lines += [f"Authorization: Bearer {self.token}", f"X-Regard-Tab: {tab}", f"Content-Type: {kind}"]
        lines += [f"Content-Length: {len(body)}", *headers.splitlines(), "", ""]
        return "\r\n".join(lines).encode("latin-1", "replace") + body


@contextlib.contextmanager
def started(model: list[str]) -> Iterator[Studio]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "regard", "studio", "--port", "0"]
        command += [part for name in model for part in ("--model", name)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                found = re.search(r"http://127\.0\.0\.1:(\d+)/(?:\?token=([\w-]+))?", line)
                assert found is not None, line
                yield Studio(process, int(found[1]), found[2] or "", Path(folder))
            finally:
                process.terminate()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()


@dataclass
class Answer:
    """The outcome of a request. `status` is 0 if the connection was closed without a response."""

    status: int = 0
    seconds: float = 0.0
    reset: bool = False
    headers: str = ""
    body: bytes = b""


async def send(studio: Studio, content: bytes, *, leave: bool = False, patience: float = PATIENCE) -> Answer:
    """Send bytes on a new connection and read until the studio closes it; `leave` closes it at once instead."""
    begin, answer = time.perf_counter(), Answer()
    received = b""
    try:
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_connection("127.0.0.1", studio.port)
            try:
                writer.write(content)
                if leave:
                    return answer
                with contextlib.suppress(ConnectionError):  # what counts is whether the answer can be read
                    await writer.drain()
                while piece := await reader.read(1 << 16):
                    received += piece
            finally:
                writer.close()
    except ConnectionError:
        answer.reset = True
    except TimeoutError:
        pass
    answer.seconds = time.perf_counter() - begin
    head, _, answer.body = received.partition(b"\r\n\r\n")
    found = re.match(rb"HTTP/1\.1 (\d{3})", head)
    answer.status, answer.headers = int(found[1]) if found else 0, head.decode("latin-1").lower()
    return answer


def address(name: str, suffix: str = "/view") -> str:
    return f"/api/{name}" if name in ACTIONS else f"/v1/{name}{suffix}"


def question(studio: Studio, name: str, arguments: object, *, tab: str = "", suffix: str = "/view") -> bytes:
    return studio.request(address(name, suffix), json.dumps(arguments).encode(), tab=tab)


async def ready(studio: Studio) -> list[str]:
    """Wait until all models are loaded, and return their names."""
    while True:
        answer = await send(studio, studio.request("/api/models", method="GET"))
        models = json.loads(answer.body)["models"]
        if all(one["state"] == "ready" for one in models):
            return [one["name"] for one in models]
        await asyncio.sleep(0.2)


# -- malformed requests


def malformed(studio: Studio, models: list[str], chance: random.Random) -> tuple[str, bytes, bool]:
    """The kind of a malformed request, its bytes, and whether its client disconnects before the response."""
    kind = chance.choice([*KINDS])
    made = KINDS[kind](studio, models, chance)
    return kind, made, kind == "client leaves"


def _noise(chance: random.Random, most: int = 200) -> bytes:
    return chance.randbytes(chance.randint(1, most))


def _bad_line(studio: Studio, models: list[str], chance: random.Random) -> bytes:
    lines = [
        _noise(chance) + b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
        b"POST /v1/look/view HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        b"GET /" + b"a" * chance.randint(10_000, 90_000) + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"b" * 70_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade, close\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + _noise(chance) + b"\r\n\r\n",
    ]
    return chance.choice(lines)


def _bad_header(studio: Studio, models: list[str], chance: random.Random) -> bytes:
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
    return head + b"Connection: close\r\n" + chance.choice(extra) + b"\r\n\r\n" + b"{}" * 20 + b"\r\n\r\n"


def _bad_chunks(studio: Studio, models: list[str], chance: random.Random) -> bytes:
    head = (
        f"POST /v1/look/view HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {studio.token}\r\n"
        f"Connection: close\r\nContent-Type: {JSON}\r\nTransfer-Encoding: chunked\r\n\r\n"
    ).encode()
    return (
        head
        + chance.choice([b"zz\r\n{}\r\n0\r\n\r\n", b"-2\r\n{}\r\n", b"5\r\n{}\r\n0\r\n\r\n", _noise(chance)])
        + b"\r\n\r\n"
    )


def _stranger(studio: Studio, models: list[str], chance: random.Random) -> bytes:
    body = json.dumps({"text": TEXT}).encode() * chance.choice([1, 1, 1, 20_000])
    path = chance.choice(["/", "/?token=" + "x" * 43, "/api/models", "/v1/look/view", "/static/x", "/api/train"])
    method, host = chance.choice(["GET", "POST", "PUT", "OPTIONS"]), chance.choice(["127.0.0.1", "evil.example"])
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n"
    cookies = [f"Cookie: regard-{studio.port}=wrong\r\n", "Cookie: \xff;;=\r\n"]
    sign = chance.choice(["", "Authorization: Bearer wrong\r\n", *cookies])
    return (head + sign + f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n").encode("latin-1") + body


def _bad_json(studio: Studio, models: list[str], chance: random.Random) -> bytes:
    bodies = [
        b"{",
        b"",
        b"\xff\xfe",
        b"[" * chance.randint(1, 200_000),
        b'{"a":' * chance.randint(1, 50_000),
        b"[]",
        b"null",
        b"NaN",
        b'{"text": ' + b"9" * 100_000 + b"}",
        b'{"text": "\\ud800"',
        _noise(chance, 100_000),
    ]
    return studio.request(address(chance.choice([*VALID])), chance.choice(bodies))


def _too_large(studio: Studio, models: list[str], chance: random.Random) -> bytes:
    name = chance.choice(["look", "map", "image"])
    size = chance.randint(1_000_001, 3_000_000) + (12_000_000 if name == "image" and chance.random() < 0.1 else 0)
    return studio.request(address(name), b'"' + b"a" * size + b'"')


def _odd(chance: random.Random) -> object:
    values: list[Callable[[], object]] = [
        lambda: None,
        lambda: chance.randint(-(10**9), 10**9),
        lambda: 1e308,
        lambda: [],
        lambda: {"a": {"b": []}},
        lambda: True,
        lambda: "",
        lambda: " \n\t",
        lambda: "x" * chance.choice([20_001, 300_001]),
        lambda: "\x00\ud800\u202e😀",
        lambda: "".join(chr(chance.randint(0, 0x10FFFF)) for _ in range(50)),
        lambda: "../../../../etc/passwd",
        lambda: "/dev/zero",
        lambda: "nan",
        lambda: "9" * 5000,
        lambda: "0.*,9.9",
        lambda: "a word\n" * chance.randint(1, 50),
    ]
    return chance.choice(values)()


def _bad_arguments(studio: Studio, models: list[str], chance: random.Random) -> bytes:
    name = chance.choice([*VALID])
    arguments: dict[str, object] = {"model": chance.choice(models), **VALID[name]}
    for key in chance.sample([*arguments], k=chance.randint(1, len(arguments))):
        arguments[key] = _odd(chance)
    for key in chance.sample(
        ["layer", "head", "beam", "at", "heads", "layers", "without", "image", "place", "pooling"], k=2
    ):
        arguments[key] = _odd(chance)
    suffix = chance.choice(["", "/view", "/view", "/page", "/events"])
    return question(studio, name, arguments, tab=str(chance.randint(0, 40)), suffix=suffix)


def _bad_path(studio: Studio, models: list[str], chance: random.Random) -> bytes:
    path = chance.choice(
        ["/%00", "/..%2f..%2fetc/passwd", "//", "/api/", "/api/%ff%fe", "/v1/look/x", "/v1/a/b/c", "/?a=b"]
    )
    return studio.request(path, b"{}", method=chance.choice(["GET", "POST", "DELETE", "HEAD", "BREW"]))


def _bad_type(studio: Studio, models: list[str], chance: random.Random) -> bytes:
    return studio.request(
        "/v1/look/view", json.dumps({"text": TEXT}).encode(), kind=chance.choice(["text/plain", "", "\xff", "a" * 500])
    )


def _leaves(studio: Studio, models: list[str], chance: random.Random) -> bytes:
    whole = question(studio, "attention", {"model": chance.choice(models), "text": TEXT})
    return whole[: chance.randint(1, len(whole))]


KINDS: dict[str, Callable[[Studio, list[str], random.Random], bytes]] = {
    "bad request line": _bad_line,
    "bad header": _bad_header,
    "bad chunks": _bad_chunks,
    "no or wrong token": _stranger,
    "bad JSON": _bad_json,
    "too large": _too_large,
    "bad arguments": _bad_arguments,
    "bad path": _bad_path,
    "bad content type": _bad_type,
    "client leaves": _leaves,
}


async def fuzz(studio: Studio, models: list[str], requests: int) -> dict[str, Any]:
    for _ in range(2):
        for name, arguments in VALID.items():
            for model in models:
                await send(studio, question(studio, name, {"model": model, **arguments}))
    before, worst = studio.memory, 0.0
    chance, statuses, wrong = random.Random(0), Counter[str](), list[str]()
    outcomes: Counter[str] = Counter()
    left = requests

    async def client() -> None:
        nonlocal left, worst
        while left > 0:
            left -= 1
            kind, content, leaves = malformed(studio, models, chance)
            answer = await send(studio, content, leave=leaves)
            if leaves:
                continue
            statuses[str(answer.status)] += 1
            outcome = (
                "reset" if answer.reset else "no answer" if not answer.status else "5xx" if answer.status >= 500 else ""
            )
            if outcome:
                outcomes[outcome] += 1
                if len(wrong) < 20:
                    wrong.append(f"{kind}: {outcome} {answer.status} {answer.body[:200]!r} to {content[:300]!r}")
            worst = max(worst, studio.memory) if left % 50 == 0 else worst

    begin = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    await asyncio.sleep(2)
    after = studio.memory
    return {
        "requests": requests,
        "seconds": round(time.perf_counter() - begin, 1),
        "statuses": dict(sorted(statuses.items())),
        "5xx": outcomes["5xx"],
        "resets": outcomes["reset"],
        "no answer": outcomes["no answer"],
        "memory MB": {"after warm-up": round(before), "after": round(after), "highest": round(worst)},
        "growth MB": round(after - before, 1),
        "wrong": wrong,
    }


# -- overload


@dataclass
class Load:
    """The responses of an open loop. Latencies are in seconds."""

    rate: float
    seconds: float
    processor: float  # seconds that the studio has used
    answers: list[Answer] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        accepted = [one.seconds for one in self.answers if one.status == 200]
        shed = [one for one in self.answers if one.status == 429]
        return {
            "offered per second": round(self.rate, 1),
            "requests": len(self.answers),
            "accepted": len(accepted),
            "shed": len(shed),
            "lost": len(self.answers) - len(accepted) - len(shed),
            "shed without Retry-After": sum("retry-after:" not in one.headers for one in shed),
            "answered per second": round(len(accepted) / self.seconds, 1),
            "answered per processor second": round(len(accepted) / self.processor, 1),
            "accepted p50 ms": _milliseconds(accepted, 0.5),
            "accepted p99 ms": _milliseconds(accepted, 0.99),
            "shed p99 ms": _milliseconds([one.seconds for one in shed], 0.99),
        }


def _milliseconds(seconds: list[float], part: float) -> float | None:
    found = sorted(seconds)
    return round(1000 * found[min(len(found) - 1, int(part * len(found)))], 1) if found else None


async def overload(studio: Studio, model: str, seconds: float) -> dict[str, Any]:
    def content(number: int) -> bytes:
        return question(studio, "senses", {"model": model, **VALID["senses"]}, tab=str(number % 50))

    async def closed(until: float, number: int) -> int:
        done = 0
        while time.perf_counter() < until:
            done += (await send(studio, content(number))).status == 200
        return done

    await closed(time.perf_counter() + min(3.0, seconds), 0)
    begin, used = time.perf_counter(), studio.processor
    done = sum(await asyncio.gather(*(closed(begin + seconds, number) for number in range(6))))
    capacity, most = done / (time.perf_counter() - begin), done / (studio.processor - used)

    async def opened(rate: float) -> Load:
        chance, tasks = random.Random(1), list[asyncio.Task[Answer]]()
        begin, due, used = time.perf_counter(), 0.0, studio.processor
        while due < seconds:
            await asyncio.sleep(max(0.0, begin + due - time.perf_counter()))
            tasks.append(asyncio.create_task(send(studio, content(len(tasks)))))
            due += chance.expovariate(rate)
        answers = await asyncio.gather(*tasks)
        return Load(rate, time.perf_counter() - begin, studio.processor - used, list(answers))

    calm = (await opened(0.9 * capacity)).document()
    crowd = (await opened(4 * capacity)).document()
    return {
        "capacity per second": round(capacity, 1),
        "capacity per processor second": round(most, 1),
        "0.9x": calm,
        "4x": crowd,
        "accepted p99 at 4x over 0.9x": round((crowd["accepted p99 ms"] or 0) / (calm["accepted p99 ms"] or 1), 2),
        "goodput": round(crowd["answered per second"] / capacity, 3),
        "goodput by processor time": round(crowd["answered per processor second"] / most, 3),
    }


# -- slow clients


async def slow(studio: Studio, model: str) -> dict[str, Any]:
    whole = question(studio, "attention", {"model": model, "text": TEXT})
    head, _, body = whole.partition(b"\r\n\r\n")

    async def drip(first: bytes, rest: bytes, pause: float) -> dict[str, Any]:
        begin = time.perf_counter()
        reader, writer = await asyncio.open_connection("127.0.0.1", studio.port)

        async def feed() -> None:
            writer.write(first)
            for number in range(len(rest)):
                await asyncio.sleep(pause)
                writer.write(rest[number : number + 1])

        feeding = asyncio.create_task(feed())
        received = b""
        try:
            async with asyncio.timeout(PATIENCE / 6):
                while piece := await reader.read(1 << 16):
                    received += piece
        except (TimeoutError, ConnectionError):
            received += b" (cut)"
        finally:
            feeding.cancel()
            writer.close()
        return {"answer": received[:12].decode("latin-1"), "seconds": round(time.perf_counter() - begin, 2)}

    async def leaving() -> dict[str, Any]:
        """Long requests whose clients disconnect: how soon is the next request answered?"""
        long = {"model": model, "text": "a good day and a long film " * 12}
        tasks = [
            asyncio.create_task(send(studio, question(studio, "ablation", long, tab=str(number))))
            for number in range(20)
        ]
        await asyncio.sleep(1.0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        answer = await send(studio, whole)
        return {"status": answer.status, "seconds": round(answer.seconds, 2)}

    parts: dict[str, Awaitable[dict[str, Any]]] = {
        "body, one byte a second": drip(head + b"\r\n\r\n", body, 1.0),
        "body that stops": drip(head + b"\r\n\r\n" + body[:10], b"", 0.0),
        "headers, one byte a second": drip(head[:20], head[20:], 1.0),
        "connection that says nothing": drip(b"", b"", 0.0),
    }
    found = dict(zip(parts, await asyncio.gather(*parts.values()), strict=True))
    return {**found, "question after 20 that left": await leaving()}


async def measure(options: argparse.Namespace, studio: Studio) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    models = await ready(studio)
    if "slow" in options.only:
        yield "slow", await slow(studio, models[0])
    if "overload" in options.only:
        yield "overload", await overload(studio, models[0], options.seconds)
    if "fuzz" in options.only:
        yield "fuzz", await fuzz(studio, models, options.requests)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", default=[], help="as for `regard studio`; may be repeated")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each part of the overload")
    parser.add_argument("--only", default="fuzz,overload,slow", type=lambda text: text.split(","))
    parser.add_argument("--keep", action="store_true", help="write benchmarks/results/studio_load.json")
    options = parser.parse_args()
    with started(options.model) as studio:
        figures = {name: found async for name, found in measure(options, studio)}
    print(json.dumps(figures, indent=1, ensure_ascii=False))
    if options.keep:
        from benchmarks.race import keep

        print(keep("studio_load", figures), file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main())
