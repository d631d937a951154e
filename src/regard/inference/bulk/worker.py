"""The program of a worker process, `python -m regard.inference.bulk.worker`; `regard.inference.bulk.workers` starts it.

Reads shards of rows from its standard input and writes their blocks to its standard output, both as pickled messages of
the process that started it. It ends as soon as its standard input is closed, whatever it is doing, so that no worker
outlives that process. Imports torch only after it has begun to wait for that.
"""

from __future__ import annotations

import os
import pickle
import threading
import warnings
from multiprocessing.connection import Connection
from queue import SimpleQueue

from regard.worker_process import WorkerFailure, take_pipes


def main() -> None:
    """Compute shards until the standard input ends."""
    warnings.simplefilter("ignore")  # it has loaded the same model and shown them
    received, replies = take_pipes()
    messages: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(received, messages), daemon=True).start()
    number = None
    try:
        compute = pickle.loads(messages.get()).load()
        while True:
            number, rows = pickle.loads(messages.get())
            try:
                for item in compute(iter(rows)):
                    replies.send((number, item))
                replies.send((number, None))
            except BrokenPipeError:
                raise
            except Exception as error:
                replies.send((number, WorkerFailure.of(error)))
    except BrokenPipeError:  # nobody reads the replies any more
        os._exit(1)
    except Exception as error:  # the model could not be loaded
        replies.send((None, WorkerFailure.of(error)))


def _receive(received: Connection, messages: SimpleQueue[bytes]) -> None:
    """Take messages off the pipe at once, so that their sender never waits for a computation."""
    while True:
        try:
            messages.put(received.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)


if __name__ == "__main__":
    main()
