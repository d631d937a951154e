"""The program of a model's process, `python -m regard.server.models.program`; `regard.server.models.process` starts it.

Its standard input is a socket to the server. It loads one model, answers requests, and ends as soon as the server
closes the socket, whatever it is doing, so that no process outlives the server. Imports torch only after it has begun
to wait for that.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import warnings
from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any

from regard.engine.memory import use_one_arena
from regard.errors import RegardError, is_out_of_memory
from regard.server.models.messages import FrameReader, Reply, pack_replies

VERB_NICENESS = 5  # verbs leave the cores to the processes that serve


class _Channel:
    """The socket to the server. A thread takes messages off it at once, so that the server never waits to send."""

    def __init__(self) -> None:
        self._socket = socket.socket(fileno=os.dup(0))
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)  # prints go to stderr
        self._lock = threading.Lock()
        self._waiting: SimpleQueue[Any] = SimpleQueue()
        self.on_message: Any = self._waiting.put
        threading.Thread(target=self._receive, name="regard-receive", daemon=True).start()

    def wait(self) -> Any:
        """The next message, before `on_message` is replaced."""
        return self._waiting.get()

    def send(self, replies: list[Reply]) -> None:
        if not replies:
            return
        with self._lock:
            try:
                self._socket.sendall(pack_replies(replies))
            except OSError:
                os._exit(0)

    def _receive(self) -> None:
        reader = FrameReader()
        try:
            while data := self._socket.recv(1 << 18):
                for value in reader.feed(data):
                    self.on_message(value)
        finally:
            os._exit(0)


def main() -> None:
    """Load the model that the first message names, and answer requests."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the server ends this process when it has its answers
        signal.signal(number, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    use_one_arena()
    channel = _Channel()
    setup = channel.wait()
    if setup["lane"] == "verbs":
        os.nice(VERB_NICENESS)
    try:
        from regard.server.models.served_model import ServedModel

        served = ServedModel(setup)
    except Exception as error:
        channel.send([Reply(0, "failed", explain(error))])
        return
    worker = served.worker(channel.send)
    channel.on_message = worker.receive
    channel.send([Reply(0, "ready", served.info())])
    with served.computing():
        worker.run()


def explain(error: Exception) -> Mapping[str, str]:
    """One line about a model that could not be loaded."""
    text = " ".join(str(error).split())
    if is_out_of_memory(error):
        return {"error": "it does not fit into memory; stop other programs, or serve a smaller model"}
    return {"error": text if isinstance(error, RegardError) else f"{type(error).__name__}: {text}"}


if __name__ == "__main__":
    main()
