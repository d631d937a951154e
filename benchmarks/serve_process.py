"""A `regard serve` process for tests and benchmarks, and HTTP/1.1 clients for it that cost little CPU.

Knows neither what is measured nor what an answer means. The clients are raw asyncio protocols: a general HTTP library
would take more of the cores that it shares with the server than the server's own web framework does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

START_SECONDS = 120.0
STOP_SECONDS = 60.0
TIMEOUT = 60.0  # seconds after which a request counts as lost


@dataclass
class ServerProcess:
    """A running server and the processes of its models. `token` is its API key, empty if it needs none."""

    process: subprocess.Popen[str]
    port: int
    token: str
    log: Path

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pids(self) -> list[int]:
        """The server's process and all that descend from it."""
        return [self.process.pid, *descendants(self.process.pid)]

    @property
    def memory_mb(self) -> float:
        """Resident memory of all processes together."""
        return sum(_resident_kb(pid) for pid in self.pids) / 1024

    @property
    def memory_by_process(self) -> dict[str, float]:
        """Resident memory in MB of the server's process and of that of each model, by name."""
        names = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-2].decode() for pid in self.pids[1:]}
        return {name: _resident_kb(pid) / 1024 for pid, name in {self.process.pid: "server", **names}.items()}

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all processes together."""
        return sum(_cpu_seconds(pid) for pid in self.pids)

    @property
    def open_files(self) -> int:
        """Open file descriptors of all processes together."""
        return sum(_count_files(pid) for pid in self.pids)

    def request(
        self,
        path: str,
        body: bytes = b"",
        *,
        method: str = "POST",
        content_type: str = "application/json",
        headers: str = "",
        tab: str = "",
        close: bool = True,
    ) -> bytes:
        """A complete request as bytes; `close` asks the server to end the connection after its answer."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}"]
        lines += ["Connection: close"] if close else []
        lines += [f"Authorization: Bearer {self.token}"] if self.token else []
        lines += [f"X-Regard-Tab: {tab}"] if tab else []
        lines += [f"Content-Type: {content_type}", f"Content-Length: {len(body)}", *headers.splitlines(), "", ""]
        return "\r\n".join(lines).encode("latin-1", "replace") + body

    def ask(self, path: str, arguments: object = None, *, method: str = "") -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of one request; the body is JSON if there are arguments."""
        data = None if arguments is None else json.dumps(arguments).encode()
        headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {self.token}"} if self.token else {}
        )
        request = urllib.request.Request(
            self.address + path, data=data, headers=headers, method=method or ("GET" if data is None else "POST")
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                return answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, {name.lower(): value for name, value in error.headers.items()}, error.read()

    def ask_json(self, path: str, arguments: object = None) -> Any:
        """The parsed answer of a request that must succeed."""
        status, _, body = self.ask(path, arguments)
        assert status == 200, (status, body[:500])
        return json.loads(body)

    def metrics(self) -> dict[str, float]:
        """The samples of /metrics by name, summed over their labels."""
        found: dict[str, float] = {}
        for line in self.ask("/metrics")[2].decode().splitlines():
            if sample := re.match(r"([a-zA-Z_:]\w*)(?:\{[^}]*\})? (\S+)", line):
                found[sample[1]] = found.get(sample[1], 0.0) + float(sample[2])
        return found

    def wait_until_ready(self, seconds: float = START_SECONDS) -> None:
        """Wait until /health is 200."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.process.poll() is None, f"the server ended: {self.log.read_text()[-2000:]}"
            with contextlib.suppress(OSError):
                if self.ask("/health")[0] == 200:
                    return
            time.sleep(0.05)
        raise TimeoutError(f"not ready within {seconds:g} seconds: {self.log.read_text()[-2000:]}")


