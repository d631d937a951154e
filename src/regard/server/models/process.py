"""A model in a process of its own, seen from the server's event loop.

Requests go to `regard.server.models.program` over a socket and are answered in any order. When the process ends, all of
its requests fail with 503 and it is started again, after a pause that grows while it keeps failing. A process that is
stuck, because it does not answer or its current batch does not end, is ended too. This module imports no torch.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from regard.errors import InputError, RegardError
from regard.server.errors import RequestError, unavailable
from regard.server.models.messages import FrameReader, Reply, Timing, pack
from regard.worker_process import describe_exit, start_process

RESTART_SECONDS = (0.1, 1.0, 2.0, 5.0, 10.0, 30.0)  # pauses before consecutive restarts
STABLE_SECONDS = 60.0  # after which the first pause counts again
CHECK_SECONDS = 5.0  # between two checks whether the process is stuck
MAX_GROWTH_BYTES = 1 << 30  # above the memory after loading, that an idle process may keep
Receiver = Callable[[Reply], None]


class ModelProcess(asyncio.Protocol):
    """The process of one model. Not thread-safe: use it from one event loop.

    `setup` is what `ServedModel` expects. `stuck_seconds`: a process that is silent, or computes one batch, for so long
    is ended. `on_batch` gets (pieces, tokens, waiting) after each batch, `on_event` a line for the log when the process
    ends or is ready again. `on_large` is called once when it is idle and has MAX_GROWTH_BYTES more than after loading.
    """

    def __init__(
        self,
        name: str,
        setup: Mapping[str, Any],
        *,
        stuck_seconds: float = math.inf,
        on_batch: Callable[[str, tuple[int, int, int]], None] | None = None,
        on_event: Callable[[Mapping[str, object]], None] | None = None,
        on_large: Callable[[ModelProcess], None] | None = None,
    ) -> None:
        self.name, self.setup, self.stuck_seconds = name, dict(setup), stuck_seconds
        self.info: dict[str, Any] = {}
        self.state: Literal["starting", "ready", "restarting", "closed"] = "starting"
        self.restarts = 0
        self.starting: asyncio.Future[None]  # the first start; set by the registry
        self.last_used = 0.0  # in the event loop's time
        self._on_batch, self._on_event, self._on_large = on_batch, on_event, on_large
        self._loaded_bytes = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._ready: asyncio.Future[None] | None = None
        self._reader = FrameReader()
        self._receivers: dict[int, Receiver] = {}
        self._number = 0
        self._failures = 0
        self._ready_at = 0.0
        self._restart: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def in_flight(self) -> int:
        return len(self._receivers)

    async def start(self) -> None:
        """Start the process and wait until the model is loaded. Raises RegardError when that fails."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        try:
            self._process = start_process(
                "regard.server.models.program",
                self.name if self.setup["lane"] == "serving" else f"{self.name} verbs",  # for `ps`
                # What it writes to disk for clients is in the temporary folder of the server, and ends with it.
                environment={"TMPDIR": tempfile.gettempdir()},
                stdin=theirs.fileno(),
            )
        except RegardError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._ready, self._reader = loop.create_future(), FrameReader()
        ours.setblocking(False)
        transport, _ = await loop.create_connection(lambda: self, sock=ours)
        self._transport = transport
        transport.write(pack(self.setup))
        try:
            await self._ready
        except BaseException:
            self._kill()
            raise
        self.state, self._ready_at, self._loaded_bytes = "ready", loop.time(), self._resident_bytes()
        self.last_used = self._ready_at
        if math.isfinite(self.stuck_seconds):
            self._watch = loop.create_task(self._watch_process())
        note = self.info.get("note")
        self.report("model_started", pid=self.pid, **({"note": note} if note else {}))

    def send(self, client: str, operation: str, arguments: Mapping[str, Any], receiver: Receiver) -> int:
        """Send a request; `receiver` is called with its replies. Returns its number, for `cancel`."""
        if self.state != "ready" or self._transport is None:
            raise unavailable(f"{self.name} is being started again; try again in a moment")
        self._number += 1
        self._receivers[self._number] = receiver
        self.last_used = asyncio.get_running_loop().time()
        self._transport.write(pack((self._number, client, operation, arguments)))
        return self._number

    def cancel(self, number: int) -> None:
        """Take a request back, if it is not answered yet."""
        if self._receivers.pop(number, None) is not None and self._transport is not None:
            self._transport.write(pack((number, "", "cancel", {})))

    def call(self, client: str, operation: str, arguments: Mapping[str, Any]) -> asyncio.Future[tuple[Any, Timing]]:
        """The payload of the reply, and how long it took. Whoever ends the future otherwise cancels the request."""
        answer: asyncio.Future[tuple[Any, Timing]] = asyncio.get_running_loop().create_future()

        def receive(reply: Reply) -> None:
            if answer.done() or reply.state == "event":
                return
            if reply.state == "error":
                answer.set_exception(RequestError.from_tuple(reply.payload))
            else:
                answer.set_result((reply.payload, Timing(*(reply.timing or ()))))

        number = self.send(client, operation, arguments, receive)
        answer.add_done_callback(lambda ended: self.cancel(number))
        return answer

    async def retire(self) -> None:
        """End the process when it has answered what it has."""
        while self.in_flight:
            await asyncio.sleep(CHECK_SECONDS / 10)
        self.close()

    def close(self) -> None:
        """End the process; what it has not answered fails."""
        self.state = "closed"
        if self._restart is not None:
            self._restart.cancel()
        self._kill()
        self._stop_watching()

    def receive(self, reply: Reply) -> None:
        """Called with each reply of the process."""
        if reply.number:
            final = reply.state != "event"
            receiver = self._receivers.pop(reply.number, None) if final else self._receivers.get(reply.number)
            if receiver is not None:
                receiver(reply)
        elif reply.state == "batch":
            if self._on_batch is not None:
                self._on_batch(self.name, reply.payload)
        elif reply.state == "ready" and self._ready is not None and not self._ready.done():
            self.info = reply.payload
            self._ready.set_result(None)
        elif reply.state == "failed" and self._ready is not None and not self._ready.done():
            self._ready.set_exception(InputError(f"{self.name} cannot be served: {reply.payload['error']}"))

    def data_received(self, data: bytes) -> None:
        for replies in self._reader.feed(data):
            for reply in replies:
                self.receive(Reply(*reply))

    def connection_lost(self, error: Exception | None) -> None:
        """Called when the process has ended."""
        if self.state == "closed":
            return
        how = self._kill()
        self._stop_watching()
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(
                RegardError(
                    f"{self.name} cannot be served: its process ended while the model was loaded ({how}); there may be "
                    "too little memory"
                )
            )
        receivers, self._receivers = self._receivers, {}
        fault = unavailable(f"the process of {self.name} ended unexpectedly; try again in a moment").to_tuple()
        for number, receiver in receivers.items():
            receiver(Reply(number, "error", fault))
        if self.state == "ready":
            self.state = "restarting"
            self.report("model_ended", reason=how, requests=len(receivers))
            self._restart = asyncio.get_running_loop().create_task(self._start_again())

    async def _start_again(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - self._ready_at > STABLE_SECONDS:
            self._failures = 0
        while self.state != "closed":
            await asyncio.sleep(RESTART_SECONDS[min(self._failures, len(RESTART_SECONDS) - 1)])
            self._failures += 1
            self.restarts += 1
            try:
                await self.start()
            except RegardError as error:
                self.report("model_not_started", reason=str(error))
                continue
            return

    async def _watch_process(self) -> None:
        """Ask how long the current batch takes; end a process that does not answer, or takes so long that the requests
        in the batch have been answered with 504. Report one that is too large when it was idle at two checks."""
        while True:
            number = self._number
            await asyncio.sleep(min(CHECK_SECONDS, self.stuck_seconds / 4))
            if self._on_large is not None and self._number == number and not self.in_flight:
                growth = self._resident_bytes() - self._loaded_bytes
                if growth > MAX_GROWTH_BYTES:
                    self.report("model_large", growth=growth)
                    self._loaded_bytes = sys.maxsize  # once, until it is started again
                    self._on_large(self)
                    continue
            try:
                async with asyncio.timeout(self.stuck_seconds):
                    busy, _ = await self.call("", "busy_seconds", {})
            except TimeoutError:
                busy = math.inf
            if busy >= self.stuck_seconds:
                self.report("model_stuck", seconds=self.stuck_seconds)
                assert self._process is not None
                self._process.kill()  # the connection is lost, as after a crash
                return

    def _resident_bytes(self) -> int:
        """The memory of the process; 0 where the system does not tell (needs Linux)."""
        try:
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, AttributeError):
            return 0

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def report(self, event: str, **fields: object) -> None:
        """Write a line about the process to the log."""
        if self._on_event is not None:
            self._on_event({"event": event, "model": self.name, "lane": self.setup["lane"], **fields})

    def _kill(self) -> str:
        """End the process, if it still runs, and say how it ended."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        if self._process is None:
            return "not started"
        with suppress(subprocess.TimeoutExpired):  # one that has crashed is about to end
            self._process.wait(0.05)
        self._process.kill()
        return describe_exit(self._process.wait())