@contextlib.contextmanager
def start_server(
    models: Sequence[str],
    *options: str,
    door: Literal["serve", "studio"] = "serve",
    token: str = "",
    env: dict[str, str] | None = None,
    wait: bool = True,
) -> Iterator[ServerProcess]:
    """`regard serve` or `regard studio` with these models on a free port of 127.0.0.1, ended with SIGTERM at the end of
    the block."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        named = models if door == "serve" else [word for name in models for word in ("--model", name)]
        command = [sys.executable, "-m", "regard", door, *named, "--port", "0", *options]
        if token:
            (Path(folder) / "keys").write_text(f"{token}\n")
            command += ["--api-key-file", str(Path(folder) / "keys")]
        with (
            open(log, "w") as stderr,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=folder, env=env) as process,
        ):
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                found = re.search(r"http://127\.0\.0\.1:(\d+)(?:/\?token=([\w-]+))?", line)
                assert found is not None, (line, log.read_text()[-2000:])
                server = ServerProcess(process, int(found[1]), token or found[2] or "", log)
                if wait:
                    server.wait_until_ready()
                yield server
            finally:
                process.terminate()
                try:
                    process.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()


def descendants(pid: int) -> list[int]:
    """The processes that this one has started, directly or not, and that still exist."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found, next_generation = list[int](), [pid]
    while next_generation:
        next_generation = [child for child, parent in parents.items() if parent in next_generation]
        found += next_generation
    return found


def _resident_kb(pid: int) -> int:
    with contextlib.suppress(OSError):
        if found := re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text()):
            return int(found[1])
    return 0


def _cpu_seconds(pid: int) -> float:
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _count_files(pid: int) -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/fd"))
    return 0


@dataclass(slots=True)
class Answer:
    """The outcome of a request. `status` is 0 if there was no answer, `seconds` is counted from `due`."""

    status: int = 0
    seconds: float = 0.0
    lag: float = 0.0  # seconds by which the client sent it too late
    head: bytes = b""
    body: bytes = b""


class Client(asyncio.Protocol):
    """One keep-alive connection with one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._end = 0  # of the answer in what was received; 0 if unknown
        self._head_length = 0
        self._answer: asyncio.Future[None] | None = None
        self.closed = False

    @classmethod
    async def connect(cls, port: int) -> Client:
        _, protocol = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._end:
            end_of_head = self._received.find(b"\r\n\r\n")
            if end_of_head < 0:
                return
            head = bytes(self._received[:end_of_head]).lower()
            start = head.find(b"content-length:")
            if start < 0:
                return self.close()  # these clients ask only for what is answered with a length
            self._head_length = end_of_head + 4
            self._end = self._head_length + int(head[start + 15 :].split(b"\r\n", 1)[0])
            self.closed = b"connection: close" in head
        if len(self._received) >= self._end and self._answer is not None and not self._answer.done():
            self._answer.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)

    async def request(self, content: bytes, *, due: float = 0.0, timeout: float = TIMEOUT) -> Answer:
        """Send a request and wait for its answer. `due` is when it was to be sent (0: now)."""
        sent = time.perf_counter()
        answer = Answer(lag=sent - due if due else 0.0)
        loop = asyncio.get_running_loop()
        self._received.clear()
        self._end, self._answer = 0, loop.create_future()
        timer = loop.call_later(timeout, self.close)
        if self._transport is not None and not self.closed:
            self._transport.write(content)
            await self._answer
        timer.cancel()
        answer.seconds = time.perf_counter() - (due or sent)
        if self._end and len(self._received) >= self._end:
            answer.status = int(self._received[9:12])
            answer.head, answer.body = (
                bytes(self._received[: self._head_length]),
                bytes(self._received[self._head_length : self._end]),
            )
        return answer

    def close(self) -> None:
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def reset(self) -> None:
        """Leave so that the server knows at once: after a plain close, a client could still read the answer."""
        if self._transport is not None:
            no_linger = struct.pack("ii", 1, 0)
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_linger)
        self.close()


@dataclass
class ClientPool:
    """Keep-alive connections to one port; a request takes an idle one or opens another."""

    port: int
    idle: list[Client] = field(default_factory=list)

    async def request(self, content: bytes, *, due: float = 0.0) -> Answer:
        try:
            while self.idle and self.idle[-1].closed:  # by the server, after a while without a request
                self.idle.pop()
            client = self.idle.pop() if self.idle else await Client.connect(self.port)
            answer = await client.request(content, due=due)
        except OSError:
            return Answer(seconds=time.perf_counter() - (due or time.perf_counter()))
        if not client.closed:
            self.idle.append(client)
        return answer

    def close(self) -> None:
        for client in self.idle:
            client.close()
